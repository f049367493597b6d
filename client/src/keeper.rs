//! The task of a client on one runtime: it renews leases, sees them end, and releases them.
//!
//! ```text
//!   guards ──► orders ──► keeper ──► schedule: when to look at which lease next
//!                           └──────► work: requests that are under way, any number of them
//! ```
//!
//! What is held and what is being released is in the ledger, where all keepers of a client see it.

use crate::clock::{Moment, sleep_until};
use crate::dialect::Question;
use crate::guard::Slot;
use crate::home::Home;
use crate::lease::{Asking, Counted, Lease, Next, ONLY, released_in_time};
use crate::ledger::Ledger;
use crate::link::Left;
use crate::orders::{Abandoned, Attempt, HoldOn, Order, Release};
use crate::releases::Outcome;
use crate::schedule::Schedule;
use crate::unanswered::LONGEST_WAY;
use crate::validity::later;
use crate::wire::{Answer, Limits, Replicas, Wire};
use crate::{Error, Loss, Released, story};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;

/// When it is asked again for what may have been granted to somebody who is gone: the server hears of the end of a
/// connection and of this in either order.
const RELEASES_AFTER: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(500)];

/// How long a server may take at least to close a connection that is left.
const LEAVING: Duration = Duration::from_secs(5);

/// The same where the owner may come back: what is on its way would release a later grant.
const LEAVING_FOR_GOOD: Duration = LONGEST_WAY;

/// How often sentinels are asked again who is the primary.
const LOOK_EVERY: Duration = Duration::from_secs(1);

struct Keeper {
    orders: UnboundedReceiver<Order>,
    home: Home,
    ledger: Arc<Ledger>,
    wire: Arc<Wire>,
    within: Duration,
    leases: HashMap<u64, Kept>,
    schedule: Schedule,
    work: FuturesUnordered<BoxFuture<'static, Done>>,
}

struct Kept {
    lease: Arc<Lease>,
    /// A renewal is under way.
    renewing: bool,
}

enum Done {
    Renewed { id: u64, outcome: Result<(), Error> },
    Released { number: u64, outcome: Outcome },
    Looked,
}

/// The keeper is there before it runs: a runtime may end before that.
pub(crate) fn keep(
    orders: UnboundedReceiver<Order>,
    home: Home,
    ledger: Arc<Ledger>,
    wire: Arc<Wire>,
    within: Duration,
) -> impl Future<Output = ()> {
    let keeper = Keeper {
        orders,
        home,
        ledger,
        wire,
        within,
        leases: HashMap::new(),
        schedule: Schedule::default(),
        work: FuturesUnordered::new(),
    };
    keeper.run()
}

