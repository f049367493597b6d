//! Keys, time and connections, for the engine that grants the locks.

use leasehold_core::command::{Error, Reply, acquire};
use leasehold_core::engine::{
    self, Announced, Answer, Authority, Initiator, Key, Lock, Memory, Mode, Warning,
};
use leasehold_core::lock::{
    KeptOwner, KeptTicket, Limits, Moment, Monotonic, Name, Owner, Room, Seen, Stored, Ttl,
    WaitKind, WaiterId, Write,
};
use leasehold_core::observe::Event;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use uuid::Uuid;

/// The longest rest between two looks at what is due: some ends of bound holds do not announce themselves.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) type Keys = HashMap<Vec<u8>, Seen>;

pub(super) struct Host {
    /// Nobody waits on a connection, because the client waits by tickets.
    pub(super) engine: Memory<Infallible>,
    pub(super) keys: RefCell<Keys>,
    pub(super) connections: RefCell<BTreeMap<u64, Connection>>,
    /// The connection whose command is being executed.
    pub(super) asking: Cell<u64>,
    latest: Cell<u64>,
    /// What a quorum tells servers apart by.
    pub(super) run_id: Uuid,
    due_changed: Notify,
    started: Instant,
}

pub(super) struct Connection {
    replies: UnboundedSender<Vec<u8>>,
    pub(super) channels: BTreeSet<Vec<u8>>,
}

impl Host {
    pub(super) fn new() -> Self {
        Self {
            engine: Memory::new(),
            keys: RefCell::default(),
            connections: RefCell::default(),
            asking: Cell::default(),
            latest: Cell::default(),
            run_id: Uuid::new_v4(),
            due_changed: Notify::new(),
            started: Instant::now(),
        }
    }

    /// Does what is due, for as long as there is a server.
    pub(super) async fn keep_time(self: Rc<Self>) {
        loop {
            let now = engine::Host::clocks(&*self);
            let due = self.engine.next_due(now).map(|due| due.whole_millis_after(now.wall));
            let rest = due.map_or(LOOK_EVERY, Duration::from_millis).min(LOOK_EVERY);
            let _ = tokio::time::timeout(rest, self.due_changed.notified()).await;
            self.engine.on(&*self).work();
        }
    }

    /// Called after whatever may have changed what is due.
    pub(super) fn reconsider(&self) {
        if self.engine.take_due_changed() {
            self.due_changed.notify_one();
        }
    }

    /// The number of a new connection, and what it is sent.
    pub(super) fn connected(&self) -> (u64, UnboundedReceiver<Vec<u8>>) {
        let (id, (replies, sent)) = (self.latest.get().saturating_add(1), unbounded_channel());
        self.latest.set(id);
        let connection = Connection { replies, channels: BTreeSet::new() };
        self.connections.borrow_mut().insert(id, connection);
        (id, sent)
    }

    /// The number of channels that the asking connection has subscribed to then.
    pub(super) fn subscribe(&self, channel: &[u8]) -> Reply<'static> {
        let mut connections = self.connections.borrow_mut();
        Reply::count(connections.get_mut(&self.asking.get()).map_or(0, |asking| {
            asking.channels.insert(channel.to_vec());
            asking.channels.len()
        }))
    }

    pub(super) fn send(&self, id: u64, what: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        what(&mut out);
        // A connection that has ended needs no reply.
        self.connections.borrow().get(&id).map(|connection| connection.replies.send(out));
    }

    pub(super) fn kill_others(&self, are_subscribers: bool) {
        let is_one = |id: u64, each: &Connection| {
            id != self.asking.get() && each.channels.is_empty() != are_subscribers
        };
        let connections = self.connections.borrow();
        let killed = connections.iter().filter(|(id, each)| is_one(**id, each));
        let killed: Vec<_> = killed.map(|(id, _)| *id).collect();
        drop(connections);
        killed.into_iter().for_each(|id| self.disconnected(id));
    }

    pub(super) fn disconnected(&self, id: u64) {
        self.connections.borrow_mut().remove(&id);
        self.engine.connection_ended(id, engine::Host::monotonic(self));
        self.reconsider();
    }
}

