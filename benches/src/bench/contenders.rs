//! The ways to acquire and release a lock that are compared: what each sends, and the replies that
//! it must get.

use redis::Value;
use std::fmt::Display;
use testkit::{Server, bulk_text, encoded};

/// The length of every lease. None ends during a measurement.
pub(crate) const TTL: &str = "600000";

/// Acquires the lock, and counts its grants for a fence.
const ACQUIRE: &str = "\
    if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
    return redis.call('INCR', KEYS[2]) end return nil";

/// Deletes the lock if it is the owner's.
pub(crate) const RELEASE: &str = "\
    if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

#[derive(Clone, Copy)]
pub(crate) enum Word {
    Text(&'static str),
    Key,
    /// The key of the counter from which some get a fence.
    Counter,
    Owner,
    /// The digest of the script with this place in the list.
    Script(usize),
}

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

type Command = (&'static [Word], Reply);

pub(crate) struct Contender {
    pub(crate) name: &'static str,
    acquire: &'static [Command],
    release: &'static [Command],
    scripts: Vec<String>,
}

/// A lock and its owner.
pub(crate) struct Lock {
    pub(crate) key: String,
    pub(crate) counter: String,
    pub(crate) owner: String,
}

impl Lock {
    /// All names have one length, and the owner has that of a UUID.
    pub(crate) fn numbered(number: usize) -> Self {
        Self {
            key: format!("lock:{number:07}"),
            counter: format!("fence:{number:07}"),
            owner: format!("{number:08x}-5a1c-4e6b-9d2f-{number:012x}"),
        }
    }
}

use Word::{Counter, Key, Owner, Script, Text};

const SET: Command = (&[Text("SET"), Key, Owner, Text("NX"), Text("PX"), Text(TTL)], OKAY);
const INCR: Command = (&[Text("INCR"), Counter], Reply::Number);
const DEL: Command = (&[Text("DEL"), Key], ONE);
const DELIFEQ: Command = (&[Text("DELIFEQ"), Key, Owner], ONE);
const DELEX: Command = (&[Text("DELEX"), Key, Text("IFEQ"), Owner], ONE);

pub(crate) const LEASEHOLD: &str = "Leasehold";
pub(crate) const EVALSHA: &str = "EVALSHA";
pub(crate) const BARE: &str = "SET NX PX, DEL";

/// The command with which the server deletes a key only if it has a certain value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    Delifeq,
    Delex,
    Nothing,
}

impl Compared {
    pub(crate) fn of(server: &Server) -> Self {
        match (knows(server, "DELIFEQ"), knows(server, "DELEX")) {
            (true, _) => Self::Delifeq,
            (false, true) => Self::Delex,
            (false, false) => Self::Nothing,
        }
    }

    /// The ways that promise as much as Leasehold does.
    pub(crate) fn trios() -> [&'static str; 2] {
        [Self::Delifeq, Self::Delex].map(Self::native_trio)
    }

    pub(crate) fn native_trio(self) -> &'static str {
        match self {
            Self::Delifeq => "SET NX PX, INCR, DELIFEQ",
            Self::Delex => "SET NX PX, INCR, DELEX",
            Self::Nothing => "SET NX PX, INCR, DEL",
        }
    }

    pub(crate) fn pair(self) -> Option<&'static str> {
        match self {
            Self::Delifeq => Some("SET NX PX, DELIFEQ"),
            Self::Delex => Some("SET NX PX, DELEX"),
            Self::Nothing => None,
        }
    }

    fn release(self) -> &'static [Command] {
        match self {
            Self::Delifeq => &[DELIFEQ],
            Self::Delex => &[DELEX],
            Self::Nothing => &[DEL],
        }
    }
}

fn knows(server: &Server, command: &str) -> bool {
    let reply = server.cmd(format!("COMMAND INFO {command}"));
    matches!(reply, Value::Array(found) if found.iter().all(|one| *one != Value::Nil))
}

impl Contender {
    fn new(name: &'static str, acquire: &'static [Command], release: &'static [Command]) -> Self {
        Self { name, acquire, release, scripts: Vec::new() }
    }

    pub(crate) fn leasehold() -> Self {
        Self::new(
            LEASEHOLD,
            &[(&[Text("LOCK.ACQUIRE"), Key, Owner, Text(TTL)], Reply::Number)],
            &[(&[Text("LOCK.RELEASE"), Key, Owner], ONE)],
        )
    }

    pub(crate) fn bare() -> Self {
        Self::new(BARE, &[SET], &[DEL])
    }

    /// The pair of commands that checks the owner, where the server has one.
    pub(crate) fn compared(server: &Server) -> Option<Self> {
        let compared = Compared::of(server);
        compared.pair().map(|name| Self::new(name, &[SET], compared.release()))
    }

