//! The task of a client on one runtime: it renews leases, sees them end, and releases them.
//!
//! ```text
//!   guards ──► orders ──► keeper ──► schedule: when to look at which lease next
//!                           └──────► work: requests that are under way, any number of them
//! ```
//!
//! What is held and what is being released is in the ledger, where all keepers of a client see it.

use crate::calls::{Calls, Open};
use crate::clock::{Moment, sleep_until};
use crate::dialect::Question;
use crate::home::Home;
use crate::lease::{Asking, Counted, Lease, Next, ONLY, released_in_time};
use crate::ledger::{Ledger, Task};
use crate::orders::{HoldOn, Order};
use crate::poison::locked;
use crate::releases::Outcome;
use crate::schedule::Schedule;
use crate::validity::later;
use crate::wire::{Answer, Limits, Replicas, Wire};
use crate::{Error, Loss, Released, story};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;

/// How often sentinels are asked again who is the primary.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The shortest lease there is.
const SHORTEST: Duration = Duration::from_millis(1);

mod abandoning;
mod binding;

use abandoning::abandon;

pub(crate) struct Keeper {
    orders: UnboundedReceiver<Order>,
    calls: Arc<Calls>,
    home: Home,
    ledger: Arc<Ledger>,
    wire: Arc<Wire>,
    within: Duration,
    leases: HashMap<u64, Kept>,
    schedule: Schedule,
    /// When to look whether others need help with their releases.
    help_at: Option<Moment>,
    work: FuturesUnordered<BoxFuture<'static, Done>>,
}

struct Kept {
    lease: Arc<Lease>,
    /// A renewal is under way.
    renewing: bool,
}

enum Done {
    Renewed {
        id: u64,
        outcome: Result<(), Error>,
    },
    Released {
        number: u64,
        came: Result<Released, Error>,
    },
    /// That of what may have been granted, or of a quorum.
    Ended {
        number: u64,
        outcome: Outcome,
    },
    Looked,
    /// The connection has ended that it was bound to.
    Unbound {
        id: u64,
    },
    /// It is bound to another one, or over.
    Bound {
        id: u64,
    },
}

impl Keeper {
    /// It is there before it runs: a runtime may end before that.
    pub(crate) fn new(
        orders: UnboundedReceiver<Order>,
        home: Home,
        ledger: Arc<Ledger>,
        wire: Arc<Wire>,
        within: Duration,
    ) -> Self {
        let calls = Arc::<Calls>::default();
        ledger.introduce(home, Arc::clone(&calls));
        Self {
            orders,
            calls,
            home,
            ledger,
            wire,
            within,
            leases: HashMap::new(),
            schedule: Schedule::default(),
            // Runtimes that have ended may have left some.
            help_at: Some(Moment::now()),
            work: FuturesUnordered::new(),
        }
    }

