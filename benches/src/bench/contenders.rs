//! The ways to acquire and release a lock that are compared: what each sends, and the replies that it must get.

use super::load::{OKAY, ONE, Reply, Shape, Work};
use redis::Value;
use testkit::{Server, bulk_text};

/// The length of every lease. None ends during a measurement.
pub(crate) const TTL: &str = "600000";

/// Acquires the lock, and counts its grants for a fence.
const ACQUIRE: &str = "\
    if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
    return redis.call('INCR', KEYS[2]) end return nil";

/// Deletes the lock if it is the owner's.
pub(crate) const RELEASE: &str = "\
    if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

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

    /// A line with the names of this lock in it, and the length of every lease.
    pub(crate) fn in_line(&self, line: &str) -> String {
        let line = line.replace("{key}", &self.key).replace("{counter}", &self.counter);
        line.replace("{owner}", &self.owner).replace("{ttl}", TTL)
    }
}

/// A command for any lock, and the reply that it must get.
pub(crate) type Line<'l> = (&'l str, Reply);

const SET: Line<'_> = ("SET {key} {owner} NX PX {ttl}", OKAY);
const INCR: Line<'_> = ("INCR {counter}", Reply::Number);
const DEL: Line<'_> = ("DEL {key}", ONE);

pub(crate) const LEASEHOLD: &str = "Leasehold";
pub(crate) const EVALSHA: &str = "EVALSHA";
pub(crate) const BARE: &str = "SET NX PX, DEL";

/// The commands with which servers delete a key only if it has a certain value: their names, the lines, and the ways with
/// them, with a fence and without.
const COMPARED: [(&str, &str, &str, &str); 2] = [
    ("DELIFEQ", "DELIFEQ {key} {owner}", "SET NX PX, INCR, DELIFEQ", "SET NX PX, DELIFEQ"),
    ("DELEX", "DELEX {key} IFEQ {owner}", "SET NX PX, INCR, DELEX", "SET NX PX, DELEX"),
];

/// One way. Lists what it sends for one lock.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) acquire: Vec<(String, Reply)>,
    pub(crate) release: Vec<(String, Reply)>,
}

impl Contender {
    fn new(name: &'static str, acquire: &[Line<'_>], release: &[Line<'_>]) -> Self {
        let owned = |lines: &[Line<'_>]| {
            lines.iter().map(|(line, reply)| ((*line).to_owned(), *reply)).collect()
        };
        Self { name, acquire: owned(acquire), release: owned(release) }
    }

    pub(crate) fn leasehold() -> Self {
        let acquire = ("LOCK.ACQUIRE {key} {owner} {ttl}", Reply::Number);
        Self::new(LEASEHOLD, &[acquire], &[("LOCK.RELEASE {key} {owner}", ONE)])
    }

    pub(crate) fn bare() -> Self {
        Self::new(BARE, &[SET], &[DEL])
    }

    fn scripts(server: &Server) -> Self {
        let [acquire, release] = [ACQUIRE, RELEASE].map(|script| load_script(server, script));
        let acquire = format!("EVALSHA {acquire} 2 {{key}} {{counter}} {{owner}} {{ttl}}");
        let release = format!("EVALSHA {release} 1 {{key}} {{owner}}");
        Self::new(EVALSHA, &[(&acquire, Reply::Number)], &[(&release, ONE)])
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
        let acquire = ("FCALL acquire 2 {key} {counter} {owner} {ttl}", Reply::Number);
        Some(Self::new("FCALL", &[acquire], &[("FCALL release 1 {key} {owner}", ONE)]))
    }

    /// Every way that this server supports, Leasehold first.
    pub(crate) fn all(server: &Server) -> Vec<Self> {
        let (release, trio) = match compared(server) {
            Some((_, line, trio, _)) => ((line, ONE), trio),
            None => (DEL, "SET NX PX, INCR, DEL"),
        };
        let trio = Self::new(trio, &[SET, INCR], &[release]);
        let all = [Some(Self::leasehold()), Some(Self::scripts(server)), Self::functions(server)];
        all.into_iter().flatten().chain([trio, Self::bare()]).collect()
    }

    /// Leasehold, the bare commands, and those that check the owner, where the server has them.
    pub(crate) fn pairs(server: &Server) -> Vec<Self> {
        let compared =
            compared(server).map(|(_, line, _, pair)| Self::new(pair, &[SET], &[(line, ONE)]));
        [Self::leasehold(), Self::bare()].into_iter().chain(compared).collect()
    }

    /// Whether it promises as much as Leasehold does by native commands.
    pub(crate) fn is_as_strong(name: &str) -> bool {
        COMPARED.iter().any(|(_, _, trio, _)| *trio == name)
    }
}

/// These lines for each of the locks.
pub(crate) fn work(shape: Shape, lines: &[(String, Reply)], locks: &[Lock]) -> Work {
    Work::of(shape, locks, |lock| {
        lines.iter().map(|(line, reply)| (lock.in_line(line), vec![*reply])).collect()
    })
}

fn compared(server: &Server) -> Option<(&'static str, &'static str, &'static str, &'static str)> {
    COMPARED.into_iter().find(|(command, ..)| knows(server, command))
}

fn knows(server: &Server, command: &str) -> bool {
    let reply = server.cmd(format!("COMMAND INFO {command}"));
    matches!(reply, Value::Array(found) if found.iter().all(|one| *one != Value::Nil))
}

/// Loads a script, and returns its digest for EVALSHA.
pub(crate) fn load_script(server: &Server, script: &str) -> String {
    bulk_text(&server.cmd(["SCRIPT", "LOAD", script]))
}
