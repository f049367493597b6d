//! How a lock is asked for: over the shared connection at first, and then in the server's queue. Where there is no queue, it is
//! asked for again and again.

use crate::backoff::{Backoff, POLL, ROOM};
use crate::clock::Moment;
use crate::dialect::{Dialect, Question};
use crate::home::Home;
use crate::locks::{Inner, new_uuid};
use crate::orders::Abandoned;
use crate::pending::Pending;
use crate::queue::{Queue, Waited};
use crate::request::Wanted;
use crate::same_owner::{Slot, Unreleased};
use crate::tickets::Tickets;
use crate::validity::{is_fresh, later};
use crate::wire::{Answer, Limits};
use crate::{Error, Settings, Waiting};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout_at};
use tokio_util::sync::CancellationToken;

/// How often whoever stands behind another request of its owner looks whether the server answers at all.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What the server said to a request, when.
pub(crate) struct Granted {
    pub(crate) fence: u64,
    pub(crate) asked: Moment,
    /// It ends with the connection whose end fires this.
    pub(crate) connection: Option<CancellationToken>,
}

impl Inner {
    /// Asks until it is granted, or patience has ended.
    ///
    /// Requests are in boxes, which are gone while it waits: there may be many that wait.
    pub(crate) async fn granted(
        &self,
        name: &str,
        pending: &mut Pending,
        wanted: &Wanted,
        until: Option<Instant>,
    ) -> Result<Option<Granted>, Error> {
        if wanted.wait == Some(Duration::ZERO) {
            let trying = later(Instant::now(), self.settings.within);
            return Box::pin(self.ask(name, pending, wanted, trying)).await;
        }
        let key = pending.key.clone();
        let begun = Instant::now();
        let (mut entering, mut place) = (pin!(self.room.enter()), None);
        let mut by_ticket = self.settings.waiting == Waiting::Tickets;
        let mut ask = !(by_ticket && self.crowd.expects_to_wait());
        let mut tries = 0_u32;
        loop {
            if ask || self.wire.dialect() == Dialect::Plain {
                let trying = self.trying(&key, begun, until);
                let granted = Box::pin(self.ask(name, pending, wanted, trying)).await?;
                self.crowd.note(granted.is_none());
                if granted.is_some() {
                    return Ok(granted);
                }
            }
            ask = true;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let rest = |backoff: Backoff| {
                let rest = backoff.random_rest(tries);
                sleep(left.map_or(rest, |left| rest.min(left)))
            };
            if self.wire.dialect() == Dialect::Plain {
                rest(POLL).await;
                tries = tries.saturating_add(1);
                continue;
            }
            if place.is_none() && !by_ticket {
                // The lock may become free while others wait for other locks on all connections there may be.
                tokio::select! {
                    biased;
                    entered = &mut entering => place = Some(entered),
                    () = rest(ROOM) => {
                        tries = tries.saturating_add(1);
                        continue;
                    }
                }
            }
            let ttl = pending.ttl;
            let waited = match by_ticket {
                true => self.wait_by_ticket(pending, wanted, until).await?,
                false => {
                    pending.stray.sending();
                    Box::pin(self.wait(pending, wanted, until)).await?
                }
            };
            match waited {
                Waited::Granted { fence, asked, ended }
                    if wanted.replicas.is_none()
                        && (wanted.grace.is_none() || ended.is_some())
                        && is_fresh(asked, ttl, Moment::now()) =>
                {
                    let connection = ended.filter(|_| wanted.grace.is_some());
                    return Ok(Some(Granted { fence, asked, connection }));
                }
                Waited::NoTickets => (by_ticket, ask) = (false, false),
                // Asked once more, it tells how much of the lease is left, or that it is over.
                Waited::Granted { .. } | Waited::NoQueue => {}
                Waited::Over => {
                    pending.stray.known();
                    return Ok(None);
                }
                Waited::Unanswered => return Ok(None),
                Waited::Gone => self.give_up(pending, wanted),
                Waited::Crowded => {
                    pending.stray.known();
                    rest(ROOM).await;
                    tries = tries.saturating_add(1);
                }
            }
        }
    }

