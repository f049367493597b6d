//! What the server reports: one method for each event of a lock.
//!
//! An uncontended grant and its release cost a few counters and one cache line: no allocation, no copy of the key.
//! Only refused tries, waits and lost locks cost more.

use super::contention::Contention;
use super::counters::{Counters, count};
use super::event::Event;
use super::histogram::Histogram;
use super::log::{Log, Noted};
use super::recent::{Lateness, Recent, Telling};
use super::tries::{Tried, Tries};
use crate::lock::{
    Deadline, Fence, Grant, Holds, Lost, LostBy, Moment, Name, NotHolder, OtherHolders, Outcome,
    Owner, Raised, Seen,
};

/// The default length from which a wait is noted.
pub const USUAL_LONG_WAIT_MILLIS: u64 = 10_000;

/// Some events come by the thousand: requests to wait when queues are full, evictions when memory is out, the end of a
/// machine that held many locks.
const MILLIS_BETWEEN_NOTES: u64 = 1_000;

/// How far a fence may be ahead of the clock and still tell the time of its grant. Fences of one microsecond run
/// ahead, because each is one larger than the last.
const TIMELY_MICROS: u64 = 1_000;

#[derive(Debug)]
pub struct Observer {
    pub(super) counters: Counters,
    /// Durations of waits that ended with the lock, or without it.
    pub(super) waits: Histogram,
    /// Durations from the grant of a lock to its release.
    pub(super) holds: Histogram,
    pub log: Log,
    pub contention: Contention,
    pub(super) recent: Recent,
    tries: Tries,
    /// 0 for never.
    long_wait_millis: u64,
    queue_full_noted: Option<Moment>,
    restored_noted: Option<Moment>,
    disconnected_noted: Option<Moment>,
    /// The last fence that was issued ahead of the clock, or by another server. This fence and earlier ones do not
    /// tell the time of their grants.
    untimely: u64,
    /// The last hold that was noted as lost. The simulation compares it with what it knows.
    #[cfg(test)]
    pub last_lost: Option<Lost>,
}

/// How a lock was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// To a request that found the lock free.
    Asked,
    HandedOff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    Granted,
    TimedOut,
    /// The client left: its connection ended, or an operator unblocked it.
    Abandoned,
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Release,
    Extend,
}

impl Observer {
    pub const fn new() -> Self {
        Self {
            counters: Counters::ZERO,
            waits: Histogram::new(),
            holds: Histogram::new(),
            log: Log::new(),
            contention: Contention::new(),
            recent: Recent::new(),
            tries: Tries::new(),
            long_wait_millis: USUAL_LONG_WAIT_MILLIS,
            queue_full_noted: None,
            restored_noted: None,
            disconnected_noted: None,
            untimely: 0,
            #[cfg(test)]
            last_lost: None,
        }
    }

    /// Applies an operator's settings: the length of the log, and the shortest wait that is noted, in milliseconds (0:
    /// none is noted). Costs nothing if nothing changes.
    pub fn configure(&mut self, log_length: usize, long_wait_millis: u64) {
        self.log.resize(log_length);
        self.long_wait_millis = long_wait_millis;
    }

    /// Notes the outcome of a command that may change a lock, or of a grant to a waiter. Returns the events to
    /// publish, in this order.
    pub fn note(
        &mut self,
        name: Name<'_>,
        outcome: &Outcome<'_>,
        given: Given,
        now: Moment,
    ) -> [Option<Event>; 2] {
        match outcome {
            Outcome::Granted { grant, former, others } => {
                let event = match given {
                    Given::Asked => Event::Acquired,
                    Given::HandedOff => Event::HandedOff,
                };
                if let Some(former) = former {
                    self.recent.released(name.hash(), *former);
                }
                [self.granted(name, grant, given, *others, now), Some(event)]
            }
            Outcome::Again { fence_number, longer, .. } => {
                count(&mut self.counters.retries);
                self.lease_changed(name, Fence::new(*fence_number), *longer);
                [longer.map(|_| Event::Extended), None]
            }
            Outcome::Refused(owner) => {
                self.refused(name);
                // Its owner may wait next.
                self.tries.refused(name, owner.as_bytes());
                [None, None]
            }
            Outcome::Released { fence, .. } => {
                self.released(name, *fence, now);
                [Some(Event::Released), None]
            }
            Outcome::NotReleased(not_holder) => {
                [self.refusal(Refused::Release, name, not_holder, now), None]
            }
            Outcome::Extended { fence, deadline, .. } => {
                count(&mut self.counters.extends);
                self.lease_changed(name, *fence, Some(*deadline));
                [Some(Event::Extended), None]
            }
            Outcome::NotExtended(not_holder) => {
                [self.refusal(Refused::Extend, name, not_holder, now), None]
            }
            Outcome::Raise(Raised::To { former, fence, .. }) => {
                count(&mut self.counters.raises);
                self.untimely = self.untimely.max(fence.number());
                self.recent.raised(name.hash(), *former, *fence);
                [None, None]
            }
            Outcome::Raise(Raised::Already { .. } | Raised::NotHolder | Raised::TooFarAhead) => {
                [None, None]
            }
        }
    }

