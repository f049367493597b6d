//! What clients send, and on which connections.

use crate::clients::PATIENCE;
use leasehold_campaign::Op;
use testkit::LineClient;

pub(crate) enum Reply {
    Number(u64),
    Nil,
    /// An error: nothing happened here, and a node may name another one.
    Error(Option<Redirect>),
}

/// `MOVED` or `ASK`, by which a node of a cluster sends a client to another node.
#[derive(Clone, Copy)]
pub(crate) struct Redirect {
    pub(crate) port: u16,
    /// `ASK`: it holds for this one request, because the slot is on its way to that node.
    pub(crate) once: bool,
}

/// A connection to one server, or to one node of a cluster.
pub(crate) struct Node {
    pub(crate) client: LineClient,
    pub(crate) port: u16,
    /// Each command is preceded by `ASKING`.
    pub(crate) asking: bool,
}

/// A command that has been sent.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) lock: u32,
    pub(crate) op: Op,
    pub(crate) ttl: u32,
    /// How many holders a request that acquires tolerates.
    pub(crate) share: u8,
    /// The owner and the fence that it names, if it names a fence.
    pub(crate) shown: Option<(u32, u64)>,
    /// The other locks that it is for.
    pub(crate) also: [Option<u32>; 2],
    /// For how long the hold may outlive the connection that it is bound to.
    pub(crate) grace: Option<u32>,
    /// For how long its place is kept.
    pub(crate) ticket: Option<u32>,
}

impl Asked {
    /// A request for one lock, which names no fence.
    pub(crate) fn plain(lock: u32, op: Op, ttl: u32, share: u8) -> Self {
        Self { lock, op, ttl, share, shown: None, also: [None; 2], grace: None, ticket: None }
    }

    pub(crate) fn locks(&self) -> impl Iterator<Item = u32> + use<> {
        [Some(self.lock)].into_iter().chain(self.also).flatten()
    }

    pub(crate) fn is_for_several(&self) -> bool {
        self.also[0].is_some()
    }

    /// As an inline command: no word needs quotes.
    pub(crate) fn line(&self, client: u32, patience: u32, prefix: &str) -> String {
        let (owner, fence) =
            self.shown.map_or((client, None), |(owner, fence)| (owner, Some(fence)));
        let (lock, ttl) = (self.lock, self.ttl);
        let word = |name: &str, number: u32| format!(" {name} {number}");
        let proof = fence.map(|fence| format!(" {fence}")).unwrap_or_default();
        let also: Vec<_> = self.locks().skip(1).map(|lock| format!(" {prefix}{lock}")).collect();
        let also = match also.len() {
            0 => String::new(),
            count => word("ALSO", count as u32) + &also.concat(),
        };
        let (command, words) = match self.op {
            Op::Try | Op::Wait => {
                let share = Some(self.share.into()).filter(|share| *share != 1);
                let block = Some(patience).filter(|_| self.op == Op::Wait);
                let options = [
                    ("SHARE", share),
                    ("BLOCK", block),
                    ("EPHEMERAL", self.grace),
                    ("TICKET", self.ticket),
                ];
                let given =
                    options.iter().filter_map(|(name, number)| Some(word(name, (*number)?)));
                ("ACQUIRE", format!(" {ttl}{}{also}", given.collect::<String>()))
            }
            Op::Extend => ("EXTEND", format!(" {ttl}{proof}{also}")),
            Op::Release => ("RELEASE", format!("{proof}{also}")),
            Op::Check => ("CHECK", proof),
            Op::Delete | Op::Seen | Op::Closed => return String::new(),
        };
        format!("LOCK.{command} {prefix}{lock} o{owner}{words}\r\n")
    }
}

impl Redirect {
    /// From `-MOVED 1234 127.0.0.1:7001`, or the same with `ASK`.
    fn parse(line: &str) -> Option<Self> {
        let once = line.starts_with("-ASK ");
        if !once && !line.starts_with("-MOVED ") {
            return None;
        }
        let port = line.trim_end().rsplit(':').next()?.parse().ok()?;
        Some(Self { port, once })
    }
}

impl Node {
    pub(crate) fn at(port: u16) -> Option<Self> {
        let mut client = LineClient::over_tcp(("127.0.0.1", port)).ok()?;
        client.set_deadline(Some(PATIENCE));
        Some(Self { client, port, asking: false })
    }

    /// Sends one line, and returns its reply.
    pub(crate) fn asks(&mut self, line: &str) -> Option<Reply> {
        self.client.try_send(line.as_bytes()).ok()?;
        self.reply()
    }

    /// The next reply, or `None` if there is none. Each reply to these commands is one line.
    pub(crate) fn reply(&mut self) -> Option<Reply> {
        let line = str::from_utf8(self.client.try_line().ok()?).ok()?;
        match line.as_bytes().first()? {
            b':' => line[1..].parse().ok().map(Reply::Number),
            b'$' | b'*' | b'_' => Some(Reply::Nil),
            _ => Some(Reply::Error(Redirect::parse(line))),
        }
    }
}
