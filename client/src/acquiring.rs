//! How a lock is asked for: over the shared connection at first, then behind the others of this process who want it, and
//! then in the server's queue. Where there is no queue, it is asked for again and again.

use crate::backoff::{Backoff, POLL, ROOM};
use crate::clock::Moment;
use crate::dialect::{Dialect, Question};
use crate::locks::Inner;
use crate::pending::Pending;
use crate::queue::{Queue, Waited};
use crate::request::Wanted;
use crate::validity::{is_fresh, later};
use crate::wire::{Answer, Limits};
use crate::{Error, Settings};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout_at};

/// What the server said to a request, when.
pub(crate) struct Granted {
    pub(crate) fence: u64,
    pub(crate) asked: Moment,
}

impl Inner {
    /// Asks until it is granted, or patience has ended.
    pub(crate) async fn granted(
        &self,
        name: &str,
        pending: &mut Pending,
        wanted: &Wanted,
        until: Option<Instant>,
    ) -> Result<Option<Granted>, Error> {
        if wanted.wait == Some(Duration::ZERO) {
            let trying = later(Instant::now(), self.settings.within);
            return self.ask(name, pending, wanted, trying).await;
        }
        let key = pending.key.clone();
        let first = self.lines.enter_at_once(&key);
        let mut ask = first.is_some();
        // Those of this process who came before are served before.
        let _first = match first {
            Some(first) => first,
            None => {
                // But whoever shares the owner of the holder need not wait for anybody.
                if wanted.owner.is_some()
                    && let Some(granted) =
                        self.ask(name, pending, wanted, self.trying(until)).await?
                {
                    return Ok(Some(granted));
                }
                match by(until, self.lines.enter(&key)).await {
                    Some(first) => first,
                    None => return Ok(None),
                }
            }
        };
        let (mut entering, mut place) = (pin!(self.room.enter()), None);
        let mut tries = 0_u32;
        loop {
            if (ask || self.wire.dialect() == Dialect::Plain)
                && let Some(granted) = self.ask(name, pending, wanted, self.trying(until)).await?
            {
                return Ok(Some(granted));
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
            if place.is_none() {
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
            pending.unknown = true;
            let ttl = pending.ttl;
            match self.wait(pending, wanted, until).await? {
                Waited::Granted { fence, asked }
                    if wanted.replicas.is_none() && is_fresh(asked, ttl, Moment::now()) =>
                {
                    return Ok(Some(Granted { fence, asked }));
                }
                // Asked once more, it tells how much of the lease is left, or that it is over.
                Waited::Granted { .. } | Waited::NoQueue => {}
                Waited::Over => {
                    pending.unknown = false;
                    return Ok(None);
                }
                Waited::Unanswered => return Ok(None),
                Waited::Crowded => {
                    pending.unknown = false;
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
        pending.unknown = true;
        let limits = self.wire.limits(pending.ttl, Some(trying));
        let question = Question::Acquire { owner: &pending.owner, ttl: pending.ttl };
        let asked = self.wire.ask_heard(&pending.key, question, wanted.replicas, limits);
        let answer = asked.await?;
        let Some(fence) = answer.number else {
            pending.unknown = false;
            return Ok(None);
        };
        self.check_heard(name, pending, wanted, answer, limits).await?;
        Ok(Some(Granted { fence, asked: answer.asked }))
    }

    /// Until when to go on trying if no server answers.
    fn trying(&self, until: Option<Instant>) -> Instant {
        let longest = later(Instant::now(), self.settings.unreachable_after);
        until.map_or(longest, |until| until.min(longest))
    }

    async fn wait(
        &self,
        pending: &mut Pending,
        wanted: &Wanted,
        until: Option<Instant>,
    ) -> Result<Waited, Error> {
        let Pending { key, owner, ttl, parked, .. } = pending;
        let each = self.wire.limits(*ttl, None).each;
        // A grant that replicas must hear of is asked for once more, and what changes nothing is not replicated.
        let less = Duration::from_millis(1);
        let ttl = if wanted.replicas.is_some() { ttl.saturating_sub(less).max(less) } else { *ttl };
        let Settings { slice, unreachable_after, .. } = self.settings;
        let (wire, room) = (&self.wire, &self.room);
        let queue = Queue { wire, room, key, owner, ttl, slice, each, until, unreachable_after };
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
        let question = Question::ReleaseAny { owner: &pending.owner };
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

/// What comes of it before that moment.
async fn by<T>(until: Option<Instant>, expected: impl Future<Output = T>) -> Option<T> {
    match until {
        Some(until) => timeout_at(until.into(), expected).await.ok(),
        None => Some(expected.await),
    }
}
