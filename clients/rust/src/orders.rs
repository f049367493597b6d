//! What keepers are told to do, and which of them.
//!
//! Each runtime that has used a client has a keeper, which is started by the first order there. It
//! keeps what was granted to requests of its runtime, and releases what is released there. It helps
//! with the releases of other keepers that take too long. A client in a static outlives runtimes, as
//! those of tests, and serves several at the same time.

use crate::clock::Moment;
use crate::home::Home;
use crate::keeper::Keeper;
use crate::lease::Lease;
use crate::ledger::{Keeping, Leaving, Ledger};
use crate::poison::locked;
use crate::queue::Parked;
use crate::same_owner::{Place, Slot};
use crate::share::Share;
use crate::stray::Stray;
use crate::tickets::AskedOn;
use crate::wire::Wire;
use crate::{Error, Released};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc::{UnboundedSender, error::SendError, unbounded_channel};
use tokio::sync::oneshot;

pub(crate) enum Order {
    /// There is a request that may lead to more.
    Begin,
    Keep(Arc<Lease>),
    /// It is not to be renewed any more.
    Forget(u64),
    /// The ledger has it by this number.
    Release(u64),
    Abandon {
        number: u64,
        abandoned: Box<Abandoned>,
    },
    HoldOn {
        number: u64,
        hold_on: HoldOn,
    },
}

/// Leaves it held until then, and releases it no sooner.
pub(crate) struct HoldOn {
    pub(crate) key: String,
    pub(crate) owner: String,
    pub(crate) fence: u64,
    pub(crate) until: Moment,
    /// For how long it may be held if the server does not hear of that.
    pub(crate) left: Duration,
}

/// Nobody waits any more for a grant that may have been made.
pub(crate) struct Abandoned {
    pub(crate) key: String,
    /// The keys of other locks that were to be had with it.
    pub(crate) also: Vec<String>,
    pub(crate) owner: String,
    pub(crate) share: Share,
    pub(crate) ttl: Duration,
    /// If the caller chose the owner: others of the same owner wait for it.
    pub(crate) place: Option<Place>,
    pub(crate) parked: Option<Box<Parked>>,
    /// Where it may have a ticket.
    pub(crate) asked_on: Option<Box<AskedOn>>,
    /// The connections on which it was not answered.
    pub(crate) stray: Stray,
}

pub(crate) type Reply = oneshot::Sender<Result<Released, Error>>;

/// Where orders go. Keepers end when nobody can give any more, and all is done.
#[derive(Clone)]
pub(crate) struct Orders {
    desk: Arc<Desk>,
}

struct Desk {
    keepers: Mutex<HashMap<Home, UnboundedSender<Order>>>,
    ledger: Arc<Ledger>,
    wire: Arc<Wire>,
    within: Duration,
}

/// There is no runtime that a keeper could be started on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoKeeper;

/// What comes of an order to release something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ordered {
    Release,
    /// It is to end by itself.
    Nothing,
}

impl Orders {
    pub(crate) fn new(wire: Arc<Wire>, within: Duration) -> Self {
        let (keepers, ledger) = (Mutex::default(), Arc::default());
        Self { desk: Arc::new(Desk { keepers, ledger, wire, within }) }
    }

    /// How long a request that does not wait goes on trying.
    #[cfg(feature = "redis")]
    pub(crate) fn within(&self) -> Duration {
        self.desk.within
    }

    pub(crate) fn begin(&self) -> Result<(), NoKeeper> {
        self.send_here(Order::Begin).map_err(|_| NoKeeper)
    }

    /// The keeper of this runtime keeps it from now on, beside those that do already.
    pub(crate) fn keep(&self, lease: &Arc<Lease>) -> Result<(), NoKeeper> {
        let here = Home::here();
        match self.desk.ledger.keep(lease, here) {
            Keeping::IsKept => self.look_again(lease.id),
            Keeping::Nothing => {}
            Keeping::GiveBack { number } => self.give_back(number),
            Keeping::Keep => {
                self.send_here(Order::Keep(Arc::clone(lease))).map_err(|_| {
                    self.desk.ledger.cannot_keep(lease.id, here);
                    NoKeeper
                })?;
            }
        }
        Ok(())
    }

    /// Without a keeper there is nobody who would look.
    pub(crate) fn look_again(&self, id: u64) {
        for calls in self.desk.ledger.callers_of(id) {
            calls.look_again(id);
        }
    }

    /// The last guard is gone.
    pub(crate) fn leave(
        &self,
        lease: &Arc<Lease>,
        slot: Option<Arc<Slot>>,
        reply: Option<Reply>,
    ) -> Result<Ordered, Error> {
        let (here, id) = (Home::here(), lease.id);
        let forget = |kept_by: &[Home], but: Option<Home>| {
            for home in kept_by.iter().filter(|home| Some(**home) != but) {
                // Without a keeper nobody renews it either.
                let _ = self.send_to(*home, Order::Forget(id));
            }
        };
        match self.desk.ledger.leave(lease, slot, reply, here) {
            Leaving::Closed => Err(Error::Closed),
            Leaving::LetEnd { kept_by } => {
                forget(&kept_by, None);
                Ok(Ordered::Nothing)
            }
            Leaving::Release { number, kept_by } => {
                forget(&kept_by, Some(here));
                let ordered = self.release(number, Order::Release(number), &kept_by);
                // This runtime is ending, and there is no other one.
                if ordered.is_err() && Handle::try_current().is_ok() {
                    return Err(Error::Closed);
                }
                Ok(Ordered::Release)
            }
        }
    }

