//! Background traffic: connections that send pipelined commands as fast as the server answers them,
//! until this is dropped.
//!
//! One thread drives all connections. While the thread reads the replies of one connection, all others have a batch
//! under way. So the server is never idle, as under `redis-benchmark -c 50 -P 16`.

use super::request::all_encoded;
use super::{LineClient, Server};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{self, JoinHandle};

/// Commands that are sent in one write. Each reply must be one line: a status, an error, an integer or nil.
pub struct Batch {
    bytes: Vec<u8>,
    replies: usize,
}

impl Batch {
    /// A batch of these commands.
    pub fn of(commands: &[String]) -> Self {
        Self { bytes: all_encoded(commands), replies: commands.len() }
    }
}

/// Clients that send until this is dropped.
pub struct Traffic {
    over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// A connection of the traffic.
struct Sender {
    client: LineClient,
    /// The index of the next batch.
    next: usize,
    /// The number of outstanding replies.
    missing: usize,
}

impl Traffic {
    /// Opens this many connections. Each first sends `greeting`, such as `AUTH`, unless that is
    /// empty. Then each sends the batches in turn, starting with a different one.
    pub fn on(server: &Server, connections: usize, greeting: &str, batches: Vec<Batch>) -> Self {
        let connect = |index: usize| {
            let next = index * batches.len() / connections;
            let mut sender = Sender { client: server.line_client(), next, missing: 0 };
            if !greeting.is_empty() {
                sender.send(&Batch::of(&[greeting.to_owned()])).unwrap();
                sender.receive().unwrap();
            }
            sender
        };
        let senders: Vec<_> = (0..connections).map(connect).collect();
        let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_over, count) = (over.clone(), answered.clone());
        let thread = Some(thread::spawn(move || {
            // The connections end with the server. The owner of the server notices that.
            let _ = drive(senders, &batches, &is_over, &count);
        }));
        Self { over, answered, thread }
    }

    /// The number of commands answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(SeqCst)
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn drive(
    mut senders: Vec<Sender>,
    batches: &[Batch],
    over: &AtomicBool,
    answered: &AtomicU64,
) -> io::Result<()> {
    while !over.load(SeqCst) {
        for sender in &mut senders {
            let received = sender.receive()?;
            answered.fetch_add(received as u64, SeqCst);
            let batch = &batches[sender.next % batches.len()];
            sender.next += 1;
            sender.send(batch)?;
        }
    }
    // Waits for the commands under way, so that none is executed after the traffic has ended.
    senders.iter_mut().try_for_each(|sender| sender.receive().map(drop))
}

impl Sender {
    fn send(&mut self, batch: &Batch) -> io::Result<()> {
        self.missing += batch.replies;
        self.client.try_send(&batch.bytes)
    }

    /// Reads all outstanding replies, and returns their number.
    fn receive(&mut self) -> io::Result<usize> {
        let count = std::mem::take(&mut self.missing);
        for _ in 0..count {
            self.client.try_line()?;
        }
        Ok(count)
    }
}
