//! What unanswered requests may have done.

use crate::record::{Op, Outcome, Record};
use std::collections::HashMap;

/// The possible effects of some requests of one owner.
#[derive(Clone, Copy)]
pub(super) struct Unheard {
    /// When the first acquire was sent, in microseconds, and the longest lease that any acquire asks for.
    pub(super) asked: u64,
    pub(super) ttl: i64,
    /// The earliest moment at which a request may have released the lock, in milliseconds.
    pub(super) released: i64,
    /// The earliest end of a lease that an EXTEND may have shortened, or the end of a connection.
    pub(super) ends: i64,
    /// By how much these requests may have extended a lease.
    pub(super) lasts: i64,
    /// The least and the most holders that any acquire tolerates.
    pub(super) tightest: u32,
    pub(super) loosest: u32,
    /// An acquire asks for several locks.
    pub(super) of_several: bool,
}

impl Unheard {
    pub(super) const NOTHING: Self = Self {
        asked: u64::MAX,
        ttl: 0,
        released: i64::MAX,
        ends: i64::MAX,
        lasts: 0,
        tightest: u32::MAX,
        loosest: 0,
        of_several: false,
    };

    pub(super) fn of(record: &Record) -> Self {
        let (asked, ttl) = (record.asked_millis(), i64::from(record.ttl));
        match record.op {
            // An acquire may also extend the lease.
            Op::Try | Op::Wait => Self {
                asked: record.asked,
                ttl,
                lasts: ttl,
                tightest: record.tolerance(),
                loosest: record.tolerance(),
                of_several: record.set != 0,
                ..Self::NOTHING
            },
            Op::Extend => Self { ends: asked + ttl, lasts: ttl, ..Self::NOTHING },
            Op::Closed => Self { ends: asked + ttl, ..Self::NOTHING },
            Op::Release => Self { released: asked, ..Self::NOTHING },
            Op::Check | Op::Delete | Op::Seen => Self::NOTHING,
        }
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            asked: self.asked.min(other.asked),
            ttl: self.ttl.max(other.ttl),
            released: self.released.min(other.released),
            ends: self.ends.min(other.ends),
            lasts: self.lasts + other.lasts,
            tightest: self.tightest.min(other.tightest),
            loosest: self.loosest.max(other.loosest),
            of_several: self.of_several || other.of_several,
        }
    }

    /// Whether one of the requests may have been granted the lock.
    pub(super) fn may_hold(&self) -> bool {
        self.asked < u64::MAX
    }
}

pub(super) struct AllUnheard {
    /// For each owner, in the order of requests: the request, and what it and those before it may have done.
    of: HashMap<u32, Vec<(u32, Unheard)>>,
}

impl AllUnheard {
    /// The requests of one lock that name no fence of a certain grant. They may concern whatever their owner holds by
    /// then.
    pub(super) fn new(records: &[Record], order: &[u32]) -> Self {
        let mut all: HashMap<u32, Vec<(u32, Unheard)>> = HashMap::new();
        for index in order {
            let record = &records[*index as usize];
            let shows_none = record.is_acquire() || record.fence == 0;
            let is_unknown = matches!(record.outcome, Outcome::Unknown | Outcome::Over);
            if is_unknown && shows_none {
                all.entry(record.owner).or_default().push((*index, Unheard::of(record)));
            }
        }
        for of in all.values_mut() {
            of.sort_unstable_by_key(|(index, _)| *index);
            let mut sofar = Unheard::NOTHING;
            for (_, unheard) in of {
                sofar = sofar.and(*unheard);
                *unheard = sofar;
            }
        }
        Self { of: all }
    }

    /// What this owner's unanswered requests before `index` may have done.
    pub(super) fn before(&self, owner: u32, index: u32) -> Unheard {
        let all = self.of.get(&owner).map_or(&[][..], |all| all);
        let end = all.partition_point(|(earlier, _)| *earlier < index);
        all[..end].last().map_or(Unheard::NOTHING, |(_, unheard)| *unheard)
    }

    pub(super) fn ever(&self, owner: u32) -> Unheard {
        self.before(owner, u32::MAX)
    }
}