    /// Without a keeper the lease ends by itself.
    pub(crate) fn abandon(&self, abandoned: Abandoned, home: Home) {
        let (key, ttl) = (abandoned.key.clone(), abandoned.ttl);
        let number = self.desk.ledger.begin(key, ttl, Home::here());
        let abandoned = Box::new(abandoned);
        let _ = self.release(number, Order::Abandon { number, abandoned }, &[home]);
    }

    /// Without a keeper the lease ends by itself.
    pub(crate) fn hold_on(&self, hold_on: HoldOn, home: Home) {
        let (key, left) = (hold_on.key.clone(), hold_on.left);
        let number = self.desk.ledger.begin(key, left, Home::here());
        let _ = self.release(number, Order::HoldOn { number, hold_on }, &[home]);
    }

    /// Whether somebody drives this runtime: its keeper answers within this time.
    pub(crate) async fn is_driven(&self, home: Home, within: Duration) -> bool {
        match self.desk.ledger.calls(home) {
            Some(calls) => calls.is_answered(within).await,
            None => false,
        }
    }

    /// Releases all that is held, and whatever is granted from now on.
    pub(crate) fn close(&self) {
        for number in self.desk.ledger.close(Home::here()) {
            self.give_back(number);
        }
    }

    /// Releases here what other runtimes were to release and have not released yet.
    pub(crate) fn take_over(&self) {
        for number in self.desk.ledger.take_over(Home::here()) {
            // Whoever was to do it may still do it.
            let _ = self.send_here(Order::Release(number));
        }
    }

    /// Waits outside of any runtime. All that there are may stand still: so a thread drives one
    /// meanwhile, whose keeper helps the others.
    pub(crate) async fn driven<T: Send + 'static>(
        &self,
        expected: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let (done, came) = oneshot::channel();
        let orders = self.clone();
        let drive = move || {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            // Nobody may wait for it any more.
            let _ = done.send(runtime.block_on(async {
                // It waits for others if there can be no keeper here.
                let _ = orders.begin();
                expected.await
            }));
            std::io::Result::Ok(())
        };
        let started = std::thread::Builder::new().name("leasehold".to_owned()).spawn(drive);
        started.map_err(|error| {
            Error::setting("release", &format!("no thread for it can be started: {error}"))
        })?;
        came.await.map_err(|_| Error::Closed)
    }

    /// Tells when all releases are done that were ordered before.
    pub(crate) fn settled(&self) -> oneshot::Receiver<()> {
        if !self.desk.ledger.undone().is_empty() {
            // Its keepers may be gone with their runtimes: one that is started here helps.
            let _ = self.begin();
        }
        let (done, settled) = oneshot::channel();
        self.desk.ledger.tell_when_done(done);
        settled
    }

    /// The keys of what could not be released.
    pub(crate) fn undone(&self) -> Vec<String> {
        self.desk.ledger.undone()
    }

    fn give_back(&self, number: u64) {
        // Without a keeper the lease ends by itself.
        let _ = self.release(number, Order::Release(number), &[]);
    }

    /// By the keeper of this runtime; else by one of these, as outside of any runtime; else by any.
    /// The others help if it takes too long.
    fn release(&self, number: u64, order: Order, kept_by: &[Home]) -> Result<(), NoKeeper> {
        let Desk { ledger, .. } = &*self.desk;
        let here = Home::here();
        let Err(mut order) = self.send_here(order) else {
            ledger.call_others(here);
            return Ok(());
        };
        let any: Vec<_> = self.keepers().keys().copied().collect();
        for home in kept_by.iter().copied().chain(any) {
            ledger.pass_on(number, home);
            match self.send_to(home, order) {
                Ok(()) => {
                    ledger.call_others(home);
                    return Ok(());
                }
                Err(back) => order = back,
            }
        }
        ledger.leave_open(number);
        Err(NoKeeper)
    }

    /// Gives the order back if there is no such keeper, or its runtime has ended.
    fn send_to(&self, home: Home, order: Order) -> Result<(), Order> {
        let keeper = self.keepers().get(&home).cloned();
        match keeper {
            Some(keeper) => {
                if let Order::Abandon { abandoned, .. } = &order
                    && let Some(place) = &abandoned.place
                {
                    place.move_to(home);
                }
                keeper.send(order).map_err(|SendError(order)| order)
            }
            None => Err(order),
        }
    }

    /// Gives the order back outside of any runtime, and where the runtime is ending.
    fn send_here(&self, order: Order) -> Result<(), Order> {
        let Ok(runtime) = Handle::try_current() else { return Err(order) };
        let home = Home::here();
        let order = match self.send_to(home, order) {
            Ok(()) => return Ok(()),
            Err(order) => order,
        };
        let Desk { ledger, wire, within, .. } = &*self.desk;
        let (sender, received) = unbounded_channel();
        let mut keepers = self.keepers();
        // Another thread of this runtime may have been faster.
        if keepers.get(&home).is_none_or(UnboundedSender::is_closed) {
            // Those of runtimes that have ended are not needed any more.
            keepers.retain(|_, keeper| !keeper.is_closed());
            keepers.insert(home, sender);
            drop(keepers);
            let keeper = Keeper::new(received, home, Arc::clone(ledger), Arc::clone(wire), *within);
            // A runtime that is ending drops it at once.
            runtime.spawn(keeper.run());
        } else {
            drop(keepers);
        }
        self.send_to(home, order)
    }

    fn keepers(&self) -> MutexGuard<'_, HashMap<Home, UnboundedSender<Order>>> {
        locked(&self.desk.keepers)
    }
}
