//! A link that can be cut: a proxy before a port.
//!
//! ```text
//!   replica, sentinel, client ──► proxy.port() ──► server
//!                                    │ cut: drops bytes and keeps connections open, like a pulled
//!                                    │      cable
//!                                    │ heal: ends connections that lost something; new ones pass
//!                                    │ hold: keeps bytes for the server on open connections, even
//!                                    │       when the client has left
//!                                    │ deliver: sends the kept bytes on
//!                                    │ deafen: drops the server's bytes on open connections for ever;
//!                                    │       new ones pass
//!                                    │ slow: delays bytes, and keeps their order
//! ```
//!
//! Each connection has four threads: in each direction, one reads, and one writes when it is time.

use super::Client;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The direction in which bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From clients to the server.
    ToServer,
    /// From the server to clients.
    FromServer,
}

/// A link to a server that can be cut, slowed down and stalled.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    /// The server's port.
    server: u16,
    cut: Ways,
    /// A cut concerns only every n-th connection.
    one_in: AtomicU64,
    accepted: AtomicU64,
    /// Connections with a lower number get nothing from the server.
    deaf_below: AtomicU64,
    delay_micros: AtomicU64,
    /// Connections with a lower number are not delayed.
    fast_below: AtomicU64,
    /// If set, only connections that have subscribed to something are delayed.
    only_subscriptions: AtomicBool,
    over: AtomicBool,
    links: Mutex<Vec<Arc<Link>>>,
}

/// A state for each direction.
#[derive(Default)]
struct Ways {
    to_server: AtomicBool,
    from_server: AtomicBool,
}

/// A connection, from end to end.
struct Link {
    client: TcpStream,
    server: TcpStream,
    number: u64,
    has_subscribed: AtomicBool,
    /// The directions in which something was dropped. Later bytes would make no sense there.
    torn: Ways,
    /// Whether bytes for the server are kept.
    held: Mutex<bool>,
    delivered: Condvar,
}

/// Received bytes, and when to pass them on. No bytes mean the end of the connection.
struct Parcel {
    due: Instant,
    bytes: Vec<u8>,
}

impl Proxy {
    /// A proxy before this port of this machine.
    pub fn to(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State { server, one_in: AtomicU64::new(1), ..State::default() });
        let shared = Arc::clone(&state);
        let acceptor = Some(thread::spawn(move || accept(&listener, &shared)));
        Self { port, state, acceptor }
    }

    /// The port to connect to instead of the server's.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A connection through this proxy, speaking RESP2.
    pub fn client(&self) -> Client {
        Client::over_tcp((Ipv4Addr::LOCALHOST, self.port)).unwrap()
    }

    /// Drops bytes in both directions.
    pub fn cut(&self) {
        [Way::ToServer, Way::FromServer].into_iter().for_each(|way| self.cut_one_way(way));
    }

    /// Drops bytes in this direction.
    pub fn cut_one_way(&self, way: Way) {
        self.state.cut.of(way).store(true, SeqCst);
    }

    /// From now on a cut concerns only one in `count` connections.
    pub fn cut_only_one_in(&self, count: u64) {
        self.state.one_in.store(count, SeqCst);
    }

    /// Lets all bytes pass again. Connections that lost something end.
    pub fn heal(&self) {
        for way in [Way::ToServer, Way::FromServer] {
            self.state.cut.of(way).store(false, SeqCst);
        }
        self.state.end_links(|link| link.torn.either());
    }

    /// Keeps the bytes for the server on the present connections. New connections pass.
    pub fn hold(&self) {
        self.state.links().iter().for_each(|link| link.set_held(true));
    }

    /// Sends the kept bytes on.
    pub fn deliver(&self) {
        self.state.links().iter().for_each(|link| link.set_held(false));
    }

    /// Drops for ever the server's bytes on the present connections, and hides their end. New
    /// connections pass. A client sees this when its router has forgotten its connections.
    pub fn deafen(&self) {
        self.state.deaf_below.store(self.connections(), SeqCst);
    }

    /// The number of connections so far.
    pub fn connections(&self) -> u64 {
        self.state.accepted.load(SeqCst)
    }

    /// From now on delays bytes by this time.
    pub fn slow(&self, delay: Duration) {
        self.state.delay_micros.store(delay.as_micros().try_into().unwrap(), SeqCst);
    }

    /// Like `slow`, for all connections except the first `first`.
    pub fn slow_all_but(&self, first: u64, delay: Duration) {
        self.state.fast_below.store(first, SeqCst);
        self.slow(delay);
    }

    /// Like `slow`, only for connections with a subscription.
    pub fn slow_subscriptions(&self, delay: Duration) {
        self.state.only_subscriptions.store(true, SeqCst);
        self.slow(delay);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.over.store(true, SeqCst);
        // Wakes the acceptor, which waits for a connection.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.deliver();
        self.state.end_links(|_| true);
    }
}

