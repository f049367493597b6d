//! The places of a client in the queues of servers, and the messages about them.
//!
//! ```text
//!   line          ACQUIRE … TICKET                ACQUIRE … TICKET
//!                 nil                             nil: after `check_every`
//!   subscription                                                    granted
//!   the lease, for certain                        ├───────────── min(ttl, kept) ─────────────┤
//! ```
//!
//! The message is the grant. The server granted the lock after it had answered the last request with nil, so the lease
//! counts from before that request. It ends before the server's lease, however late the message is. But if an earlier grant
//! of this owner may have ended unheard, the message may be that grant's, and is only a reason to ask.
//!
//! Asking again keeps a place. Once a second the client asks together for all places that are due.

use super::subscription::Subscription;
use crate::asked::Granted;
use crate::attempt::Attempt;
use crate::clock::{Moment, within};
use crate::home::Home;
use crate::limits::Limits;
use crate::link::{Line, Node};
use crate::locked::locked;
use crate::measure;
use crate::question::{Claim, Question};
use crate::remote::{Remote, Trail};
use crate::validity::{drift, valid_until};
use futures_util::future::join_all;
use redis::RedisError;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::sleep;

/// The server keeps a place for this many times the interval of asking.
const KEPT_TIMES: u32 = 3;
const KEPT_LEAST: Duration = Duration::from_secs(1);

/// How often the client asks for the places that are due.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The most waiters that ask at a time. More would not fit into the connection, and cost memory.
const MOST_AT_A_TIME: usize = 512;

#[derive(Clone, Copy, Debug)]
pub(super) enum Told {
    Granted(Granted),
    /// The place may have been granted, or lost.
    Ask,
    /// The subscription is lost, perhaps with a message.
    Cut,
}

pub(super) struct Places {
    home: Arc<Home>,
    remote: Arc<Remote>,
    /// Random, so that nobody else knows it.
    pub(super) channel: String,
    /// The server's limit for keeping a place, in milliseconds, as far as known.
    longest: AtomicU64,
    pub(super) turns: Semaphore,
    failures: AtomicU32,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    /// By owner. An owner may wait more than once.
    all: HashMap<Arc<str>, Vec<Arc<Inside>>>,
    subscriptions: HashMap<u64, Arc<Subscription>>,
    /// A task asks for the places that are due.
    is_looked_after: bool,
    is_closed: bool,
}

/// A place in a queue, from its first request until the grant or the end of the wait.
pub(super) struct Place {
    places: Arc<Places>,
    inside: Arc<Inside>,
}

struct Inside {
    name: Arc<str>,
    claim: Arc<Claim>,
    trail: Arc<Trail>,
    ttl: Duration,
    /// Treat a message only as a reason to ask.
    confirm: bool,
    woken: Notify,
    state: Mutex<State>,
}

struct State {
    /// When to ask again, while the waiter sleeps.
    due: Option<Moment>,
    /// The node whose subscription would bring the message, as of the last request.
    heard_from: Option<u64>,
    /// When the last request answered with nil was sent, or the first request.
    since: Option<Moment>,
    /// The shortest keeping time of the requests since then.
    kept: Duration,
    keeps: Duration,
    is_nil: bool,
    /// A message cannot be about an earlier grant.
    is_sure: bool,
    /// The fence of an unread message, and its node.
    heard: Option<(u64, u64)>,
    told: Option<Told>,
}

/// The state when a request was sent.
struct Asked {
    at: Moment,
    kept: Duration,
    /// The node whose subscription was up before the request.
    heard_from: Option<u64>,
}

