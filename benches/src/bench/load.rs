//! The loop that measures all contenders: it sends requests that were encoded before, and checks
//! every reply.

use super::contenders::Batch;
use std::time::{Duration, Instant};
use testkit::{Client, LineClient, Server};

/// The number of connections, and how much is under way on each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) connections: usize,
    /// Locks in one write. 1 is without pipelining: a command is sent when the one before it was
    /// answered.
    pub(crate) depth: usize,
}

impl Shape {
    /// How many writes of a connection may be unanswered. A single pipelining connection sends some
    /// ahead. Otherwise the server would idle while replies are read.
    fn window(self) -> usize {
        if self.connections == 1 && self.depth > 1 { 4 } else { 1 }
    }
}

/// The time that a piece of work took, for each lock.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    /// Elapsed time.
    pub(crate) wall: f64,
    /// Processor time of the server's main thread.
    pub(crate) processor: f64,
}

pub(crate) struct Load {
    lines: Vec<LineClient>,
    shape: Shape,
    observer: Client,
}

impl Load {
    pub(crate) fn on(server: &Server, shape: Shape) -> Self {
        let lines = (0..shape.connections).map(|_| server.line_client()).collect();
        Self { lines, shape, observer: server.client() }
    }

    /// Does all the work, which concerns so many locks.
    pub(crate) fn measure(&mut self, work: &Work, locks: usize) -> Sample {
        let before = processor_time(&mut self.observer);
        let wall = self.drive(work);
        let processor = processor_time(&mut self.observer) - before;
        let each = |time: Duration| time.as_secs_f64() / locks as f64;
        Sample { wall: each(wall), processor: each(processor) }
    }

    /// Connections take turns. Each has its own share of the work, in order.
    fn drive(&mut self, work: &Work) -> Duration {
        assert_eq!(work.shares.len(), self.lines.len());
        let longest = work.shares.iter().map(Vec::len).max().unwrap();
        let window = self.shape.window();
        let started = Instant::now();
        for turn in 0..longest + window {
            for (line, share) in self.lines.iter_mut().zip(&work.shares) {
                if let Some(batch) = turn.checked_sub(window).and_then(|turn| share.get(turn)) {
                    for reply in &batch.replies {
                        reply.check(line.line());
                    }
                }
                if let Some(batch) = share.get(turn) {
                    line.send(&batch.bytes);
                }
            }
        }
        started.elapsed()
    }
}

/// The work of each connection.
pub(crate) struct Work {
    shares: Vec<Vec<Batch>>,
}

impl Work {
    /// Divides the locks among the connections, and encodes each share.
    pub(crate) fn shared<T>(
        shape: Shape,
        locks: &[T],
        encode: impl Fn(&[T]) -> Vec<Batch>,
    ) -> Self {
        let share = locks.len() / shape.connections;
        assert_eq!(share * shape.connections, locks.len(), "shares differ");
        Self { shares: locks.chunks(share).map(encode).collect() }
    }
}

/// The processor time so far of the thread that executes commands, or of all threads on servers
/// that do not tell.
pub(crate) fn processor_time(observer: &mut Client) -> Duration {
    let text = observer.info_text("cpu");
    let field = |name: &str| -> Option<f64> {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(value.parse().unwrap())
    };
    let main = |way: &str| field(&format!("used_cpu_{way}_main_thread"));
    let all = |way: &str| field(&format!("used_cpu_{way}")).unwrap();
    let seconds = ["user", "sys"].map(|way| main(way).unwrap_or_else(|| all(way)));
    Duration::from_secs_f64(seconds.iter().sum())
}

/// How many bytes replicas have been sent, as the server counts them.
pub(crate) fn sent_to_replicas(client: &mut Client) -> u64 {
    let text = client.info_text("replication");
    let offset = text.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
    offset.unwrap().trim().parse().unwrap()
}
