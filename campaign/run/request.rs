//! What clients send, and on which connections.

use crate::clients::PATIENCE;
use crate::redirect::Redirect;
use leasehold_campaign::Op;
use testkit::LineClient;

pub(crate) enum Reply {
    Number(u64),
    Nil,
    /// An error: nothing happened here, and a node may name another one.
    Error(Option<Redirect>),
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
    pub(crate) also: Also,
    /// For how long the hold may outlive the connection that it is bound to.
    pub(crate) grace: Option<u32>,
}

/// Other locks, if there are any.
pub(crate) type Also = [Option<u32>; 2];

impl Asked {
    /// A request for one lock, which names no fence.
    pub(crate) fn plain(lock: u32, op: Op, ttl: u32, share: u8) -> Self {
        Self { lock, op, ttl, share, shown: None, also: [None; 2], grace: None }
    }

    pub(crate) fn locks(&self) -> impl Iterator<Item = u32> {
        [Some(self.lock)].into_iter().chain(self.also).flatten()
    }

    pub(crate) fn is_for_several(&self) -> bool {
        self.also[0].is_some()
    }
}

/// As an inline command: no word needs quotes.
pub(crate) fn line(asked: &Asked, client: u32, patience: u32, prefix: &str) -> String {
    let (owner, fence) = asked.shown.map_or((client, None), |(owner, fence)| (owner, Some(fence)));
    let (lock, ttl) = (asked.lock, asked.ttl);
    let proof = fence.map(|fence| format!(" {fence}")).unwrap_or_default();
    let share = match asked.share {
        1 => String::new(),
        share => format!(" SHARE {share}"),
    };
    let also = also(asked, prefix);
    let bound = asked.grace.map(|grace| format!(" EPHEMERAL {grace}")).unwrap_or_default();
    match asked.op {
        Op::Try => format!("LOCK.ACQUIRE {prefix}{lock} o{owner} {ttl}{share}{bound}{also}\r\n"),
        Op::Wait => {
            format!(
                "LOCK.ACQUIRE {prefix}{lock} o{owner} {ttl}{share} BLOCK {patience}{bound}{also}\r\n"
            )
        }
        Op::Extend => format!("LOCK.EXTEND {prefix}{lock} o{owner} {ttl}{proof}{also}\r\n"),
        Op::Release => format!("LOCK.RELEASE {prefix}{lock} o{owner}{proof}{also}\r\n"),
        Op::Check => format!("LOCK.CHECK {prefix}{lock} o{owner}{proof}\r\n"),
        Op::Delete | Op::Seen | Op::Closed => String::new(),
    }
}

/// The option for the other locks.
pub(crate) fn also(asked: &Asked, prefix: &str) -> String {
    if !asked.is_for_several() {
        return String::new();
    }
    let keys: Vec<_> = asked.locks().skip(1).map(|lock| format!(" {prefix}{lock}")).collect();
    format!(" ALSO {}{}", keys.len(), keys.concat())
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