    /// Asks whether it is to be had now.
    async fn ask(
        &self,
        name: &str,
        pending: &mut Pending,
        wanted: &Wanted,
        trying: Instant,
    ) -> Result<Option<Granted>, Error> {
        let limits = self.wire.limits(pending.ttl, Some(trying));
        if wanted.replicas.is_none() && wanted.grace.is_some() {
            return self.bind(pending, wanted, limits).await;
        }
        let question = pending.question(None);
        let Pending { key, stray, .. } = &*pending;
        let asked = self.wire.ask_noting(key, question, wanted.replicas, limits, stray);
        let answer = asked.await?;
        let Some(fence) = answer.number else {
            pending.stray.known();
            return Ok(None);
        };
        self.check_heard(name, pending, wanted, answer, limits).await?;
        if wanted.grace.is_some() {
            // That connection is not the one that is to end with it.
            return self.bind(pending, wanted, limits).await;
        }
        Ok(Some(Granted { fence, asked: answer.asked, connection: None }))
    }

    async fn bind(
        &self,
        pending: &mut Pending,
        wanted: &Wanted,
        limits: Limits,
    ) -> Result<Option<Granted>, Error> {
        let question = pending.question(wanted.grace);
        let (answer, connection) =
            self.wire.bind(&pending.key, question, limits, Some(&pending.stray)).await?;
        let Some(fence) = answer.number else {
            pending.stray.known();
            return Ok(None);
        };
        Ok(Some(Granted { fence, asked: answer.asked, connection: Some(connection) }))
    }

    /// Until when to go on trying if no server answers. Whoever has waited while none did tries once.
    fn trying(&self, key: &str, begun: Instant, until: Option<Instant>) -> Instant {
        let now = Instant::now();
        if self.is_given_up(key, begun) {
            return now;
        }
        let longest = later(now, self.settings.unreachable_after);
        until.map_or(longest, |until| until.min(longest))
    }

    /// The server has been failing for as long as anybody waits for that, and so long has this request waited.
    fn is_given_up(&self, key: &str, begun: Instant) -> bool {
        let limit = self.settings.unreachable_after;
        begun.elapsed() >= limit && self.wire.failing_for(key).is_some_and(|since| since >= limit)
    }