    fn scripts(server: &Server) -> Self {
        let scripts = [ACQUIRE, RELEASE].map(|script| load_script(server, script));
        let mut contender = Self::new(
            EVALSHA,
            &[(
                &[Text("EVALSHA"), Script(0), Text("2"), Key, Counter, Owner, Text(TTL)],
                Reply::Number,
            )],
            &[(&[Text("EVALSHA"), Script(1), Text("1"), Key, Owner], ONE)],
        );
        contender.scripts = scripts.into();
        contender
    }

    /// The same scripts as functions, where the server has functions.
    fn functions(server: &Server) -> Option<Self> {
        if !knows(server, "FCALL") {
            return None;
        }
        let named = |name: &str, script: &str| {
            format!("redis.register_function('{name}', function(KEYS, ARGV) {script} end)\n")
        };
        let library =
            format!("#!lua name=bench\n{}{}", named("acquire", ACQUIRE), named("release", RELEASE));
        let reply = server.cmd(["FUNCTION", "LOAD", "REPLACE", &library]);
        assert!(matches!(reply, Value::BulkString(_)), "{reply:?}");
        Some(Self::new(
            "FCALL",
            &[(
                &[Text("FCALL"), Text("acquire"), Text("2"), Key, Counter, Owner, Text(TTL)],
                Reply::Number,
            )],
            &[(&[Text("FCALL"), Text("release"), Text("1"), Key, Owner], ONE)],
        ))
    }

    /// Every way that this server supports, Leasehold first.
    pub(crate) fn all(server: &Server) -> Vec<Self> {
        let compared = Compared::of(server);
        let trio = Self::new(compared.native_trio(), &[SET, INCR], compared.release());
        let all = [Some(Self::leasehold()), Some(Self::scripts(server)), Self::functions(server)];
        let all = all.into_iter().flatten().chain([trio, Self::bare()]);
        all.collect()
    }

    fn encode(&self, (words, _): &Command, lock: &Lock, bytes: &mut Vec<u8>) {
        let word = |word: &Word| -> Vec<u8> {
            match *word {
                Text(text) => text.into(),
                Key => lock.key.clone().into(),
                Counter => lock.counter.clone().into(),
                Owner => lock.owner.clone().into(),
                Script(number) => self.scripts[number].clone().into(),
            }
        };
        bytes.extend(encoded(words.iter().map(word).collect::<Vec<_>>()));
    }

    fn commands(&self, part: Part) -> impl Iterator<Item = &Command> + Clone {
        let (acquire, release) = match part {
            Part::Both => (self.acquire, self.release),
            Part::Acquire => (self.acquire, &[][..]),
            Part::Release => (&[][..], self.release),
        };
        acquire.iter().chain(release)
    }

    /// The requests for these locks, `depth` locks in one write.
    pub(crate) fn batches(&self, part: Part, locks: &[Lock], depth: usize) -> Vec<Batch> {
        let batch = |locks: &[Lock]| {
            let mut batch = Batch { bytes: Vec::new(), replies: Vec::new() };
            for lock in locks {
                for command in self.commands(part) {
                    self.encode(command, lock, &mut batch.bytes);
                    batch.replies.push(command.1);
                }
            }
            batch
        };
        locks.chunks(depth).map(batch).collect()
    }

    /// The requests without pipelining: each command waits for the reply to the one before it.
    pub(crate) fn steps(&self, part: Part, locks: &[Lock]) -> Vec<Batch> {
        let mut steps = Vec::new();
        for lock in locks {
            for command in self.commands(part) {
                let mut bytes = Vec::new();
                self.encode(command, lock, &mut bytes);
                steps.push(Batch { bytes, replies: vec![command.1] });
            }
        }
        steps
    }
}

/// The part of the work that is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Both,
    Acquire,
    Release,
}

/// The requests of one write, and the replies that they must get.
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) replies: Vec<Reply>,
}

impl Batch {
    /// These commands for each name, with `{}` for the name, and so many names in one write.
    pub(crate) fn of_names(
        names: &[impl Display],
        (commands, replies): (&[&str], &[Reply]),
        depth: usize,
    ) -> Vec<Self> {
        let request = |name: &String, command: &&str| encoded(command.replace("{}", name));
        let requests = |name: String| commands.iter().flat_map(move |one| request(&name, one));
        let batch = |names: &[_]| Self {
            bytes: names.iter().map(ToString::to_string).flat_map(requests).collect(),
            replies: replies.repeat(names.len()),
        };
        names.chunks(depth).map(batch).collect()
    }
}

/// Loads a script, and returns its digest for EVALSHA.
pub(crate) fn load_script(server: &Server, script: &str) -> String {
    bulk_text(&server.cmd(["SCRIPT", "LOAD", script]))
}
