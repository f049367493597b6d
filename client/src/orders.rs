//! What keepers are told to do, and which of them.
//!
//! Each runtime that has used a client has a keeper, which is started by the first order there. It
//! keeps what was granted to requests of its runtime, and releases what is released there. A client
//! in a static outlives runtimes, as those of tests, and serves several at the same time.

use crate::clock::Moment;
use crate::guard::{Hold, Slot};
use crate::home::Home;
use crate::keeper;
use crate::lease::Lease;
use crate::ledger::{Keeping, Leaving, Ledger};
use crate::queue::Parked;
use crate::releases::Outcome;
use crate::wire::Wire;
use crate::{Error, Released};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, error::SendError, unbounded_channel};
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::timeout;

pub(crate) enum Order {
    /// There is a request that may lead to more.
    Begin,
    Keep(Arc<Lease>),
    /// Its end is another one now.
    LookAgain(u64),
    /// It is not to be renewed any more.
    Forget(u64),
    Release(Release),
    Abandon {
        number: u64,
        abandoned: Abandoned,
    },
    HoldOn {
        number: u64,
        hold_on: HoldOn,
    },
    /// Says that somebody drives the runtime.
    Answer(oneshot::Sender<()>),
}

/// Leaves it held until then, and releases it no sooner.
pub(crate) struct HoldOn {
    pub(crate) key: String,
    pub(crate) owner: String,
    pub(crate) fence: u64,
    pub(crate) until: Moment,
}

pub(crate) struct Release {
    pub(crate) number: u64,
    pub(crate) lease: Arc<Lease>,
    pub(crate) slot: Option<Arc<Slot>>,
    pub(crate) reply: Option<Reply>,
    pub(crate) attempt: Attempt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    First,
    /// Another keeper may have released it, without having heard so.
    Repeated,
}

/// Nobody waits any more for a grant that may have been made.
pub(crate) struct Abandoned {
    pub(crate) key: String,
    pub(crate) owner: String,
    pub(crate) ttl: Duration,
    pub(crate) place: Option<OwnedMutexGuard<Weak<Hold>>>,
    pub(crate) parked: Option<Box<Parked>>,
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

    pub(crate) fn begin(&self) -> Result<(), NoKeeper> {
        self.send_here(Order::Begin).map_err(|_| NoKeeper)
    }

    /// The keeper of this runtime keeps it from now on, beside those that do already.
    pub(crate) fn keep(&self, lease: &Arc<Lease>) -> Result<(), NoKeeper> {
        let here = Home::here();
        match self.desk.ledger.keep(lease, here) {
            Keeping::IsKept => self.look_again(lease.id),
            Keeping::Nothing => {}
            Keeping::GiveBack { number } => self.give_back(number, Arc::clone(lease)),
            Keeping::Keep => {
                self.send_here(Order::Keep(Arc::clone(lease))).map_err(|_| {
                    let _ = self.desk.ledger.is_orphaned(lease.id, here);
                    NoKeeper
                })?;
            }
        }
        Ok(())
    }