impl Ways {
    fn of(&self, way: Way) -> &AtomicBool {
        match way {
            Way::ToServer => &self.to_server,
            Way::FromServer => &self.from_server,
        }
    }

    fn either(&self) -> bool {
        self.to_server.load(SeqCst) || self.from_server.load(SeqCst)
    }
}

impl State {
    fn is_cut(&self, link: &Link, way: Way) -> bool {
        let is_deaf = way == Way::FromServer && link.number < self.deaf_below.load(SeqCst);
        let is_cut = self.cut.of(way).load(SeqCst);
        is_deaf || (is_cut && link.number.is_multiple_of(self.one_in.load(SeqCst)))
    }

    fn delay(&self, link: &Link) -> Duration {
        let is_fast = link.number < self.fast_below.load(SeqCst)
            || (self.only_subscriptions.load(SeqCst) && !link.has_subscribed.load(SeqCst));
        Duration::from_micros(if is_fast { 0 } else { self.delay_micros.load(SeqCst) })
    }

    fn links(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_links(&self, which: impl Fn(&Link) -> bool) {
        self.links().retain(|link| {
            let ends = which(link);
            if ends {
                link.end();
            }
            !ends
        });
    }
}

impl Link {
    fn end(&self) {
        // The connection may have ended already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    fn set_held(&self, held: bool) {
        *self.is_held() = held;
        self.delivered.notify_all();
    }

    fn is_held(&self) -> MutexGuard<'_, bool> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while bytes in this direction are held.
    fn wait_to_deliver(&self, way: Way) {
        if way == Way::ToServer {
            let waited = self.delivered.wait_while(self.is_held(), |held| *held);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn ends(&self, way: Way) -> (&TcpStream, &TcpStream) {
        match way {
            Way::ToServer => (&self.client, &self.server),
            Way::FromServer => (&self.server, &self.client),
        }
    }

    /// Reads the bytes in this direction until their end.
    fn receive(&self, way: Way, state: &State, parcels: &Sender<Parcel>) {
        let (mut from, _) = self.ends(way);
        let mut bytes = [0; 16_384];
        loop {
            let count = from.read(&mut bytes).unwrap_or(0);
            let text = &bytes[..count];
            if way == Way::ToServer
                && text.windows(9).any(|word| word.eq_ignore_ascii_case(b"subscribe"))
            {
                self.has_subscribed.store(true, SeqCst);
            }
            let due = Instant::now() + state.delay(self);
            let is_over = parcels.send(Parcel { due, bytes: bytes[..count].to_vec() }).is_err();
            if is_over || count == 0 {
                return;
            }
        }
    }

    /// Passes on the bytes in this direction when it is time, until one end closes.
    fn pass_on(&self, way: Way, state: &State, parcels: Receiver<Parcel>) {
        let (_, mut to) = self.ends(way);
        let torn = self.torn.of(way);
        let is_cut = || state.is_cut(self, way);
        for Parcel { due, bytes } in parcels {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if bytes.is_empty() {
                break;
            }
            self.wait_to_deliver(way);
            torn.fetch_or(is_cut(), SeqCst);
            if !torn.load(SeqCst) {
                if to.write_all(&bytes).is_err() {
                    break;
                }
            } else if !is_cut() {
                // The link was healed just now, and `heal` may have missed that this connection lost something.
                break;
            }
        }
        self.wait_to_deliver(way);
        // A cut also hides the end of a connection. The other side sees the end when the link is healed.
        torn.fetch_or(is_cut(), SeqCst);
        if !is_cut() {
            state.end_links(|link| ptr::eq(link, self));
        }
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for client in listener.incoming() {
        if state.over.load(SeqCst) {
            return;
        }
        // If no process listens, the client sees its connection closed.
        let Ok(client) = client else { continue };
        let Ok(server) = TcpStream::connect(("127.0.0.1", state.server)) else { continue };
        // Fails for a connection that has ended. Its first read will fail too.
        let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
        let number = state.accepted.fetch_add(1, SeqCst);
        let (torn, held, delivered) = Default::default();
        let has_subscribed = AtomicBool::new(false);
        let link = Link { client, server, number, has_subscribed, torn, held, delivered };
        let link = Arc::new(link);
        state.links().push(Arc::clone(&link));
        for way in [Way::ToServer, Way::FromServer] {
            let (sender, parcels) = channel();
            let (from, receiving) = (Arc::clone(&link), Arc::clone(state));
            thread::spawn(move || from.receive(way, &receiving, &sender));
            let (link, state) = (Arc::clone(&link), Arc::clone(state));
            thread::spawn(move || link.pass_on(way, &state, parcels));
        }
    }
}
