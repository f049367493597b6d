//! The client.

use crate::acquiring::Granted;
use crate::clock::Moment;
use crate::dialect::Dialect;
use crate::gate::Gate;
use crate::guard::{Guard, Hold};
use crate::home::Home;
use crate::joining::join;
use crate::lease::{Bond, Lease, Names};
use crate::orders::Orders;
use crate::pending::Pending;
use crate::poison::locked;
use crate::request::{Options, Request, Wanted};
use crate::room::Room;
use crate::same_owner::Slot;
use crate::share::Share;
use crate::stray::Stray;
use crate::tickets::Crowd;
use crate::together::Alone;
use crate::validity::later;
use crate::wire::Wire;
use crate::{Error, Settings, Target, story};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::Instrument;
use uuid::Uuid;

/// Locks on one server, cluster, or group that sentinels watch. Copies share everything.
///
/// # Several runtimes
///
/// Several tokio runtimes may use one client, also at the same time, as the tests of a program do
/// that share a client in a static. Each runtime has its own connections to the server, and its own
/// task that renews what was granted to its requests. So no runtime waits for another one:
///
/// - A guard is renewed as long as the runtime of its request is driven. When that runtime ends,
///   the guard is lost at once. A runtime stands still when nobody drives it, as a `current_thread`
///   runtime between two calls of `block_on`: the guard is then lost when its lease ends.
/// - A guard may be moved to another runtime, and released, extended and watched there.
/// - A guard is released by the runtime that it is dropped on. If that one stands still, another
///   one that uses the client does so half a second later; if it has ended, at once. What no
///   runtime is there for is released by the next one, or by [`close`](Locks::close).
/// - Guards that share a grant, because their requests named the same [owner](Options::owner), are
///   renewed by the runtimes of all these requests.
/// - [`close`](Locks::close) releases what any of the runtimes holds. A request that is under way
///   on a runtime that stands still ends when that runtime is driven again.
///
/// Runtimes share two things, and a runtime that stands still may hold up others there:
///
/// - Requests for the same lock with the same chosen owner take turns. If one has its turn on a
///   runtime that stands still, then those on others fail with [`Error::Unreachable`] after
///   [`Settings::unreachable_after`], unless their patience ends before. Drive the runtime, or use
///   an owner for each runtime.
/// - Requests that wait share [`Settings::wait_connections`]. One that waits on a runtime that stands
///   still, or that is next, keeps its connection.
///
/// Extensions of one lease do not wait for each other. While an extension to a shorter ttl is not
/// answered, or nobody polls it, the lease is counted on for no more than that ttl, and renewed as
/// often as that takes.
#[derive(Clone)]
pub struct Locks {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) wire: Arc<Wire>,
    pub(crate) orders: Orders,
    /// Where those meet who ask for one lock as one owner, by key and owner; only of owners that callers chose.
    slots: Mutex<HashMap<(String, String), Arc<Slot>>>,
    /// For connections that wait.
    pub(crate) room: Room,
    pub(crate) crowd: Crowd,
    /// When a server took no more than one lock in a request.
    pub(crate) alone: Alone,
    gate: Gate,
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
        let orders = Orders::new(Arc::clone(&wire), settings.within);
        let room = Room::new(settings.wait_connections);
        let (slots, gate) = (Mutex::default(), Gate::default());
        let (crowd, alone) = (Crowd::default(), Alone::default());
        let inner = Inner { settings, wire, orders, slots, room, crowd, alone, gate };
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
        Request::new(self.clone(), name.into(), Share::Exclusive)
    }

    pub(crate) async fn acquire(
        &self,
        name: &str,
        share: Share,
        options: Options,
    ) -> Result<Option<Guard>, Error> {
        let wanted = options.over(share, &self.inner.settings)?;
        let span = story::span(name, &wanted.correlation);
        let told = async {
            let begun = Instant::now();
            let owner = wanted.owner.clone().unwrap_or_else(|| new_uuid().to_string());
            // In a box, because it is handed on: each hand would have room for it.
            let asked = Box::pin(self.inner.acquire(name, &owner, &wanted));
            let came = self.gate().pass(asked).await;
            story::not_acquired(name, Some(&owner), &wanted, begun, &came);
            came
        };
        told.instrument(span).await
    }

    pub(crate) fn key(&self, name: &str) -> String {
        self.inner.key(name)
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
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
}