    /// Notes a hold that ended without a release while somebody waited for the lock.
    pub fn note_lost(&mut self, name: Name<'_>, lost: &Lost, now: Moment) -> Option<Event> {
        let Lost { owner, fence, deadline, by } = lost;
        // Older clients release their locks by deleting them, which looks the same.
        if fence.is_none() && *by != LostBy::RunningOut {
            return None;
        }
        #[cfg(test)]
        self.last_lost.replace(lost.clone());
        let noted = match by {
            LostBy::RunningOut => {
                count(&mut self.counters.expiries_with_waiters);
                if let Some(fence) = fence {
                    self.recent.ran_out(name.hash(), *fence);
                }
                return Some(Event::Lost);
            }
            LostBy::Deletion => Noted::Deleted,
            LostBy::Overwriting => Noted::Overwritten,
        };
        self.recent.lost(name.hash());
        let left = deadline.map(|deadline| deadline.millis_left(now));
        self.log.note(now, noted, name, owner, left);
        Some(Event::Lost)
    }

    pub fn note_restored(&mut self, name: Name<'_>, seen: &Seen, now: Moment) {
        count(&mut self.counters.evictions_restored);
        if is_seldom(&mut self.restored_noted, now) {
            let oldest = Holds::in_force(&seen.value, seen.deadline, now).next();
            let owner = oldest.map_or(&[][..], |hold| hold.owner);
            self.log.note(now, Noted::Restored, name, owner, Some(0));
        }
    }

    /// Notes that the module took back a grant that nobody had heard of.
    pub fn note_taken_back(&mut self, name: Name<'_>, fence: Fence) {
        self.recent.released(name.hash(), fence);
    }

    /// Notes how a hold ended, or was shortened, after its connection ended. `end` is when its lease would have ended.
    pub fn note_disconnected(
        &mut self,
        name: Name<'_>,
        outcome: &Outcome<'_>,
        owner: Owner<'_>,
        end: Option<Deadline>,
        now: Moment,
    ) -> Option<Event> {
        let event = match *outcome {
            Outcome::Released { fence } => {
                if let Some(fence) = fence {
                    self.recent.released(name.hash(), fence);
                }
                Event::Released
            }
            Outcome::Extended { fence, deadline } => {
                self.lease_changed(name, fence, Some(deadline));
                Event::Extended
            }
            _ => return None,
        };
        count(&mut self.counters.bindings_ended);
        if is_seldom(&mut self.disconnected_noted, now) {
            let left = end.map(|end| end.millis_left(now));
            self.log.note(now, Noted::Disconnected, name, owner.as_bytes(), left);
        }
        Some(event)
    }

    /// Notes that a lock was granted and its key written. The grant may show that the grant before it was lost.
    fn granted(
        &mut self,
        lock: Name<'_>,
        grant: &Grant<'_>,
        given: Given,
        others: OtherHolders,
        now: Moment,
    ) -> Option<Event> {
        count(&mut self.counters.grants);
        if given == Given::HandedOff {
            count(&mut self.counters.hand_offs);
        }
        let number = grant.fence.number();
        if number > now.micros().saturating_add(TIMELY_MICROS) {
            self.untimely = number;
        }
        let left_ms = self.recent.granted(lock.hash(), grant, others, now)?;
        // Only the owner's hash is known.
        self.log.note(now, Noted::Deleted, lock, b"", Some(left_ms));
        Some(Event::Lost)
    }

    /// Notes a request that does not wait, or cannot because its context does not allow it.
    pub fn refused(&mut self, lock: Name<'_>) {
        count(&mut self.counters.tries_refused);
        self.contention.refused(lock);
    }

    /// Notes that a wait began. `waiters` counts all waiters of this server, including this one.
    pub fn wait_started(&mut self, lock: Name<'_>, owner: &[u8], waiters: usize) {
        count(&mut self.counters.waits_started);
        if self.tries.wait_started(lock, owner) == Tried::Before {
            count(&mut self.counters.waits_started_after_try);
        }
        self.wait_on_connections(waiters);
        self.contention.wait_started(lock);
    }