impl Keeper {
    async fn run(mut self) {
        let mut open = true;
        let mut look_at = self.wire.routes.is_watched().then(Moment::now);
        while open || !self.work.is_empty() {
            let first = self.schedule.first().into_iter().chain(look_at).min();
            let wake = async move {
                match first {
                    Some(first) => sleep_until(first).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                order = self.orders.recv(), if open => match order {
                    Some(order) => self.obey(order),
                    None => (open, look_at) = (false, None),
                },
                Some(done) = self.work.next(), if !self.work.is_empty() => self.finish(done),
                () = wake => {}
            }
            let now = Moment::now();
            if look_at.is_some_and(|look_at| now >= look_at) {
                look_at = Some(now.later(LOOK_EVERY));
                self.work.push(look_again(Arc::clone(&self.wire)));
            }
            while let Some(id) = self.schedule.pop(now) {
                self.look_at(id, now);
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Begin => {}
            Order::Answer(reply) => {
                // Nobody may wait for it any more.
                let _ = reply.send(());
            }
            Order::Keep(lease) => {
                self.schedule.set(lease.id, lease.next().at());
                self.leases.insert(lease.id, Kept { lease, renewing: false });
            }
            Order::LookAgain(id) => {
                if let Some(kept) = self.leases.get(&id) {
                    self.schedule.set(id, kept.lease.next().at());
                }
            }
            Order::Forget(id) => self.forget(id),
            Order::Release(release) => {
                self.forget(release.lease.id);
                let number = release.number;
                let released = carry_out(Arc::clone(&self.wire), release, self.within);
                self.work.push(numbered(number, released));
            }
            Order::Abandon { number, abandoned } => {
                let abandoned = abandon(Arc::clone(&self.wire), abandoned);
                self.work.push(numbered(number, abandoned));
            }
            Order::HoldOn { number, hold_on: held } => {
                let held_on = hold_on(Arc::clone(&self.wire), held, self.within);
                self.work.push(numbered(number, held_on));
            }
        }
    }

    fn finish(&mut self, done: Done) {
        let (id, outcome) = match done {
            Done::Released { number, outcome } => return self.ledger.end(number, outcome),
            Done::Looked => return,
            Done::Renewed { id, outcome } => (id, outcome),
        };
        let Some(kept) = self.leases.get_mut(&id) else { return };
        kept.renewing = false;
        let (lease, now) = (Arc::clone(&kept.lease), Moment::now());
        match outcome {
            Ok(()) if lease.ended().is_some() => self.forget(id),
            Ok(()) => self.schedule.set(id, lease.next().at()),
            // There may be time for another try.
            Err(_) => {
                let rest = lease.valid_for(now).checked_div(3).unwrap_or_default();
                let next = now.later(rest.max(Duration::from_millis(10)));
                self.schedule.set(id, next.min(lease.valid_until()));
            }
        }
    }

    fn look_at(&mut self, id: u64, now: Moment) {
        let Some(kept) = self.leases.get_mut(&id) else { return };
        let lease = Arc::clone(&kept.lease);
        if lease.ended().is_some() {
            return self.forget(id);
        }
        if now >= lease.valid_until() {
            return self.lose(&lease, Loss::Expired);
        }
        match lease.next() {
            Next::Renew { at } if at <= now => {
                self.schedule.set(id, lease.valid_until());
                if !kept.renewing {
                    kept.renewing = true;
                    self.work.push(renew(Arc::clone(&self.wire), lease));
                }
            }
            next => self.schedule.set(id, next.at()),
        }
    }

    fn lose(&mut self, lease: &Lease, loss: Loss) {
        self.forget(lease.id);
        if lease.end(loss) {
            story::lost(lease, loss);
        }
    }

    fn forget(&mut self, id: u64) {
        self.schedule.remove(id);
        self.leases.remove(&id);
    }
}

impl Drop for Keeper {
    /// The runtime ends.
    fn drop(&mut self) {
        self.orders.close();
        while let Ok(order) = self.orders.try_recv() {
            if let Order::Keep(lease) = order {
                self.leases.insert(lease.id, Kept { lease, renewing: false });
            }
        }
        let mut left = self.ledger.give_up(self.home);
        for kept in std::mem::take(&mut self.leases).into_values() {
            let lease = kept.lease;
            // Guards of other runtimes may share it.
            if lease.ended().is_none() && self.ledger.is_orphaned(lease.id, self.home) {
                left.push(lease.key.clone());
                self.lose(&lease, Loss::Expired);
            }
        }
        story::left_behind(left);
    }
}

fn look_again(wire: Arc<Wire>) -> BoxFuture<'static, Done> {
    Box::pin(async move {
        let looking = wire.routes.look_again(LOOK_EVERY);
        // Sentinels that do not answer change nothing.
        let _ = tokio::time::timeout(LOOK_EVERY, looking).await;
        Done::Looked
    })
}

fn renew(wire: Arc<Wire>, lease: Arc<Lease>) -> BoxFuture<'static, Done> {
    Box::pin(async move {
        let outcome = match lease.about_to_renew([ONLY], Moment::now()) {
            Some(asking) => extend(&wire, asking, None, None).await.map(drop),
            // Somebody else has extended it.
            None => Ok(()),
        };
        Done::Renewed { id: lease.id, outcome }
    })
}

/// Tries until the lease could have ended, or until then. None if the lease is over.
pub(crate) async fn extend(
    wire: &Wire,
    mut asking: Asking<'_>,
    replicas: Option<Replicas>,
    until: Option<Instant>,
) -> Result<Option<(Answer, Counted)>, Error> {
    let (lease, ttl) = (asking.lease, asking.ttl);
    let end = lease.valid_until().as_instant();
    let limits = wire.limits(ttl, Some(until.map_or(end, |until| until.min(end))));
    let question = Question::Extend { owner: &lease.owner, fence: lease.fence, ttl };
    let answer = tokio::select! {
        biased;
        // Another try would change for how long it is held on, and the next lease of the same
        // owner may have the same fence.
        () = lease.over.cancelled() => return Ok(None),
        answer = wire.ask_heard(&lease.key, question, replicas, limits) => answer?,
    };
    let now = Moment::now();
    // An earlier try of it may still be on its way.
    if !answer.repeated {
        asking.answered(ONLY, now);
    }
    let counted = match answer.number {
        Some(1) => asking.extended(answer.asked, now),
        _ => Counted::Over,
    };
    if counted != Counted::Over {
        story::extended(lease, now);
        return Ok(Some((answer, counted)));
    }
    let loss = if answer.number == Some(1) { Loss::Expired } else { Loss::Taken };
    if lease.end(loss) {
        story::lost(lease, loss);
    }
    Ok(None)
}

fn numbered(
    number: u64,
    release: impl Future<Output = Outcome> + Send + 'static,
) -> BoxFuture<'static, Done> {
    Box::pin(release.map(move |outcome| Done::Released { number, outcome }))
}

