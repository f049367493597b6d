//! What unanswered requests may have done.

use super::spans::overlap;
use super::{Lock, Rules};
use crate::record::{Op, Outcome, Record, millis};
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
    /// For each owner, if the clock is ever set back, in the order of requests: its granted requests, and its refused
    /// waits that may have been granted the lock.
    acquires: HashMap<u32, Vec<u32>>,
}

impl AllUnheard {
    /// The requests of one lock that name no fence of a certain grant. They may concern whatever their owner holds by
    /// then.
    pub(super) fn new(records: &[Record], order: &[u32], rules: &Rules) -> Self {
        let mut all: HashMap<u32, Vec<(u32, Unheard)>> = HashMap::new();
        let mut acquires: HashMap<u32, Vec<u32>> = HashMap::new();
        for index in order {
            let record = &records[*index as usize];
            let shows_none = record.is_acquire() || record.fence == 0;
            let is_unknown = matches!(record.outcome, Outcome::Unknown | Outcome::Over);
            if is_unknown && shows_none {
                all.entry(record.owner).or_default().push((*index, Unheard::of(record)));
            }
            let is_granted = record.is_acquire() && record.outcome == Outcome::Ok;
            if !rules.set_back.is_empty() && (is_granted || was_over(record, rules)) {
                acquires.entry(record.owner).or_default().push(*index);
            }
        }
        acquires.values_mut().for_each(|of| of.sort_unstable());
        for of in all.values_mut() {
            of.sort_unstable_by_key(|(index, _)| *index);
            let mut sofar = Unheard::NOTHING;
            for (_, unheard) in of {
                sofar = sofar.and(*unheard);
                *unheard = sofar;
            }
        }
        Self { of: all, acquires }
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

impl Lock<'_> {
    /// What refused waits of this owner may have been granted. Such a wait was granted a lease that ended before the
    /// reply, so the reply was a refusal. The lease may be in force again when the request at `index` is answered. A
    /// later grant to the owner has ended it.
    pub(super) fn revived(&self, index: u32, rules: &Rules) -> Unheard {
        let waits = self.acquires_before(index);
        let waits = waits.take_while(|record| record.outcome == Outcome::Refused);
        let revived = waits.filter(|wait| self.may_revive(wait, self.record(index), rules));
        revived.map(Unheard::of).fold(Unheard::NOTHING, Unheard::and)
    }

    /// Whether anything that this owner was granted may be in force again when the request at `index` is answered.
    pub(super) fn may_hold_again(&self, index: u32, rules: &Rules) -> bool {
        let mut granted = self.acquires_before(index);
        granted.any(|granted| self.may_revive(granted, self.record(index), rules))
    }

    /// The earlier requests of the same owner that may have been granted the lock, the last first.
    fn acquires_before(&self, index: u32) -> impl Iterator<Item = &Record> {
        let acquires = self.unheard.acquires.get(&self.record(index).owner);
        let acquires = acquires.map_or(&[][..], |all| all);
        let end = acquires.partition_point(|earlier| *earlier < index);
        acquires[..end].iter().rev().map(|earlier| self.record(*earlier))
    }

    /// Whether a grant that had ended may be in force again when `then` is answered: the clock was set back, and nobody
    /// certainly deleted the key meanwhile. A deletion before a loss may itself be lost.
    fn may_revive(&self, granted: &Record, then: &Record, rules: &Rules) -> bool {
        let lost = overlap(&rules.loss, 0, then.told).map_or(0, |span| span.to);
        let since = granted.told_millis().max(millis(lost));
        let deleted = || self.deletes.surely_within(since, then.asked_millis());
        rules.may_revive(granted.asked, then.told) && deleted().is_none()
    }
}

/// Whether this wait may have been granted the lock, and was refused because the lease had ended before the reply.
/// While the clock is set to and fro, which counts as a loss, any lease may have ended.
fn was_over(record: &Record, rules: &Rules) -> bool {
    let lasted = record.told_millis() - record.asked_millis();
    let may_be_over = lasted >= record.ttl.into() || rules.is_lossy(record.asked, record.told);
    record.op == Op::Wait && record.outcome == Outcome::Refused && may_be_over
}