impl Places {
    pub(super) fn new(home: &Arc<Home>, remote: &Arc<Remote>) -> Self {
        Self {
            home: Arc::clone(home),
            remote: Arc::clone(remote),
            channel: format!("leasehold:{}", uuid::Uuid::new_v4()),
            longest: AtomicU64::new(u64::MAX),
            turns: Semaphore::new(MOST_AT_A_TIME),
            failures: AtomicU32::new(0),
            book: Mutex::default(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.book().all.len()
    }

    /// Learns the server's limit for keeping a place. Returns whether it is new.
    pub(super) fn keeps_for(&self, longest: u64) -> bool {
        self.longest.fetch_min(longest, Relaxed) > longest
    }

    fn kept(&self) -> Duration {
        let crowd = Duration::from_millis(u64::try_from(self.count()).unwrap_or(u64::MAX));
        let kept =
            self.home.settings.check_every.max(crowd).saturating_mul(KEPT_TIMES).max(KEPT_LEAST);
        kept.min(Duration::from_millis(self.longest.load(Relaxed)))
    }

    pub(super) fn take(self: &Arc<Self>, attempt: &Attempt) -> Place {
        let inside = Arc::new(Inside {
            name: Arc::clone(&attempt.name),
            claim: Arc::clone(&attempt.claim),
            trail: Arc::clone(&attempt.trail),
            ttl: attempt.wanted.ttl,
            confirm: attempt.wanted.confirm,
            woken: Notify::new(),
            state: Mutex::new(State {
                due: None,
                heard_from: None,
                since: None,
                kept: Duration::MAX,
                keeps: Duration::ZERO,
                is_nil: false,
                is_sure: true,
                heard: None,
                told: None,
            }),
        });
        let mut book = self.book();
        let owners = book.all.entry(Arc::clone(&attempt.claim.owner));
        owners.or_insert_with(|| Vec::with_capacity(1)).push(Arc::clone(&inside));
        drop(book);
        measure::one_more_ticket();
        Place { places: Arc::clone(self), inside }
    }

    fn is_heard(&self, node: u64) -> bool {
        self.book().subscriptions.get(&node).is_some_and(|subscription| subscription.is_up())
    }

    pub(super) fn hear(&self, owner: &str, key: &[u8], fence: u64, node: u64) {
        if let Some(owners) = self.book().all.get(owner) {
            let of_this = owners.iter().filter(|inside| inside.claim.key() == key);
            of_this.for_each(|inside| inside.hear(fence, node));
        }
    }

    pub(super) fn cut(&self, node: u64) {
        let mut book = self.book();
        book.subscriptions.remove(&node);
        let all: Vec<_> = book.all.values().flatten().cloned().collect();
        drop(book);
        for inside in all {
            if inside.state().heard_from == Some(node) {
                inside.wake(Told::Cut);
            }
        }
    }

    /// A request found a grant without its message, so the subscription may have died silently.
    fn suspect(&self, node: u64) {
        let subscription = self.book().subscriptions.get(&node).cloned();
        if let Some(subscription) = subscription {
            subscription.close();
            self.cut(node);
        }
    }

    pub(super) fn failures(&self) -> u32 {
        self.failures.load(Relaxed)
    }

    pub(super) fn count_failure(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    pub(super) fn forget_failures(&self) {
        self.failures.store(0, Relaxed);
    }

    fn subscription(self: &Arc<Self>, node: &Arc<Node>) -> Option<Arc<Subscription>> {
        let mut book = self.book();
        if book.is_closed {
            return None;
        }
        let open = || {
            let line = self.remote.link.own_line();
            let is_it = |line: &Line| line.node().is_some_and(|own| own.id == node.id);
            Subscription::open(self, node, line.filter(is_it))
        };
        Some(Arc::clone(book.subscriptions.entry(node.id).or_insert_with(open)))
    }

    pub(super) fn close(&self) {
        let mut book = self.book();
        book.is_closed = true;
        for (_, subscription) in book.subscriptions.drain() {
            subscription.close();
        }
    }

    /// Starts the task that asks for the places that are due.
    fn look_after(self: &Arc<Self>) {
        if std::mem::replace(&mut self.book().is_looked_after, true) {
            return;
        }
        let every = LOOK_EVERY
            .min(self.home.settings.check_every.checked_div(KEPT_TIMES).unwrap_or_default());
        let places = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                sleep(every).await;
                let Some(places) = places.upgrade() else { return };
                let Some(due) = places.due() else { return };
                let renew = |inside| Arc::clone(&places).renew(inside);
                tokio::spawn(join_all(due.into_iter().map(renew).collect::<Vec<_>>()));
            }
        });
    }

    fn due(&self) -> Option<Vec<Arc<Inside>>> {
        let mut book = self.book();
        if book.all.is_empty() {
            book.is_looked_after = false;
            return None;
        }
        let now = Moment::now();
        // Take each place once, because asking for it may take a while.
        let is_due =
            |inside: &&Arc<Inside>| inside.state().due.take_if(|due| *due <= now).is_some();
        Some(book.all.values().flatten().filter(is_due).cloned().collect())
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        locked(&self.book)
    }
}

impl Places {
    /// Keeps the place of a sleeping waiter.
    async fn renew(self: Arc<Self>, inside: Arc<Inside>) {
        let each = self.home.settings.response_timeout;
        let limits = Limits { each, until: Moment::now().later(each) };
        let came = self.ask(&inside, false, limits).await;
        let is_heard = inside.state().heard_from.is_some();
        if inside.trail.is_over() {
            // The request may have reached the server after the release.
            let entry = self.home.ledger.begin(&inside.name);
            let Inside { claim, trail, .. } = &*inside;
            return self.remote.take_back(&self.home, claim, trail, false, entry).await;
        }
        match came {
            Ok(Some(granted)) => inside.wake(Told::Granted(granted)),
            Ok(None) if is_heard && !self.remote.is_plain() => {}
            // Without a subscription, the waiter has to act itself.
            Ok(None) | Err(_) => inside.wake(Told::Ask),
        }
    }