    /// Notes how many clients wait on connections of this server.
    pub fn wait_on_connections(&mut self, waiters: usize) {
        let waiters = u64::try_from(waiters).unwrap_or(u64::MAX);
        self.counters.waiters_most = self.counters.waiters_most.max(waiters);
    }

    pub fn wait_ended(
        &mut self,
        lock: Name<'_>,
        owner: &[u8],
        waited_us: u64,
        end: WaitEnd,
        now: Moment,
    ) {
        count(match end {
            WaitEnd::Granted => &mut self.counters.waits_granted,
            WaitEnd::TimedOut => &mut self.counters.waits_timed_out,
            WaitEnd::Abandoned => &mut self.counters.waits_abandoned,
            WaitEnd::Refused => &mut self.counters.waits_refused,
        });
        // The wait continues elsewhere: in a newer request of the same owner, or on another server.
        if end == WaitEnd::Refused {
            return;
        }
        self.waits.record(waited_us);
        self.contention.wait_ended(lock, waited_us);
        let millis = waited_us / 1_000;
        if self.long_wait_millis > 0 && millis >= self.long_wait_millis {
            self.log.note(now, Noted::LongWait, lock, owner, Some(millis));
        }
    }

    pub fn queue_full(&mut self, lock: Name<'_>, owner: &[u8], now: Moment) {
        count(&mut self.counters.queue_full);
        self.contention.refused(lock);
        if is_seldom(&mut self.queue_full_noted, now) {
            self.log.note(now, Noted::QueueFull, lock, owner, Some(0));
        }
    }

    /// Notes that the holder released the lock. A foreign lock has no fence, and nothing is known of it.
    fn released(&mut self, lock: Name<'_>, fence: Option<Fence>, now: Moment) {
        count(&mut self.counters.releases);
        let Some(fence) = fence else { return };
        self.recent.released(lock.hash(), fence);
        // A fence is the time of its grant, unless the fence clock ran ahead. It may always run ahead a little: when
        // holds are shorter than the resolution of the server's clock.
        let is_timely = fence.number() <= now.micros().saturating_add(TIMELY_MICROS);
        if fence.number() > self.untimely && is_timely {
            self.holds.record(now.micros().saturating_sub(fence.number()));
        }
    }

    /// Forgets all grants: locks may have changed elsewhere, because this server became a replica or a primary, or
    /// loaded data.
    pub fn forget_grants(&mut self) {
        self.recent.forget();
    }

    /// Doubts the grants so far: locks have come from other servers, and some of them may have been here before.
    pub fn doubt_grants(&mut self) {
        self.recent.doubt();
    }

    fn lease_changed(&mut self, lock: Name<'_>, fence: Option<Fence>, deadline: Option<Deadline>) {
        if let (Some(fence), Some(deadline)) = (fence, deadline) {
            self.recent.extended(lock.hash(), fence, deadline);
        }
    }

    fn refusal(
        &mut self,
        refused: Refused,
        lock: Name<'_>,
        NotHolder { proof, is_held }: &NotHolder<'_>,
        now: Moment,
    ) -> Option<Event> {
        let counters = &mut self.counters;
        let (all, late, noted) = match refused {
            Refused::Release => {
                (&mut counters.releases_refused, &mut counters.releases_late, Noted::LateRelease)
            }
            Refused::Extend => {
                (&mut counters.extends_refused, &mut counters.extends_late, Noted::LateExtend)
            }
        };
        count(all);
        let (lateness, telling) = self.recent.lateness(lock.hash(), proof, now)?;
        let (noted, millis) = match lateness {
            Lateness::RanOut { by_ms } => {
                count(late);
                (noted, by_ms)
            }
            Lateness::Vanished { left_ms } if *is_held => (Noted::Overwritten, left_ms),
            Lateness::Vanished { left_ms } => (Noted::Deleted, left_ms),
        };
        if telling == Telling::Again {
            return None;
        }
        self.log.note(now, noted, lock, proof.owner.as_bytes(), Some(millis));
        (telling == Telling::First).then_some(Event::Lost)
    }
}

/// Whether to note such an event: at least a second after the last.
fn is_seldom(noted: &mut Option<Moment>, now: Moment) -> bool {
    let is_seldom =
        noted.is_none_or(|last| now.millis().abs_diff(last.millis()) >= MILLIS_BETWEEN_NOTES);
    if is_seldom {
        *noted = Some(now);
    }
    is_seldom
}

#[cfg(test)]
mod tests;
