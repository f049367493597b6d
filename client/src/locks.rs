//! The client.

use crate::backoff::{Backoff, POLL, ROOM};
use crate::clock::Moment;
use crate::dialect::{Dialect, Question};
use crate::gate::Gate;
use crate::guard::{Guard, Hold, Slot};
use crate::joining::join;
use crate::keeper::{self, Order, Orders};
use crate::lease::{Lease, Names};
use crate::line::Lines;
use crate::pending::Pending;
use crate::queue::{Queue, Waited};
use crate::request::{Options, Request, Wanted};
use crate::room::Room;
use crate::validity::{is_fresh, later};
use crate::wire::{Answer, Limits, Wire};
use crate::{Error, Settings, Target, story};
use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout, timeout_at};
use tracing::Instrument;
use uuid::Uuid;

/// Locks on one server, cluster, or group that sentinels watch. Copies share everything.
#[derive(Clone)]
pub struct Locks {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    wire: Arc<Wire>,
    orders: Orders,
    /// Where those meet who ask for one lock as one owner, by key and owner; only of owners that callers chose.
    slots: Mutex<HashMap<(String, String), Arc<Slot>>>,
    /// Those who wait for one lock, by key.
    lines: Arc<Lines>,
    /// For connections that wait.
    room: Room,
    gate: Gate,
}

/// What the server said to a request, when.
struct Granted {
    fence: u64,
    asked: Moment,
}

impl Locks {
    /// A client with the default settings. It connects with its first request, so a service can be started before its
    /// server.
    ///
    /// ```
    /// use leasehold_client::Locks;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), leasehold_client::Error> {
    /// let locks = Locks::new("redis://127.0.0.1:6379")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the address makes no sense.
    pub fn new(target: impl Into<Target>) -> Result<Self, Error> {
        Self::with_settings(target, Settings::default())
    }

    /// The same with these settings.
    ///
    /// ```
    /// use leasehold_client::{Locks, Settings};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), leasehold_client::Error> {
    /// let locks = Locks::with_settings("redis://127.0.0.1:6379", Settings::from_env()?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When a setting or the address makes no sense.
    pub fn with_settings(target: impl Into<Target>, settings: Settings) -> Result<Self, Error> {
        Self::unasked(&target.into(), settings)
    }

    /// A client with the default settings that has reached its server.
    ///
    /// # Errors
    ///
    /// When the address makes no sense, and when nobody answers there within [`Settings::within`].
    pub async fn connect(target: impl Into<Target>) -> Result<Self, Error> {
        Self::connect_with(target, Settings::default()).await
    }

    /// The same with these settings.
    ///
    /// # Errors
    ///
    /// When a setting or the address has no sense, and when nobody answers there.
    pub async fn connect_with(
        target: impl Into<Target>,
        settings: Settings,
    ) -> Result<Self, Error> {
        let locks = Self::with_settings(target, settings)?;
        locks.find_out().await?;
        Ok(locks)
    }

    /// A client of a server that nobody has asked anything yet, and that may be down.
    pub(crate) fn unasked(target: &Target, settings: Settings) -> Result<Self, Error> {
        let settings = settings.checked()?;
        let wire = Arc::new(Wire::unasked(target, &settings)?);
        let orders = keeper::start(Arc::clone(&wire), settings.within);
        let room = Room::new(settings.wait_connections);
        let (slots, lines, gate) = (Mutex::default(), Arc::default(), Gate::default());
        let inner = Inner { settings, wire, orders, slots, lines, room, gate };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Whether the server that was asked last has the module.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Dialect, Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// if locks.dialect() == Dialect::Plain {
    ///     eprintln!("this server has no Leasehold: whoever waits polls");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.inner.wire.dialect()
    }

    /// What requests do that do not say otherwise.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// println!("{:?}", locks.settings());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Takes the lock if it is free: none if somebody else has it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Options, Released};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let guard = locks.try_lock("printer").await?;
    /// assert!(guard.is_some());
    /// assert!(locks.try_lock("printer").await?.is_none());
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When no server answers, or it refuses.
    pub async fn try_lock(&self, name: &str) -> Result<Option<Guard>, Error> {
        self.lock(name).try_now().await
    }