impl engine::Host for Host {
    type Client = Infallible;
    type Lock<'n> = InMemory<'n>;

    fn now(&self) -> Moment {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment::from_micros(micros(since))
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic::from_micros(micros(self.started.elapsed()))
    }

    fn authority(&self) -> Authority {
        Authority::Yes
    }

    /// Those of a server whose settings nobody has changed.
    fn limits(&self) -> Limits {
        Limits { max_ttl: Ttl::USUAL_LIMIT, max_holders: 1_000 }
    }

    fn room(&self, _: WaitKind) -> Room {
        Room::UNLIMITED
    }

    fn may_block(&self) -> bool {
        false
    }

    fn block(&self, _: bool) -> Result<Infallible, Error> {
        Err(Error::CannotBeBlocked)
    }

    fn waits(&self, _: WaiterId) {}

    fn client_id(&self) -> u64 {
        self.asking.get()
    }

    fn connection(&self) -> Option<u64> {
        Some(self.asking.get())
    }

    fn is_connected(&self, connection: u64) -> bool {
        self.connections.borrow().contains_key(&connection)
    }

    fn hear_of_connections(&self) {}

    fn lock<'n>(&'n self, name: Name<'n>) -> Option<InMemory<'n>> {
        Some(self.beside(name))
    }

    fn beside<'n>(&'n self, name: Name<'n>) -> InMemory<'n> {
        InMemory { host: self, name }
    }

    fn answer(&self, _: Name<'_>, client: Infallible, _: KeptOwner, _: Answer) {
        match client {}
    }

    fn announce(
        &self,
        name: Name<'_>,
        ticket: &KeptTicket,
        owner: Owner<'_>,
        answer: &Answer,
    ) -> Announced {
        let (Some(fence_number), Some(channel)) = (answer.fence_number(), &ticket.channel) else {
            return Announced::Silently;
        };
        let message = acquire::notice(fence_number, owner, name.key);
        let words = [b"message", &**channel, &message].map(Reply::Bytes);
        let connections = self.connections.borrow();
        let subscribers = connections.iter().filter(|(_, each)| each.channels.contains(&**channel));
        Announced::To { receivers: subscribers.inspect(|(id, _)| self.push(**id, &words)).count() }
    }

    fn demoted(&self) -> Error {
        Error::Demoted
    }

    fn slot_has_gone(&self) {}

    fn warn(&self, _: Warning) {}
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(super) struct InMemory<'n> {
    host: &'n Host,
    name: Name<'n>,
}

impl Lock for InMemory<'_> {
    type Key<'s>
        = Opened<'s>
    where
        Self: 's;

    fn name(&self) -> Name<'_> {
        self.name
    }

    fn may_read(&self) -> Authority {
        Authority::Yes
    }

    fn may_write(&self, _: Initiator) -> Authority {
        Authority::Yes
    }

    fn open(&self, _: Mode) -> Result<Opened<'_>, Error> {
        Ok(Opened { keys: self.host.keys.borrow_mut(), key: self.name.key })
    }

    fn publish(&self, _: Event) {}
}

/// No other key is open meanwhile.
pub(super) struct Opened<'s> {
    keys: RefMut<'s, Keys>,
    key: &'s [u8],
}

impl Key for Opened<'_> {
    fn stored(&self) -> Stored<'_> {
        self.keys.get(self.key).map_or(Stored::Nothing, Seen::as_stored)
    }

    fn write(&mut self, write: &Write<'_>) -> Result<(), Error> {
        let written = write.applied_to(self.keys.remove(self.key));
        self.keys.extend(written.map(|seen| (self.key.to_vec(), seen)));
        Ok(())
    }
}