    pub(crate) async fn run(mut self) {
        let mut open = true;
        let calls = Arc::clone(&self.calls);
        let mut look_at = self.wire.routes.is_watched().then(Moment::now);
        while open || !self.work.is_empty() || self.help_at.is_some() {
            let first = self.schedule.first().into_iter().chain(look_at).chain(self.help_at).min();
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
                () = calls.heard() => {}
                Some(done) = self.work.next(), if !self.work.is_empty() => self.finish(done),
                () = wake => {}
            }
            let now = Moment::now();
            self.answer(calls.take(), now);
            if look_at.is_some_and(|look_at| now >= look_at) {
                look_at = Some(now.later(LOOK_EVERY));
                self.work.push(look_again(Arc::clone(&self.wire)));
            }
            while let Some(id) = self.schedule.pop(now) {
                self.look_at(id, now);
            }
        }
    }

    fn answer(&mut self, called: Open, now: Moment) {
        for id in called.look_again {
            if let Some(kept) = self.leases.get(&id) {
                self.schedule.set(id, kept.lease.next().at());
            }
        }
        self.help_at = self.help_at.into_iter().chain(called.help_at).min();
        if self.help_at.is_some_and(|help_at| now >= help_at) {
            let (tasks, help_at) = self.ledger.take_of_others(self.home);
            self.help_at = help_at;
            tasks.into_iter().for_each(|task| self.release(task));
        }
    }

    fn release(&mut self, task: Task) {
        self.forget(task.lease.id);
        let (wire, ledger) = (Arc::clone(&self.wire), Arc::clone(&self.ledger));
        let (number, released) = (task.number, released(wire, ledger, task, self.within));
        self.work.push(Box::pin(released.map(move |came| Done::Released { number, came })));
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Begin => {}
            Order::Keep(lease) => {
                self.schedule.set(lease.id, lease.next().at());
                self.work.extend(binding::until_unbound(&lease));
                self.leases.insert(lease.id, Kept { lease, renewing: false });
            }
            Order::Forget(id) => self.forget(id),
            Order::Release(number) => {
                if let Some(task) = self.ledger.take(number, self.home) {
                    self.release(task);
                }
            }
            Order::Abandon { number, abandoned } => {
                let abandoned = abandon(Arc::clone(&self.wire), *abandoned);
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
            Done::Released { number, came } => return self.ledger.released(number, came),
            Done::Ended { number, outcome } => return self.ledger.end(number, outcome),
            Done::Looked => return,
            Done::Unbound { id } => return self.bind_again(id),
            Done::Bound { id } => {
                if let Some(kept) = self.leases.get(&id) {
                    self.schedule.set(id, kept.lease.next().at());
                    self.work.extend(binding::until_unbound(&kept.lease));
                }
                return;
            }
            Done::Renewed { id, outcome } => (id, outcome),
        };
        let Some(kept) = self.leases.get_mut(&id) else { return };
        kept.renewing = false;
        let (lease, now) = (Arc::clone(&kept.lease), Moment::now());
        match outcome {
            Ok(()) if lease.ended().is_some() || lease.is_superseded() => self.forget(id),
            Ok(()) => self.schedule.set(id, lease.next().at()),
            Err(_) => {
                let next = now.later(lease.retry_after(now)).min(lease.valid_until());
                self.schedule.set(id, next);
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

    fn bind_again(&mut self, id: u64) {
        let Some(kept) = self.leases.get(&id) else { return };
        let lease = Arc::clone(&kept.lease);
        lease.cut(Moment::now());
        self.schedule.set(id, lease.next().at());
        self.work.push(binding::bind_again(Arc::clone(&self.wire), lease));
    }

    fn lose(&mut self, lease: &Lease, loss: Loss) {
        self.forget(lease.id);
        lease.lose(loss);
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
        let (orphans, mut left) = self.ledger.keeper_has_ended(self.home);
        for lease in orphans {
            left.push(lease.key.clone());
            self.lose(&lease, Loss::Expired);
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
    let counted = match answer.number {
        Some(1) => asking.extended(answer.asked, now),
        _ => Counted::Over,
    };
    // An earlier try of it may still be on its way.
    if !answer.repeated {
        asking.answered(ONLY, now);
    }
    if counted != Counted::Over {
        story::extended(lease, now);
        return Ok(Some((answer, counted)));
    }
    let loss = if answer.number == Some(1) { Loss::Expired } else { Loss::Taken };
    lease.lose(loss);
    Ok(None)
}

fn numbered(
    number: u64,
    release: impl Future<Output = Outcome> + Send + 'static,
) -> BoxFuture<'static, Done> {
    Box::pin(release.map(move |outcome| Done::Ended { number, outcome }))
}

async fn released(
    wire: Arc<Wire>,
    ledger: Arc<Ledger>,
    task: Task,
    within: Duration,
) -> Result<Released, Error> {
    let Task { number, lease, slot } = task;
    let mut place = None;
    if let Some(slot) = &slot {
        // A request of the same owner has it for as long as it waits. What that one is granted
        // after this lease is not to be released here.
        let Some(taken) = before_the_end(&lease, slot.take()).await else {
            return Ok(Released::Late);
        };
        // Another keeper was faster.
        if !ledger.is_open(number) {
            return Ok(Released::StillHeld);
        }
        place = Some(taken);
    }
    // The same owner asked again, and the server gave it the same grant, which may have been kept or
    // released since.
    if lease.is_superseded() {
        return Ok(Released::StillHeld);
    }
    let valid_until = lease.valid_until();
    let until = later(Instant::now(), within).max(valid_until.as_instant());
    let limits = wire.limits(within, Some(until));
    if let Some(rest) = lease.hold_for(Moment::now()) {
        let until = until.min(later(Instant::now(), rest));
        let limits = wire.limits(within, Some(until));
        if let Some(answer) = hold_for_the_rest(&wire, &lease, limits).await? {
            let is_in_time = released_in_time(answer, valid_until);
            return Ok(if is_in_time { Released::Later } else { Released::Late });
        }
    }
    if let Some(slot) = &slot {
        // Whoever asks next for the same owner need not wait for the answer: it asks for the
        // release itself.
        let until = Moment::now().later(within).max(valid_until);
        slot.about_to_release(lease.fence, Some(Arc::clone(&lease)), until);
        drop(place);
    }
    let answer = lease.release(&wire, limits).await?;
    lease.stray.release(&lease.key, &lease.owner, &[]);
    if let Some(slot) = &slot {
        slot.released(lease.fence);
    }
    let is_in_time = released_in_time(answer, valid_until);
    Ok(if is_in_time { Released::Released } else { Released::Late })
}

/// Has the server free the lock when it need not be held on any longer, also if this program has
/// ended by then. None if that has come before an answer.
async fn hold_for_the_rest(
    wire: &Wire,
    lease: &Lease,
    limits: Limits,
) -> Result<Option<Answer>, Error> {
    let tries = Mutex::new(Vec::new());
    let question = |now| {
        let ttl = lease.hold_for(now).unwrap_or(SHORTEST);
        // Each try is for another ttl, and each may be carried out whenever it arrives.
        // No later lease is of this grant: its owner's place is taken, or the client is closed.
        locked(&tries).extend(lease.about_to_extend([ONLY], ttl, now));
        Question::Extend { owner: &lease.owner, fence: lease.fence, ttl }
    };
    let answered = wire.ask_anew(&lease.key, question, limits).await;
    let mut tries = tries.into_inner().unwrap_or_else(PoisonError::into_inner);
    match (answered, tries.last_mut()) {
        (Ok(answer), last) => {
            if let Some(last) = last {
                last.answered(ONLY, Moment::now());
            }
            Ok(Some(answer))
        }
        (Err(_), _) if lease.hold_for(Moment::now()).is_none() => Ok(None),
        (Err(error), _) => Err(error),
    }
}

/// The server frees it then, also when this program has ended.
async fn hold_on(wire: Arc<Wire>, hold_on: HoldOn, within: Duration) -> Outcome {
    let HoldOn { key, owner, fence, until, .. } = hold_on;
    let limits = wire.limits(within, Some(later(Instant::now(), within)));
    let question = |now| Question::Extend { owner: &owner, fence, ttl: until.since(now) };
    match wire.ask_anew(&key, question, limits).await {
        Ok(_) => Outcome::Done,
        Err(_) => Outcome::Failed,
    }
}

/// None when the lease is over on the server, unless it comes at once.
async fn before_the_end<T>(lease: &Lease, expected: impl Future<Output = T>) -> Option<T> {
    let now = Moment::now();
    let end = match lease.ended() {
        Some(Loss::Taken) => now,
        _ => now.later(lease.left(now)),
    };
    tokio::select! {
        biased;
        came = expected => Some(came),
        () = sleep_until(end) => None,
    }
}