    /// Waits for the lock, when it is awaited.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Options, Released};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let guard = locks.lock("printer").ttl(Duration::from_secs(5)).await?;
    /// let busy = locks.lock("printer").wait(Duration::from_millis(100)).await;
    /// assert!(matches!(busy, Err(Error::Busy { .. })));
    /// # drop(guard);
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self, name: impl Into<String>) -> Request {
        Request::new(self.clone(), name.into())
    }

    pub(crate) async fn acquire(
        &self,
        name: &str,
        options: Options,
    ) -> Result<Option<Guard>, Error> {
        let wanted = options.over(&self.inner.settings)?;
        let span = story::span(name, &wanted.correlation);
        let told = async {
            let begun = Instant::now();
            let owner = wanted.owner.clone().unwrap_or_else(|| new_uuid().to_string());
            let came = self.gate().pass(self.inner.acquire(name, &owner, &wanted)).await;
            story::not_acquired(name, Some(&owner), &wanted, begun, &came);
            came
        };
        told.instrument(span).await
    }

    pub(crate) fn key(&self, name: &str) -> String {
        self.inner.key(name)
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.inner.gate
    }

    pub(crate) fn orders(&self) -> &Orders {
        &self.inner.orders
    }

    pub(crate) fn wire(&self) -> &Wire {
        &self.inner.wire
    }

    /// Whether somebody answers there, and in which dialect.
    pub(crate) async fn find_out(&self) -> Result<(), Error> {
        let Settings { response, within, .. } = self.inner.settings;
        self.inner.wire.find_out(response, later(Instant::now(), within)).await
    }

    /// Releases in the background what may have been granted to this owner.
    pub(crate) fn abandon(&self, name: &str, owner: &str, ttl: Duration) {
        let (key, owner) = (self.key(name), owner.to_owned());
        // Without a keeper the lease ends by itself.
        let _ =
            self.inner.orders.send(Order::Abandon { key, owner, ttl, place: None, parked: None });
    }
}

impl Inner {
    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.settings.prefix)
    }

    async fn acquire(
        &self,
        name: &str,
        owner: &str,
        wanted: &Wanted,
    ) -> Result<Option<Guard>, Error> {
        let (key, asked) = (self.key(name), Instant::now());
        let until = wanted.wait.map(|patience| later(asked, patience));
        let slot = wanted.owner.as_ref().map(|owner| self.slot(&key, owner));
        let place = match &slot {
            None => None,
            Some(slot) => {
                let place = Arc::clone(slot).lock_owned();
                let place = match wanted.wait {
                    None => place.await,
                    Some(patience) => {
                        match timeout(patience.max(self.settings.response), place).await {
                            Ok(place) => place,
                            Err(_) => return Ok(None),
                        }
                    }
                };
                if let Some(guard) = join(&place, wanted, self.settings.within).await? {
                    return Ok(Some(guard));
                }
                Some(place)
            }
        };
        let mut pending = Pending {
            orders: self.orders.clone(),
            key,
            owner: owner.to_owned(),
            ttl: wanted.ttl,
            place,
            unknown: false,
            parked: None,
        };
        let Some(granted) = self.granted(name, &mut pending, wanted, until).await? else {
            return Ok(None);
        };
        let (key, owner) = (pending.key.clone(), pending.owner.clone());
        let names = Names {
            id: next_id(),
            name: name.to_owned(),
            key,
            owner,
            correlation: wanted.correlation.clone(),
        };
        let lease = Lease::new(names, granted.fence, granted.asked, wanted.ttl, wanted.renew);
        wanted.hold(&lease);
        if lease.valid_for(Moment::now()).is_zero() {
            return Err(Error::TooLate { name: name.to_owned() });
        }
        let lease = Arc::new(lease);
        self.orders.send(Order::Keep(Arc::clone(&lease))).map_err(|_| Error::Closed)?;
        story::acquired(&lease, asked.elapsed());
        let hold = Arc::new(Hold {
            lease,
            orders: self.orders.clone(),
            wire: Arc::clone(&self.wire),
            slot,
            guards: AtomicUsize::new(1),
        });
        if let Some(mut place) = pending.known() {
            *place = Arc::downgrade(&hold);
        }
        Ok(Some(Guard { hold, left: false }))
    }

    /// Asks until it is granted, or patience has ended.
    async fn granted(
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

    fn slot(&self, key: &str, owner: &str) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody uses are in the way of none, but they would be more and more.
        if slots.len() >= 1_024 && slots.len().is_power_of_two() {
            slots.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        Arc::clone(slots.entry((key.to_owned(), owner.to_owned())).or_default())
    }
}

/// What comes of it before that moment.
async fn by<T>(until: Option<Instant>, expected: impl Future<Output = T>) -> Option<T> {
    match until {
        Some(until) => timeout_at(until.into(), expected).await.ok(),
        None => Some(expected.await),
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Locks");
        debug.field("dialect", &self.dialect()).field("settings", self.settings()).finish()
    }
}

pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

pub(crate) fn new_uuid() -> Uuid {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid()
}