async fn carry_out(wire: Arc<Wire>, release: Release, within: Duration) -> Outcome {
    let Release { lease, slot, reply, attempt, .. } = release;
    let outcome = released(&wire, &lease, slot, attempt, within).await;
    if let Ok(outcome) = &outcome {
        story::released(&lease, *outcome);
    }
    let done = if outcome.is_ok() { Outcome::Done } else { Outcome::Failed };
    if let Some(reply) = reply {
        // Nobody may wait for it any more.
        let _ = reply.send(outcome);
    }
    done
}

async fn released(
    wire: &Wire,
    lease: &Lease,
    slot: Option<Arc<Slot>>,
    attempt: Attempt,
    within: Duration,
) -> Result<Released, Error> {
    let _place = match &slot {
        None => None,
        Some(slot) => {
            // A request of the same owner has it for as long as it waits. What that one is granted
            // after this lease is not to be released here.
            let Some(place) = before_the_end(lease, slot.place.lock()).await else {
                return Ok(Released::Late);
            };
            // The same owner asked again, and the server gave it the same grant.
            if place.upgrade().is_some_and(|hold| hold.holds(lease.fence)) {
                return Ok(Released::StillHeld);
            }
            // Whoever asks next for the same owner stands behind this.
            slot.ask_on(Home::here());
            Some(place)
        }
    };
    let valid_until = lease.valid_until();
    let until = later(Instant::now(), within).max(valid_until.as_instant());
    let Lease { owner, fence, .. } = lease;
    // The server frees it, also when this program has ended by then.
    let question = |now| match lease.hold_for(now) {
        Some(ttl) => Question::Extend { owner, fence: *fence, ttl },
        None => Question::Release { owner, fence: *fence },
    };
    if attempt == Attempt::Repeated {
        lease.release_again();
    }
    let answer = wire.ask_anew(&lease.key, question, wire.limits(within, Some(until))).await?;
    let answer = Answer { repeated: answer.repeated || lease.is_released_again(), ..answer };
    Ok(match (released_in_time(answer, valid_until), lease.hold_for(answer.asked)) {
        (false, _) => Released::Late,
        (true, None) => Released::Released,
        (true, Some(_)) => Released::Later,
    })
}

/// The server frees it then, also when this program has ended.
async fn hold_on(wire: Arc<Wire>, hold_on: HoldOn, within: Duration) -> Outcome {
    let HoldOn { key, owner, fence, until } = hold_on;
    let limits = wire.limits(within, Some(later(Instant::now(), within)));
    let question = |now| Question::Extend { owner: &owner, fence, ttl: until.since(now) };
    match wire.ask_anew(&key, question, limits).await {
        Ok(_) => Outcome::Done,
        Err(_) => Outcome::Failed,
    }
}

/// None when the lease is over, unless it comes at once.
async fn before_the_end<T>(lease: &Lease, expected: impl Future<Output = T>) -> Option<T> {
    let end = match lease.ended() {
        Some(Loss::Expired | Loss::Taken) => Moment::now(),
        _ => lease.valid_until(),
    };
    tokio::select! {
        biased;
        came = expected => Some(came),
        () = sleep_until(end) => None,
    }
}

async fn abandon(wire: Arc<Wire>, abandoned: Abandoned) -> Outcome {
    let Abandoned { key, owner, ttl, place, parked } = abandoned;
    let question = Question::ReleaseAny { owner: &owner };
    let left = match parked {
        Some(parked) => {
            let limit = if place.is_some() { LEAVING_FOR_GOOD } else { ttl.max(LEAVING) };
            parked.link.leave(&key, question, limit).await
        }
        None => Left::Unknown,
    };
    let mut outcome = Outcome::Failed;
    // One release is enough where nothing can come after it. An owner that the caller chose may come
    // back at any time: it is kept from that for one release.
    let is_once = place.is_some() || left == Left::NothingComes;
    let times = if is_once { 1 } else { RELEASES_AFTER.len() };
    for rest in RELEASES_AFTER.into_iter().take(times) {
        sleep(rest).await;
        let limits = wire.limits(ttl, Some(later(Instant::now(), ttl)));
        let answer = match place {
            Some(_) => release_by_fence(&wire, &key, &owner, limits).await,
            None => wire.ask(&key, question, limits).await.map(|answer| answer.number),
        };
        outcome = if answer.is_ok() { Outcome::Done } else { Outcome::Failed };
        if answer.is_ok_and(|number| number == Some(1)) {
            break;
        }
    }
    drop(place);
    outcome
}

/// Of an owner that may come back: a try that reaches the server late, after another one was
/// answered, must not release what the owner was granted meanwhile. That has another fence.
async fn release_by_fence(
    wire: &Wire,
    key: &str,
    owner: &str,
    limits: Limits,
) -> Result<Option<u64>, Error> {
    let question = match wire.fence_of(key, owner, limits).await? {
        Some(None) => return Ok(None),
        Some(Some(fence)) => Question::Release { owner, fence },
        None => Question::ReleaseAny { owner },
    };
    wire.ask(key, question, limits).await.map(|answer| answer.number)
}
