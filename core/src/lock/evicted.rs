//! Locks that the server evicted although they were held, kept until they are put back.
//!
//! Nothing is kept for a lock that is in the keyspace. When the server evicts a lock, its value and its deadline are
//! kept here, and the caller writes them back soon after: see [`Evicted::next`]. Until then every command of the module
//! treats the lock as held.
//!
//! A server that has nothing but locks to evict evicts each again as soon as it is back. So only [`BURST`] locks are
//! put back at once, and then one per millisecond; the others stay here. The server moves slots without what is kept
//! here, so all of it is put back when such a move begins: see [`Evicted::hurry`].

use super::hold::{Seen, Stored};
use super::holders::newest_fence;
use super::lease::{Deadline, Moment};
use super::name::{KeptName, Name};
use std::collections::BTreeMap;
use std::rc::Rc;

/// How many locks are put back at once after a while without evictions.
const BURST: u64 = 64;

/// How long to wait when the allowance is used up, or when nothing could be written.
const PAUSE_MILLIS: u64 = 10;

/// How often the log may say that locks cannot be put back in time.
const MILLIS_BETWEEN_COMPLAINTS: u64 = 60_000;

#[derive(Debug)]
pub struct Evicted {
    dbs: BTreeMap<i32, BTreeMap<Rc<[u8]>, Kept>>,
    /// Every lock that is kept, in the order of eviction.
    order: BTreeMap<u64, KeptName>,
    evictions: u64,
    /// How many may be put back now: one more each millisecond since `counted`.
    allowance: u64,
    counted: Moment,
    complained: Option<Moment>,
}

#[derive(Debug)]
struct Kept {
    seen: Seen,
    place: u64,
}

impl Evicted {
    pub const fn new() -> Self {
        Self {
            dbs: BTreeMap::new(),
            order: BTreeMap::new(),
            evictions: 0,
            allowance: BURST,
            counted: Moment::from_micros(0),
            complained: None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Keeps what this key holds, because the server evicts it. Returns whether it is kept. A grant always is. A
    /// foreign lock is kept only if somebody waits for it: otherwise it looks like any other string.
    pub fn keep(
        &mut self,
        name: Name<'_>,
        stored: Stored<'_>,
        is_contended: bool,
        now: Moment,
    ) -> bool {
        // Whatever was evicted before has been replaced since.
        self.remove(name);
        let Some((value, deadline)) = stored.seen() else { return false };
        let is_a_lock = is_contended || newest_fence(value).is_some();
        if !is_a_lock || !lasts(deadline, now) {
            return false;
        }
        // Copied only now: most evicted keys are not locks, and may be large.
        let seen = Seen { value: value.into(), deadline };
        let name = KeptName::from(name);
        let place = self.evictions;
        self.evictions = place.saturating_add(1);
        self.dbs.entry(name.db).or_default().insert(Rc::clone(&name.key), Kept { seen, place });
        self.order.insert(place, name);
        true
    }

    pub fn get(&self, name: Name<'_>) -> Option<&Seen> {
        self.dbs.get(&name.db)?.get(name.key).map(|kept| &kept.seen)
    }

    /// Stops keeping the lock. Returns what to write if the key still holds nothing and the lease lasts.
    pub fn take(&mut self, name: Name<'_>, stored: Stored<'_>, now: Moment) -> Option<Seen> {
        let seen = self.remove(name)?;
        (matches!(stored, Stored::Nothing) && lasts(seen.deadline, now)).then_some(seen)
    }

    /// Stops keeping the lock, and returns what was kept.
    pub fn remove(&mut self, name: Name<'_>) -> Option<Seen> {
        let Name { db, key } = name;
        let keys = self.dbs.get_mut(&db)?;
        let Kept { seen, place } = keys.remove(key)?;
        if keys.is_empty() {
            self.dbs.remove(&db);
        }
        self.order.remove(&place);
        Some(seen)
    }

    /// Stops keeping the locks of this database (`None`: of all).
    pub fn forget(&mut self, db: Option<i32>) {
        self.dbs.retain(|of, _| db.is_some_and(|db| db != *of));
        self.order.retain(|_, name| db.is_some_and(|db| db != name.db));
    }

    pub fn swap(&mut self, one: i32, other: i32) {
        let (from_one, from_other) = (self.dbs.remove(&one), self.dbs.remove(&other));
        self.dbs.extend(from_one.map(|keys| (other, keys)));
        self.dbs.extend(from_other.map(|keys| (one, keys)));
        for name in self.order.values_mut() {
            name.db = match name.db {
                db if db == one => other,
                db if db == other => one,
                db => db,
            };
        }
    }

    /// When [`Evicted::next`] has something to put back.
    pub fn due(&self, now: Moment) -> Option<Moment> {
        let next = match self.allowance_at(now) {
            0 => self.counted.min(now).plus_millis(PAUSE_MILLIS),
            _ => now,
        };
        (!self.is_empty()).then_some(next)
    }

    /// The lock to put back now, the earliest evicted first. The caller takes it, removes it, or waits.
    pub fn next(&mut self, now: Moment) -> Option<KeptName> {
        let (_, name) = self.order.first_key_value()?;
        if now.millis_since(self.counted) > 0 || now < self.counted {
            (self.allowance, self.counted) = (self.allowance_at(now), now);
        }
        self.allowance = self.allowance.checked_sub(1)?;
        Some(name.clone())
    }

    /// Lets everything that is kept now be put back, however much that is: the server would not move it with its slot.
    pub fn hurry(&mut self) {
        let all = u64::try_from(self.len()).unwrap_or(u64::MAX);
        self.allowance = self.allowance.max(all);
    }

    /// Nothing can be written now: pauses putting back.
    pub fn wait(&mut self, now: Moment) {
        (self.allowance, self.counted) = (0, now);
    }

    /// Whether to tell the log that locks are evicted faster than they are put back.
    pub fn complains(&mut self, now: Moment) -> bool {
        let is_behind = !self.is_empty() && self.allowance_at(now) == 0;
        let complains = is_behind
            && self.complained.is_none_or(|last| {
                now.millis().abs_diff(last.millis()) >= MILLIS_BETWEEN_COMPLAINTS
            });
        if complains {
            self.complained = Some(now);
        }
        complains
    }

    /// If the clock was set back, the time since then does not count.
    fn allowance_at(&self, now: Moment) -> u64 {
        let most = self.allowance.max(BURST);
        self.allowance.saturating_add(now.millis_since(self.counted)).min(most)
    }
}

fn lasts(deadline: Option<Deadline>, now: Moment) -> bool {
    !deadline.is_some_and(|deadline| deadline.has_passed(now))
}

#[cfg(test)]
mod tests;