    /// Waits for the request of the same owner that came before.
    pub(crate) async fn stand<T>(
        &self,
        until: Option<Instant>,
        key: &str,
        expected: impl Future<Output = T>,
    ) -> Result<Option<T>, Error> {
        let (begun, mut expected) = (Instant::now(), pin!(expected));
        loop {
            let look_at = later(Instant::now(), LOOK_EVERY);
            let wake = until.map_or(look_at, |until| until.min(look_at));
            if let Ok(came) = timeout_at(wake.into(), expected.as_mut()).await {
                return Ok(Some(came));
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
            if self.is_given_up(key, begun) {
                let reason = format!("no answer for {} ms", begun.elapsed().as_millis());
                return Err(Error::Unreachable { reason });
            }
        }
    }

    /// Ends when the request that has the place is on a runtime that nobody has driven for as long
    /// as a server may be silent.
    pub(crate) async fn stands_still(&self, slot: &Slot) -> Error {
        let mut since = None;
        loop {
            sleep(LOOK_EVERY).await;
            let is_driven = match slot.taken_on() {
                Some(home) if home != Home::here() => self.orders.is_driven(home, LOOK_EVERY).await,
                _ => true,
            };
            if is_driven {
                since = None;
            } else if since.get_or_insert_with(Instant::now).elapsed()
                >= self.settings.unreachable_after
            {
                let reason = "a request of the same owner is under way on a runtime that nobody \
                              drives: drive it, or use another owner";
                return Error::Unreachable { reason: reason.to_owned() };
            }
        }
    }

    /// The release of the last grant of this owner may not have arrived yet. Once the server has
    /// answered one, another that arrives late releases nothing.
    pub(crate) async fn release_the_last(
        &self,
        slot: &Slot,
        key: &str,
        owner: &str,
        wanted: &Wanted,
        until: Option<Instant>,
    ) -> Result<(), Error> {
        let Some(Unreleased { fence, lease, .. }) = slot.unreleased() else { return Ok(()) };
        let begun = Instant::now();
        let trying = match wanted.wait {
            Some(Duration::ZERO) => later(begun, self.settings.within),
            _ => self.trying(key, begun, until),
        };
        let limits = self.wire.limits(wanted.ttl, Some(trying));
        let answer = match lease {
            Some(lease) => lease.release(&self.wire, limits).await,
            None => self.wire.ask(key, Question::Release { owner, fence }, limits).await,
        };
        match answer {
            // A server that refuses this has refused the others.
            Ok(_) | Err(Error::Refused { .. }) => slot.released(fence),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The server does not know of the request that was made on this connection, and it may still be
    /// on its way there. An owner that was made up is not used again, and is released behind it. One
    /// that was chosen asks again: it would be told the same grant twice.
    fn give_up(&self, pending: &mut Pending, wanted: &Wanted) {
        let Some(parked) = pending.parked.take() else { return };
        if wanted.owner.is_some() {
            return;
        }
        let owner = std::mem::replace(&mut pending.owner, new_uuid().to_string());
        let (key, ttl, parked) = (pending.key.clone(), pending.ttl, Some(Box::new(parked)));
        let (share, place, asked_on) = (pending.share, None, None);
        let (also, stray) = (pending.also.clone(), pending.stray.take());
        let abandoned = Abandoned { key, also, owner, share, ttl, place, parked, asked_on, stray };
        self.orders.abandon(abandoned, pending.home);
    }

    async fn wait_by_ticket(
        &self,
        pending: &Pending,
        wanted: &Wanted,
        until: Option<Instant>,
    ) -> Result<Waited, Error> {
        let Settings { slice, unreachable_after, .. } = self.settings;
        let tickets = Tickets {
            wire: &self.wire,
            crowd: &self.crowd,
            key: &pending.key,
            also: &pending.also,
            owner: &pending.owner,
            share: pending.share,
            ttl: ttl_to_wait(pending.ttl, wanted),
            grace: wanted.grace,
            slice,
            each: self.wire.limits(pending.ttl, None).each,
            until,
            unreachable_after,
            is_chosen: wanted.owner.is_some(),
            asked_on: &pending.asked_on,
            stray: &pending.stray,
        };
        tickets.wait().await
    }

    async fn wait(
        &self,
        pending: &mut Pending,
        wanted: &Wanted,
        until: Option<Instant>,
    ) -> Result<Waited, Error> {
        let Pending { key, also, owner, share, ttl, parked, .. } = pending;
        let each = self.wire.limits(*ttl, None).each;
        let ttl = ttl_to_wait(*ttl, wanted);
        let Settings { slice, unreachable_after, .. } = self.settings;
        let (wire, room) = (&self.wire, &self.room);
        let share = *share;
        let queue = Queue {
            wire,
            room,
            key,
            also,
            owner,
            share,
            ttl,
            slice,
            each,
            until,
            unreachable_after,
        };
        queue.wait(parked).await
    }

    /// Releases what too few replicas have heard of.
    async fn check_heard(
        &self,
        name: &str,
        pending: &Pending,
        wanted: &Wanted,
        answer: Answer,
        limits: Limits,
    ) -> Result<(), Error> {
        let Some(replicas) = wanted.replicas.filter(|replicas| answer.heard < replicas.count)
        else {
            return Ok(());
        };
        let (owner, fence) = (&pending.owner, answer.number.unwrap_or_default());
        let question = Question::Release { owner, fence };
        let until = Some(later(Instant::now(), self.settings.within));
        // If that fails it is tried again in the background.
        let _ = self.wire.ask(&pending.key, question, Limits { until, ..limits }).await;
        Err(Error::TooFewReplicas {
            name: name.to_owned(),
            acknowledged: answer.heard,
            wanted: replicas.count,
        })
    }
}

/// A grant that replicas must hear of is asked for once more, and what changes nothing is not replicated.
fn ttl_to_wait(ttl: Duration, wanted: &Wanted) -> Duration {
    let less = Duration::from_millis(1);
    if wanted.replicas.is_some() { ttl.saturating_sub(less).max(less) } else { ttl }
}
