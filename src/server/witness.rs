//! Tells of what happened: to the observer, from which operators hear, and to those who listen to key events.
//!
//! After the fact, and with no say in it. Events have names of their own (see [`Event`]) and the class of
//! modules, so that whoever does not ask for `d` or `A` in `notify-keyspace-events` pays next to nothing.

use super::api::api;
use super::clock;
use super::state::STATE;
use leasehold_core::lock::{
    Deadline, Fence, Grant, Hold, LostBy, Moment, Monotonic, Now, Proof, Seen, Stored,
};
use leasehold_core::observe::{Event, Given, Lock, Loss, WaitEnd};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};

/// What a request came to.
#[derive(Debug)]
pub(super) enum Happened<'r> {
    Granted(Grant<'r>),
    /// The holder asked again; its lease may have become longer.
    Again {
        longer: Option<Deadline>,
    },
    /// Nothing, and nobody waits on.
    Refused,
    /// Nothing yet.
    Waits,
    Released,
    NotReleased(Proof<'r>),
    Extended(Deadline),
    NotExtended(Proof<'r>),
    /// The grant has this fence now.
    Raised(Fence),
    /// The holder was told its fence, and nothing changed.
    Confirmed,
    NotRaised,
}

impl Happened<'_> {
    /// Whether the client is told that it is the holder, by the grant that the key held before.
    pub(super) fn confirms(&self) -> bool {
        matches!(self, Self::Again { .. } | Self::Extended(_) | Self::Raised(_) | Self::Confirmed)
    }
}

/// One lock, at one moment.
#[derive(Clone, Copy)]
pub(super) struct Witness<'k> {
    pub(super) ctx: *mut RedisModuleCtx,
    pub(super) name: *mut RedisModuleString,
    /// In the database that is selected.
    pub(super) lock: Lock<'k>,
    pub(super) now: Moment,
}

impl Witness<'_> {
    /// Of a request that changes nothing, and of what the key holds.
    pub(super) fn refusal(&self, happened: &Happened<'_>, stored: Stored<'_>) {
        let Self { lock, now, .. } = *self;
        let loss = STATE.with_observer(|observer| match happened {
            Happened::NotReleased(proof) => observer.release_refused(lock, proof, stored, now),
            Happened::NotExtended(proof) => observer.extend_refused(lock, proof, stored, now),
            Happened::Refused => {
                observer.refused(lock);
                None
            }
            _ => None,
        });
        self.publish_loss(loss);
    }

    /// Of a request, when it has been carried out; `fence` is that of the hold there was before.
    pub(super) fn command(&self, happened: &Happened<'_>, fence: Option<Fence>) {
        let Self { lock, now, .. } = *self;
        match happened {
            Happened::Granted(grant) => self.grant(grant, Given::Asked),
            Happened::Again { longer } => {
                STATE.with_observer(|observer| observer.retried(lock, fence, *longer));
                if longer.is_some() {
                    self.publish(Event::Extended);
                }
            }
            Happened::Released => {
                STATE.with_observer(|observer| observer.released(lock, fence, now));
                self.publish(Event::Released);
            }
            Happened::Extended(deadline) => {
                STATE.with_observer(|observer| observer.extended(lock, fence, *deadline));
                self.publish(Event::Extended);
            }
            Happened::Raised(raised) => {
                STATE.with_observer(|observer| observer.raised(lock, fence, *raised));
            }
            Happened::Refused
            | Happened::Confirmed
            | Happened::NotRaised
            | Happened::Waits
            | Happened::NotReleased(_)
            | Happened::NotExtended(_) => {}
        }
    }

    pub(super) fn grant(&self, grant: &Grant<'_>, given: Given) {
        let Self { lock, now, .. } = *self;
        self.publish_loss(
            STATE.with_observer(|observer| observer.granted(lock, grant, given, now)),
        );
        self.publish(match given {
            Given::Asked => Event::Acquired,
            Given::HandedOff => Event::HandedOff,
        });
    }

    /// A hold is over that somebody waited to be over, and nobody released it.
    pub(super) fn lost(&self, seen: &Seen, by: LostBy) {
        let Self { lock, now, .. } = *self;
        let Hold { owner, fence, deadline } = Hold::read(&seen.value, seen.deadline);
        // Older clients release their locks by deleting them, and nobody can tell.
        if fence.is_none() && by != LostBy::RunningOut {
            return;
        }
        STATE.with_observer(|observer| match by {
            LostBy::RunningOut => observer.expired_with_waiters(lock, fence),
            LostBy::Deletion => observer.deleted(lock, owner, deadline, now),
            LostBy::Overwriting => observer.overwritten(lock, owner, deadline, now),
        });
        self.publish(Event::Lost);
    }

    pub(super) fn restored(&self, seen: &Seen) {
        let owner = Hold::read(&seen.value, None).owner;
        STATE.with_observer(|observer| observer.restored(self.lock, owner, self.now));
    }

    pub(super) fn taken_back(&self, fence: Fence) {
        STATE.with_observer(|observer| observer.taken_back(self.lock, fence));
        self.publish(Event::Released);
    }

    fn publish_loss(&self, loss: Option<Loss>) {
        if loss.is_some() {
            self.publish(Event::Lost);
        }
    }

    fn publish(&self, event: Event) {
        // SAFETY: context and key belong together; the event is a C string. The server looks whether anybody
        // listens before it builds a message.
        unsafe {
            api!(RedisModule_NotifyKeyspaceEvent)(
                self.ctx,
                raw::REDISMODULE_NOTIFY_MODULE,
                event.name().as_ptr(),
                self.name,
            )
        };
    }
}

/// The fence of what the key holds, whether or not its lease has run out.
pub(super) fn fence_of(stored: Stored<'_>) -> Option<Fence> {
    stored.seen().and_then(|(value, _)| Hold::read(value, None).fence)
}

/// A client does not wait any more.
pub(super) fn wait_ended(lock: Lock<'_>, owner: &[u8], since: Monotonic, end: WaitEnd) {
    let Now { wall, monotonic } = clock::both();
    let waited_us = monotonic.micros_since(since);
    STATE.with_observer(|observer| observer.wait_ended(lock, owner, waited_us, end, wall));
}
