//! Being told of grants: one connection for all tickets that a runtime has at a server.
//!
//! A message may be lost, and one may come for nothing: it is a reason to ask, and nothing more.

use crate::home::Home;
use crate::link::Driver;
use crate::locks::new_uuid;
use crate::node::within;
use crate::poison::locked;
use redis::aio::{AsyncPushSender, ConnectionLike, MultiplexedConnection};
use redis::{PushInfo, PushKind, RedisError, Value, cmd};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// How many places are asked for at a time. Renewals and releases go over the same connection, and wait for no more than
/// these.
const MOST_ASKING: usize = 256;

pub(crate) struct Subscription {
    pub(crate) home: Home,
    /// Nobody else knows it.
    pub(crate) channel: String,
    connection: MultiplexedConnection,
    driver: Driver,
    heard: Arc<Heard>,
    asking: Semaphore,
    /// When it was found to be alive.
    checked: Mutex<Instant>,
}

/// Who is to be told what.
#[derive(Default)]
pub(crate) struct Heard {
    tickets: Mutex<Tickets>,
}

#[derive(Default)]
struct Tickets {
    closed: bool,
    of: HashMap<Ticket, Arc<Notify>>,
}

/// A place in the queue of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ticket {
    owner: Box<str>,
    key: Box<str>,
}

/// A ticket that is told of, until this is dropped.
pub(crate) struct Seat {
    pub(crate) subscription: Arc<Subscription>,
    ticket: Ticket,
    told: Arc<Notify>,
}

/// What whoever has a ticket is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// That it was granted.
    Granted,
    /// Nothing any more: the connection is lost, and so may be what was to be told.
    Closed,
}

impl Subscription {
    pub(crate) async fn begin(
        mut connection: MultiplexedConnection,
        driver: Driver,
        heard: Arc<Heard>,
        limit: Duration,
    ) -> Result<Self, RedisError> {
        let channel = format!("leasehold:{}", new_uuid());
        within(limit, connection.subscribe(&channel)).await?;
        Ok(Self {
            home: Home::here(),
            channel,
            connection,
            driver,
            heard,
            asking: Semaphore::new(MOST_ASKING),
            checked: Mutex::new(Instant::now()),
        })
    }

    /// Also if its runtime has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.heard.tickets().closed || !self.driver.is_running()
    }

    /// This ticket is told of from now on.
    pub(crate) fn seat(self: &Arc<Self>, owner: &str, key: &str) -> Seat {
        let ticket = Ticket { owner: owner.into(), key: key.into() };
        let told = Arc::<Notify>::default();
        let mut tickets = self.heard.tickets();
        if tickets.closed {
            told.notify_one();
        }
        tickets.of.insert(ticket.clone(), Arc::clone(&told));
        drop(tickets);
        Seat { subscription: Arc::clone(self), ticket, told }
    }

    /// Held by whoever asks for a place, in the order of coming.
    pub(crate) async fn turn(&self) -> Result<SemaphorePermit<'_>, RedisError> {
        // It is never closed.
        let closed = |_| RedisError::from(io::Error::from(io::ErrorKind::NotConnected));
        self.asking.acquire().await.map_err(closed)
    }

    /// A connection may die without a word. Whoever looks after a ticket looks after this, too, and one at a time does.
    pub(crate) async fn check(&self, every: Duration, limit: Duration) {
        if !self.is_due(every) {
            return;
        }
        let ping = cmd("PING");
        let mut connection = self.connection.clone();
        // A server that refuses it is there.
        if within(limit, connection.req_packed_command(&ping)).await.is_err() {
            self.heard.close();
        }
    }
}

impl Subscription {
    /// Whether nobody has checked it for so long. Then this one does.
    fn is_due(&self, every: Duration) -> bool {
        let mut checked = locked(&self.checked);
        let is_due = checked.elapsed() >= every;
        if is_due {
            *checked = Instant::now();
        }
        is_due
    }
}

impl Seat {
    /// What was told since this was called last.
    pub(crate) async fn told(&self) -> Told {
        self.told.notified().await;
        if self.subscription.is_closed() { Told::Closed } else { Told::Granted }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut tickets = self.subscription.heard.tickets();
        let is_this = |told: &Arc<Notify>| Arc::ptr_eq(told, &self.told);
        if tickets.of.get(&self.ticket).is_some_and(is_this) {
            tickets.of.remove(&self.ticket);
        }
    }
}

impl Heard {
    pub(crate) fn told(heard: &Arc<Self>) -> impl AsyncPushSender + use<> {
        let heard = Arc::clone(heard);
        move |told: PushInfo| {
            match told.kind {
                PushKind::Message => {
                    if let Some(Value::BulkString(message)) = told.data.get(1) {
                        heard.granted(message);
                    }
                }
                PushKind::Disconnection => heard.close(),
                _ => {}
            }
            Ok::<_, Infallible>(())
        }
    }

    fn granted(&self, message: &[u8]) {
        let Some(ticket) = Ticket::parse(message) else { return };
        let told = self.tickets().of.get(&ticket).cloned();
        // It runs wakers of the program.
        if let Some(told) = told {
            told.notify_one();
        }
    }

    fn close(&self) {
        let mut tickets = self.tickets();
        tickets.closed = true;
        let all: Vec<_> = tickets.of.drain().map(|(_, told)| told).collect();
        drop(tickets);
        all.iter().for_each(|told| told.notify_one());
    }

    fn tickets(&self) -> MutexGuard<'_, Tickets> {
        locked(&self.tickets)
    }
}

impl Ticket {
    /// `<fence> <length of owner> <owner> <key>`. Owners and keys of this client are text.
    fn parse(message: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(message).ok()?;
        let (_fence, rest) = text.split_once(' ')?;
        let (length, rest) = rest.split_once(' ')?;
        let (owner, rest) = rest.split_at_checked(length.parse().ok()?)?;
        let key = rest.strip_prefix(' ')?;
        Some(Self { owner: owner.into(), key: key.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(message: &str) -> Option<(String, String)> {
        let ticket = Ticket::parse(message.as_bytes())?;
        Some((ticket.owner.into(), ticket.key.into()))
    }

    #[test]
    fn a_message_names_the_owner_and_the_lock_whatever_is_in_their_names() {
        let ticket = |owner: &str, key: &str| Some((owner.to_owned(), key.to_owned()));
        assert_eq!(parsed("1795 5 alice printer"), ticket("alice", "printer"));
        assert_eq!(parsed("1795 5 a  li the printer"), ticket("a  li", "the printer"));
        assert_eq!(parsed("1795 2 \u{e9} 3 a b"), ticket("\u{e9}", "3 a b"));
        for mistake in
            ["", "1795", "1795 5", "1795 9 alice", "1795 x alice printer", "1795 3 \u{e9} printer"]
        {
            assert_eq!(parsed(mistake), None);
        }
    }

    #[test]
    fn whoever_is_granted_is_told_and_at_the_end_everybody_is() {
        let heard = Heard::default();
        let seat = |owner: &str| {
            let (ticket, told) =
                (Ticket { owner: owner.into(), key: "printer".into() }, Arc::<Notify>::default());
            heard.tickets().of.insert(ticket, Arc::clone(&told));
            told
        };
        let is_told =
            |told: &Notify| futures_util::FutureExt::now_or_never(told.notified()).is_some();
        let (alice, bob) = (seat("alice"), seat("bob"));
        heard.granted(b"1795 5 alice printer");
        heard.granted(b"1795 5 alice scanner");
        assert!(is_told(&alice) && !is_told(&bob));
        heard.close();
        assert!(is_told(&alice) && is_told(&bob));
    }
}