impl Inner {
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.settings.prefix)
    }

    async fn acquire(
        &self,
        name: &str,
        owner: &str,
        wanted: &Wanted,
    ) -> Result<Option<Guard>, Error> {
        if self.wire.routes.is_watched() || wanted.owner.is_some() {
            // From now on it looks who is the primary, and tells others of the same owner that this
            // runtime is driven.
            self.orders.begin().map_err(|_| Error::Closed)?;
        }
        let (key, asked) = (self.key(name), Instant::now());
        let until = wanted.wait.map(|patience| later(asked, patience));
        let slot = wanted.owner.as_ref().map(|owner| self.slot(&key, owner));
        let place = match &slot {
            None => None,
            Some(slot) => {
                // A try waits for those who ask at this moment, and for no others.
                let until = match wanted.wait {
                    Some(Duration::ZERO) => Some(later(asked, self.settings.response)),
                    _ => until,
                };
                let place = self.stand(until, &key, slot.take());
                let place = tokio::select! {
                    biased;
                    place = place => place?,
                    error = self.stands_still(slot) => return Err(error),
                };
                let Some(place) = place else { return Ok(None) };
                if let Some(guard) =
                    Box::pin(join(place.hold(), wanted, self.settings.within)).await?
                {
                    return Ok(Some(guard));
                }
                Box::pin(self.release_the_last(slot, &key, owner, wanted, until)).await?;
                Some(place)
            }
        };
        let mut pending = Pending {
            orders: self.orders.clone(),
            home: Home::here(),
            key,
            also: Vec::new(),
            owner: owner.to_owned(),
            share: wanted.share,
            ttl: wanted.ttl,
            place,
            parked: None,
            asked_on: Mutex::default(),
            stray: Stray::default(),
        };
        let Some(granted) = self.granted(name, &mut pending, wanted, until).await? else {
            return Ok(None);
        };
        let key = pending.key.clone();
        let guard = self.guard(name, key, &mut pending, &granted, wanted, slot, asked)?;
        if let Some(place) = pending.known() {
            place.granted(&guard.hold);
        }
        Ok(Some(guard))
    }

    /// That of a lock that was granted. It is kept from now on.
    #[expect(clippy::too_many_arguments, reason = "what was wanted, and what came of it")]
    pub(crate) fn guard(
        &self,
        name: &str,
        key: String,
        pending: &mut Pending,
        granted: &Granted,
        wanted: &Wanted,
        slot: Option<Arc<Slot>>,
        begun: Instant,
    ) -> Result<Guard, Error> {
        let names = Names {
            id: next_id(),
            name: name.to_owned(),
            key,
            owner: pending.owner.clone(),
            correlation: wanted.correlation.clone(),
        };
        let unanswered = slot.as_ref().map(|slot| slot.unanswered(granted.fence));
        let lease = Lease::after(
            names,
            granted.fence,
            granted.asked,
            wanted.ttl,
            wanted.renew,
            unanswered.unwrap_or_default(),
        );
        let bond = wanted
            .grace
            .zip(granted.connection.clone())
            .map(|(grace, connection)| Bond::new(grace, wanted.share, slot.clone(), connection));
        let mut lease = lease.bound(bond);
        if wanted.owner.is_none() {
            lease.stray = pending.stray.take();
        }
        wanted.hold(&lease);
        if lease.valid_for(Moment::now()).is_zero() {
            // An earlier lease of the same grant may have been longer.
            pending.ttl = pending.ttl.max(lease.left(Moment::now()));
            return Err(Error::TooLate { name: name.to_owned() });
        }
        let lease = Arc::new(lease);
        self.orders.keep(&lease).map_err(|_| Error::Closed)?;
        story::acquired(&lease, begun.elapsed());
        let hold = Arc::new(Hold {
            lease,
            orders: self.orders.clone(),
            wire: Arc::clone(&self.wire),
            slot,
            share: wanted.share,
            within: self.settings.within,
            guards: AtomicUsize::new(1),
        });
        Ok(Guard { hold, left: false })
    }

    fn slot(&self, key: &str, owner: &str) -> Arc<Slot> {
        let (mut slots, key) = (locked(&self.slots), (key.to_owned(), owner.to_owned()));
        if let Some(known) = slots.get(&key) {
            return Arc::clone(known);
        }
        // Those that nobody uses are in the way of none, but they would be more and more.
        if slots.len() >= 1_024 && slots.len().is_power_of_two() {
            slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.is_used());
        }
        Arc::clone(slots.entry(key).or_insert_with(|| Arc::new(Slot::new())))
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
    Uuid::new_v4()
}