    /// `was_told`: a message about a grant came before this request.
    async fn ask(
        &self,
        inside: &Inside,
        was_told: bool,
        limits: Limits,
    ) -> Result<Option<Granted>, RedisError> {
        let link = &self.remote.link;
        let node = match link.reaches_beside() {
            true => within(limits.each, link.node(inside.claim.key())).await,
            false => None,
        };
        let node = node.and_then(Result::ok).map(|node| node.id);
        let asked = inside.begin(self.kept(), node.filter(|node| self.is_heard(*node)));
        let (ttl, kept, channel) = (inside.ttl, asked.kept, self.channel.as_str());
        let question = Question::Ticket { ttl, kept, channel };
        let Inside { claim, trail, .. } = inside;
        if let Some(fence) = self.remote.ask_once(claim, question, limits, trail).await? {
            let was_told = was_told || inside.state().heard.is_some();
            if let (Some(node), false) = (asked.heard_from, was_told) {
                self.suspect(node);
            }
            return Ok(Some(Granted { fence, asked: asked.at, lasts: ttl, is_unclaimed: false }));
        }
        if !self.remote.is_plain() {
            inside.is_not_granted(&asked);
        }
        Ok(None)
    }
}

impl Place {
    pub(super) async fn ask(&self, limits: Limits) -> Result<Option<Granted>, RedisError> {
        let was_told = self.inside.state().heard.take().is_some();
        self.places.ask(&self.inside, was_told, limits).await
    }

    /// Whether a message would arrive.
    pub(super) fn is_heard(&self) -> bool {
        self.inside.state().heard_from.is_some()
    }

    pub(super) fn crowd(&self) -> usize {
        self.places.count()
    }

    /// Opens the subscription. False if it is not up.
    pub(super) async fn listen(&self, limit: Duration) -> Result<bool, RedisError> {
        let link = &self.places.remote.link;
        if !link.reaches_beside() {
            return Ok(false);
        }
        let node = link.node(self.inside.claim.key()).await?;
        match self.places.subscription(&node) {
            Some(subscription) => subscription.opened(limit).await,
            None => Ok(false),
        }
    }

    /// Waits for news; none at `until`.
    pub(super) async fn sleep(&self, until: Moment) -> Option<Told> {
        self.places.look_after();
        loop {
            if let Some(told) = self.inside.take_told() {
                return Some(told);
            }
            let left = until.since(Moment::now());
            if left.is_zero() {
                return None;
            }
            within(left, self.inside.woken.notified()).await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.inside.state().due = None;
        let mut book = self.places.book();
        if let Entry::Occupied(mut owners) = book.all.entry(Arc::clone(&self.inside.claim.owner)) {
            owners.get_mut().retain(|inside| !Arc::ptr_eq(inside, &self.inside));
            if owners.get().is_empty() {
                owners.remove();
            }
        }
        drop(book);
        measure::one_less_ticket();
    }
}

impl Inside {
    fn begin(&self, kept: Duration, node: Option<u64>) -> Asked {
        let (mut state, at) = (self.state(), Moment::now());
        let heard_from = state.heard_from.filter(|_| state.heard.is_none());
        state.due = None;
        state.since.get_or_insert(at);
        state.keeps = kept;
        state.kept = state.kept.min(kept);
        state.heard_from = node;
        Asked { at, kept, heard_from }
    }

    /// The server answered nil, so a grant can only come later.
    fn is_not_granted(&self, asked: &Asked) {
        let (mut state, now) = (self.state(), Moment::now());
        let lasts = self.ttl.min(state.kept);
        // Within this time, a grant without a message would still be held.
        if state.since.is_some_and(|since| now >= since.later(lasts.saturating_sub(drift(lasts)))) {
            state.is_sure = false;
        }
        state.since = Some(asked.at);
        state.kept = asked.kept.min(state.keeps);
        state.is_nil = true;
        let third = asked.kept.checked_div(KEPT_TIMES).unwrap_or_default();
        state.due = Some(now.later(third.mul_f64(1.0 - fastrand::f64() / 4.0)));
        drop(state);
        self.wake_if_told();
    }

    fn hear(&self, fence: u64, node: u64) {
        self.state().heard = Some((fence, node));
        self.wake_if_told();
    }

    fn wake_if_told(&self) {
        if self.state().message(self.ttl, self.confirm).is_some() {
            self.woken.notify_one();
        }
    }

    fn wake(&self, told: Told) {
        self.state().told = Some(told);
        self.woken.notify_one();
    }

    fn take_told(&self) -> Option<Told> {
        let mut state = self.state();
        state.told.take().or_else(|| state.message(self.ttl, self.confirm))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

impl State {
    /// The meaning of an unread message. None until the request under way is answered.
    fn message(&self, ttl: Duration, confirm: bool) -> Option<Told> {
        let ((fence, node), since) = (self.heard?, self.since?);
        if !self.is_nil {
            return None;
        }
        // Without a subscription at the request, the server leaves little time to claim the grant.
        if confirm || !self.is_sure || self.heard_from != Some(node) {
            return Some(Told::Ask);
        }
        let lasts = ttl.min(self.kept);
        let left = valid_until(since, lasts).since(Moment::now());
        let is_short = left < lasts.checked_div(4).unwrap_or_default();
        let granted = Granted { fence, asked: since, lasts, is_unclaimed: true };
        Some(if is_short { Told::Ask } else { Told::Granted(granted) })
    }
}