    /// Without a keeper there is nobody who would look.
    pub(crate) fn look_again(&self, id: u64) {
        for home in self.desk.ledger.kept_by(id) {
            let _ = self.send_to(home, Order::LookAgain(id));
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
        match self.desk.ledger.leave(lease, here) {
            Leaving::Closed => Err(Error::Closed),
            Leaving::LetEnd { kept_by } => {
                forget(&kept_by, None);
                Ok(Ordered::Nothing)
            }
            Leaving::Release { number, kept_by } => {
                let (lease, attempt) = (Arc::clone(lease), Attempt::First);
                let release = Release { number, lease, slot, reply, attempt };
                forget(&kept_by, Some(here));
                self.release(number, Order::Release(release), &kept_by)
                    .map_err(|NoKeeper| Error::Closed)?;
                Ok(Ordered::Release)
            }
        }
    }

    /// Without a keeper the lease ends by itself.
    pub(crate) fn abandon(&self, abandoned: Abandoned, home: Home) {
        let number = self.desk.ledger.begin(abandoned.key.clone(), Home::here());
        let _ = self.release(number, Order::Abandon { number, abandoned }, &[home]);
    }

    /// Without a keeper the lease ends by itself.
    pub(crate) fn hold_on(&self, hold_on: HoldOn, home: Home) {
        let number = self.desk.ledger.begin(hold_on.key.clone(), Home::here());
        let _ = self.release(number, Order::HoldOn { number, hold_on }, &[home]);
    }

    /// Whether somebody drives this runtime: its keeper answers within this time.
    pub(crate) async fn is_driven(&self, home: Home, within: Duration) -> bool {
        let (reply, answer) = oneshot::channel();
        let asked = self.send_to(home, Order::Answer(reply));
        asked.is_ok() && timeout(within, answer).await.is_ok_and(|answer| answer.is_ok())
    }

    /// Releases all that is held, and whatever is granted from now on.
    pub(crate) fn close(&self) {
        for (number, lease) in self.desk.ledger.close(Home::here()) {
            self.give_back(number, lease);
        }
    }

    /// Releases here what other runtimes were to release and have not released yet.
    pub(crate) fn take_over(&self) {
        for (number, lease) in self.desk.ledger.of_others(Home::here()) {
            let attempt = Attempt::Repeated;
            let release = Release { number, lease, slot: None, reply: None, attempt };
            // Whoever was to do it may still do it.
            let _ = self.send_here(Order::Release(release));
        }
    }

    /// Tells when all releases are done that were ordered before.
    pub(crate) fn settled(&self) -> oneshot::Receiver<()> {
        let (done, settled) = oneshot::channel();
        self.desk.ledger.tell_when_done(done);
        settled
    }

    /// The keys of what could not be released since the client was closed.
    pub(crate) fn undone(&self) -> Vec<String> {
        self.desk.ledger.undone()
    }

    fn give_back(&self, number: u64, lease: Arc<Lease>) {
        let attempt = Attempt::First;
        let release = Release { number, lease, slot: None, reply: None, attempt };
        // Without a keeper the lease ends by itself.
        let _ = self.release(number, Order::Release(release), &[]);
    }

    /// By the keeper of this runtime; else by one of these, as outside of any runtime; else by any.
    fn release(&self, number: u64, order: Order, kept_by: &[Home]) -> Result<(), NoKeeper> {
        let Err(mut order) = self.send_here(order) else { return Ok(()) };
        let any: Vec<_> = self.keepers().keys().copied().collect();
        for home in kept_by.iter().copied().chain(any) {
            self.desk.ledger.pass_on(number, home);
            match self.send_to(home, order) {
                Ok(()) => return Ok(()),
                Err(back) => order = back,
            }
        }
        self.desk.ledger.end(number, Outcome::Failed);
        Err(NoKeeper)
    }

    /// Gives the order back if there is no such keeper, or its runtime has ended.
    fn send_to(&self, home: Home, order: Order) -> Result<(), Order> {
        match self.keepers().get(&home) {
            Some(keeper) => keeper.send(order).map_err(|SendError(order)| order),
            None => Err(order),
        }
    }

    /// Gives the order back outside of any runtime, and where the runtime is ending.
    fn send_here(&self, order: Order) -> Result<(), Order> {
        let Ok(runtime) = Handle::try_current() else { return Err(order) };
        let (home, mut keepers) = (Home::here(), self.keepers());
        let order = match keepers.get(&home) {
            None => order,
            Some(keeper) => match keeper.send(order) {
                Ok(()) => return Ok(()),
                Err(SendError(order)) => order,
            },
        };
        let Desk { ledger, wire, within, .. } = &*self.desk;
        let (sender, received) = unbounded_channel();
        let (ledger, wire) = (Arc::clone(ledger), Arc::clone(wire));
        // A runtime that is ending drops it at once, with the keepers locked.
        runtime.spawn(keeper::keep(received, home, ledger, wire, *within));
        sender.send(order).map_err(|SendError(order)| order)?;
        // Those of runtimes that have ended are not needed any more.
        keepers.retain(|_, keeper| !keeper.is_closed());
        keepers.insert(home, sender);
        Ok(())
    }

    fn keepers(&self) -> MutexGuard<'_, HashMap<Home, UnboundedSender<Order>>> {
        self.desk.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
