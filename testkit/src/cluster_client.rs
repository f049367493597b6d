//! A client of a cluster. It follows redirections and asks again, as client libraries do.
//!
//! | reply                                          | what the client does              |
//! |------------------------------------------------|-----------------------------------|
//! | MOVED                                          | remembers the node, and asks it   |
//! | ASK                                            | asks that node once               |
//! | TRYAGAIN, CLUSTERDOWN                          | asks again in a moment            |
//! | UNBLOCKED, READONLY, LOADING, MASTERDOWN, the  | asks another node in a moment     |
//! | end of the connection                          |                                   |

use super::{Client, Words};
use redis::Value;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the client waits before it asks again.
const MOMENT: Duration = Duration::from_millis(10);

/// How long the client goes on asking.
const PATIENCE: Duration = Duration::from_secs(15);

/// A connection to each node, and the known places of slots.
pub struct ClusterClient {
    ports: Vec<u16>,
    /// The port of the node that last had each key.
    places: HashMap<Vec<u8>, u16>,
    connections: HashMap<u16, Client>,
    /// The codes of the error replies so far, in order.
    pub detours: Vec<String>,
    /// When the client last sent a request.
    pub asked: Instant,
    /// The number of requests so far, for other threads to watch.
    pub requests: Arc<AtomicU64>,
}

enum Next {
    At(u16),
    OnceAt(u16),
    /// Ask the same node, in a moment.
    Again,
    /// Ask any node, in a moment.
    Elsewhere,
}

impl ClusterClient {
    pub(crate) fn of(ports: Vec<u16>) -> Self {
        Self {
            ports,
            places: HashMap::new(),
            connections: HashMap::new(),
            detours: Vec::new(),
            asked: Instant::now(),
            requests: Arc::default(),
        }
    }

    /// Sends a command to the node that has its key, the second word.
    pub fn cmd(&mut self, words: impl Words) -> Value {
        let words = words.words();
        let key = words[1].clone();
        let deadline = Instant::now() + PATIENCE;
        let mut place = *self.places.get(&key).unwrap_or(&self.ports[0]);
        let mut asking = false;
        loop {
            self.asked = Instant::now();
            self.requests.fetch_add(1, SeqCst);
            let reply = self.ask(place, asking, &words);
            asking = false;
            let Some((next, code)) = redirection(reply.as_ref()) else {
                return reply.expect("a redirection otherwise");
            };
            self.detours.push(code);
            let last = &self.detours[self.detours.len().saturating_sub(20)..];
            assert!(Instant::now() < deadline, "sent about for ever: … {last:?}");
            match next {
                Next::At(port) => {
                    self.places.insert(key.clone(), port);
                    place = port;
                }
                Next::OnceAt(port) => {
                    place = port;
                    asking = true;
                }
                Next::Again => {
                    sleep(MOMENT);
                    place = *self.places.get(&key).unwrap_or(&place);
                }
                Next::Elsewhere => {
                    sleep(MOMENT);
                    let last = self.ports.iter().position(|port| *port == place);
                    place = self.ports[last.map_or(0, |last| last + 1) % self.ports.len()];
                    self.places.remove(&key);
                }
            }
        }
    }

    /// The reply, or `None` if the connection ended before it.
    fn ask(&mut self, port: u16, asking: bool, words: &[Vec<u8>]) -> Option<Value> {
        let reply = self.try_to_ask(port, asking, words);
        if reply.is_none() {
            self.connections.remove(&port);
        }
        reply
    }

    fn try_to_ask(&mut self, port: u16, asking: bool, words: &[Vec<u8>]) -> Option<Value> {
        let client = match self.connections.entry(port) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(none) => none.insert(Client::over_tcp((Ipv4Addr::LOCALHOST, port)).ok()?),
        };
        if asking {
            client.try_cmd("ASKING").ok()?;
        }
        client.try_cmd(words.to_vec()).ok()
    }
}

/// Where to ask again, and why. `None` if the reply is final.
fn redirection(reply: Option<&Value>) -> Option<(Next, String)> {
    let Some(reply) = reply else { return Some((Next::Elsewhere, "(closed)".to_owned())) };
    let Value::ServerError(error) = reply else { return None };
    // `slot host:port`
    let port = || error.details()?.rsplit(':').next()?.parse().ok();
    let next = match error.code() {
        "MOVED" => Next::At(port()?),
        "ASK" => Next::OnceAt(port()?),
        "TRYAGAIN" | "CLUSTERDOWN" => Next::Again,
        "UNBLOCKED" | "READONLY" | "LOADING" | "MASTERDOWN" => Next::Elsewhere,
        _ => return None,
    };
    Some((next, error.code().to_owned()))
}
