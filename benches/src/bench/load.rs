//! The loop that measures all contenders: it sends requests that were encoded before, and checks every reply.

use super::in_turns;
use super::statistics::Spread;
use std::fmt::Display;
use std::time::{Duration, Instant};
use testkit::{LineClient, Server, encoded};

/// The reply of a success, in one or more lines.
#[derive(Clone, Copy)]
pub(crate) enum Reply {
    /// Any number: a fence.
    Number,
    Exactly(&'static [u8]),
    /// Any value, or its length.
    Something,
}

pub(crate) const ONE: Reply = Reply::Exactly(b":1");
pub(crate) const OKAY: Reply = Reply::Exactly(b"+OK");

impl Reply {
    #[track_caller]
    pub(crate) fn check(self, line: &[u8]) {
        let succeeded = match self {
            Self::Number => line.first() == Some(&b':'),
            Self::Exactly(wanted) => line == wanted,
            Self::Something => !line.is_empty() && !line.starts_with(b"-") && line != b"$-1",
        };
        assert!(succeeded, "answered {}", line.escape_ascii());
    }
}

/// A command, and what each line of its reply must be.
pub(crate) type Command = (String, Vec<Reply>);

/// The same for any of many, with `{}` for its name.
pub(crate) type Pattern = (&'static str, &'static [Reply]);

pub(crate) fn of_one((line, replies): Pattern, name: impl Display) -> Command {
    (line.replace("{}", &name.to_string()), replies.to_vec())
}

/// The number of connections, and how much is under way on each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) connections: usize,
    /// Items in one write. 1 is without pipelining: a command is sent when the one before it was answered.
    pub(crate) depth: usize,
}

impl Shape {
    /// How many writes of a connection may be unanswered. A single pipelining connection sends some
    /// ahead. Otherwise the server would idle while replies are read.
    fn window(self) -> usize {
        if self.connections == 1 && self.depth > 1 { 4 } else { 1 }
    }
}

/// The time that a piece of work took, for each item.
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
    processor_time: Box<dyn Fn() -> Duration>,
}

impl Load {
    pub(crate) fn on(server: &Server, shape: Shape) -> Self {
        let lines = (0..shape.connections).map(|_| server.line_client()).collect();
        Self { lines, shape, processor_time: Box::new(server.processor_clock()) }
    }

    /// Does all the work, which concerns so many items.
    pub(crate) fn measure(&mut self, work: &Work) -> Sample {
        let before = (self.processor_time)();
        let wall = self.drive(work);
        let processor = (self.processor_time)() - before;
        let each = |time: Duration| time.as_secs_f64() / work.items as f64;
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

/// The requests of one write, and the replies that they must get.
struct Batch {
    bytes: Vec<u8>,
    replies: Vec<Reply>,
}

impl Batch {
    fn of(commands: &[Command]) -> Self {
        Self {
            bytes: commands.iter().flat_map(|(line, _)| encoded(line.as_str())).collect(),
            replies: commands.iter().flat_map(|(_, replies)| replies.clone()).collect(),
        }
    }
}

/// The work of each connection.
pub(crate) struct Work {
    shares: Vec<Vec<Batch>>,
    items: usize,
}

impl Work {
    /// The commands of these items, which are divided among the connections, as many items in one write as the shape says.
    pub(crate) fn of<T>(shape: Shape, items: &[T], commands: impl Fn(&T) -> Vec<Command>) -> Self {
        let share = items.len() / shape.connections;
        assert_eq!(share * shape.connections, items.len(), "shares differ");
        let batches = |items: &[T]| -> Vec<Batch> {
            match shape.depth {
                1 => items.iter().flat_map(&commands).map(|one| Batch::of(&[one])).collect(),
                depth => items
                    .chunks(depth)
                    .map(|items| Batch::of(&items.iter().flat_map(&commands).collect::<Vec<_>>()))
                    .collect(),
            }
        };
        Self { shares: items.chunks(share).map(batches).collect(), items: items.len() }
    }
}

/// The samples of one piece of work, by round.
#[derive(Clone, Default)]
pub(crate) struct Samples(pub(crate) Vec<Sample>);

impl Samples {
    pub(crate) fn walls(&self) -> Vec<f64> {
        self.0.iter().map(|sample| sample.wall).collect()
    }

    pub(crate) fn processor(&self) -> Spread {
        Spread::of(self.0.iter().map(|sample| sample.processor))
    }

    /// Its time as a multiple of that of another, round by round.
    pub(crate) fn against(&self, other: &Self) -> Spread {
        Spread::of_ratios(&self.walls(), &other.walls())
    }
}

/// Has all take turns for so many rounds, and once before, so that keys and buffers have their full size. Each consists of
/// some pieces of work, one after the other, for the load with that number.
pub(crate) fn compare(
    rounds: usize,
    loads: &mut [Load],
    all: &[(usize, Vec<&Work>)],
) -> Vec<Vec<Samples>> {
    let mut samples: Vec<_> =
        all.iter().map(|(_, works)| vec![Samples::default(); works.len()]).collect();
    in_turns(rounds + 1, all.len(), |round, one| {
        let (load, works) = &all[one];
        for (work, samples) in works.iter().zip(&mut samples[one]) {
            let sample = loads[*load].measure(work);
            samples.0.extend((round > 0).then_some(sample));
        }
    });
    samples
}

/// How many bytes replicas have been sent, as the server counts them.
pub(crate) fn sent_to_replicas(server: &Server) -> u64 {
    server.client().info_number("replication", "master_repl_offset")
}
