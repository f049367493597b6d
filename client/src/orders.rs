//! What the keeper is told to do.
//!
//! The keeper is started by the first order, on the runtime of whoever gives it. A client in a static outlives runtimes,
//! as those of tests: its next order starts another keeper on the next one.

use crate::clock::Moment;
use crate::guard::{Hold, Slot};
use crate::keeper;
use crate::lease::Lease;
use crate::queue::Parked;
use crate::wire::Wire;
use crate::{Error, Released};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, error::SendError, unbounded_channel};
use tokio::sync::{OwnedMutexGuard, oneshot};

pub(crate) enum Order {
    /// There is a request that may lead to more.
    Begin,
    Keep(Arc<Lease>),
    /// Its end is another one now.
    LookAgain(u64),
    /// It is to end by itself.
    Forget(u64),
    Release {
        lease: Arc<Lease>,
        slot: Option<Arc<Slot>>,
        reply: Option<Reply>,
    },
    /// Nobody waits any more for a grant that may have been made.
    Abandon {
        key: String,
        owner: String,
        ttl: Duration,
        place: Option<OwnedMutexGuard<Weak<Hold>>>,
        parked: Option<Box<Parked>>,
    },
    /// Leaves it held until then, and releases it no sooner.
    HoldOn {
        key: String,
        owner: String,
        fence: u64,
        until: Moment,
    },
    /// Says when all releases are done that were ordered before.
    Settle(oneshot::Sender<()>),
    /// Releases all that is held, and whatever is granted from now on.
    Close,
    /// Says the keys of what could not be released since it was closed.
    Undone(oneshot::Sender<Vec<String>>),
}

pub(crate) type Reply = oneshot::Sender<Result<Released, Error>>;

/// Where orders go. The keeper ends when nobody can give any more, and all is done.
#[derive(Clone)]
pub(crate) struct Orders {
    desk: Arc<Desk>,
}

struct Desk {
    keeper: Mutex<Option<UnboundedSender<Order>>>,
    wire: Arc<Wire>,
    within: Duration,
}

/// There is no runtime that a keeper could be started on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoKeeper;

impl Orders {
    pub(crate) fn new(wire: Arc<Wire>, within: Duration) -> Self {
        Self { desk: Arc::new(Desk { keeper: Mutex::default(), wire, within }) }
    }

    pub(crate) fn send(&self, order: Order) -> Result<(), NoKeeper> {
        let Desk { keeper, wire, within } = &*self.desk;
        let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let order = match &*keeper {
            None => order,
            Some(keeper) => match keeper.send(order) {
                Ok(()) => return Ok(()),
                Err(SendError(order)) => order,
            },
        };
        let runtime = Handle::try_current().map_err(|_| NoKeeper)?;
        let (orders, received) = unbounded_channel();
        runtime.spawn(keeper::keep(received, Arc::clone(wire), *within));
        // A runtime that is ending takes no more tasks.
        orders.send(order).map_err(|_| NoKeeper)?;
        *keeper = Some(orders);
        Ok(())
    }
}
