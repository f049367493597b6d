//! `LOCK.GUARD key owner fence command [arg ...]`: a command that runs only while its sender holds the lock.
//!
//! The server checks the hold and runs the command in one step, so nothing can come between: the server that has the
//! data refuses a holder that was paused for longer than its lease.
//!
//! This file decides which commands can be guarded, from the server's description of each. Two kinds are refused:
//! commands that act on a connection, since a guarded command has no connection of its own, and commands that run
//! other commands. Commands of other modules are refused too: they may block, whatever their flags say, and the server
//! crashes if a command that a module calls blocks. A call that may block returns a promise and can be aborted, but a
//! module may continue the aborted command, and write when somebody else holds the lock.

use super::{ALL, Access, Arg, Error, Spec, args};
use crate::lock::Proof;

pub static SPEC: Spec = Spec {
    name: c"lock.guard",
    summary: c"Runs a command if the owner holds the lock by this fence, and returns its reply.",
    complexity: c"O(N) with N holders of the lock, O(1) for one; and that of the command",
    since: c"0.2.0",
    history: &[],
    tips: None,
    access: Access::Guard,
    args: &[Arg::KEY, Arg::OWNER, Arg::NEW_FENCE, Arg::COMMAND, Arg::REST],
};

/// Where the guarded command begins.
pub const COMMAND_AT: usize = 4;

/// Parses the first words. The other words belong to the guarded command.
pub fn parse<'a>(words: &[&'a [u8]]) -> Result<Proof<'a>, Error> {
    let [_, _, owner, fence, command, ..] = *words else { return Err(Error::WrongArity) };
    let (owner, fence) = (args::owner(owner)?, args::fence(fence)?);
    if is_itself(command) {
        return Err(Error::GuardedItself);
    }
    Ok(Proof { owner, fence: Some(fence) })
}

/// Whether the server may take the guarded command for `LOCK.GUARD`. The server compares names only up to the first
/// zero byte. So a longer name with a zero byte can also find this command, if its hash leads to the same bucket.
pub fn is_itself(command: &[u8]) -> bool {
    let name = command.split(|&byte| byte == 0).next().unwrap_or_default();
    name.eq_ignore_ascii_case(SPEC.name.to_bytes())
}

/// The server's description of a command, from `COMMAND INFO`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described<'d> {
    pub name: &'d [u8],
    pub arity: i64,
    pub flags: Vec<&'d [u8]>,
    /// ACL categories. Before Redis 7.2 the commands of modules have none.
    pub categories: Vec<&'d [u8]>,
}

/// A command that can be guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarded {
    arity: i64,
    pub reads_only: bool,
    pub needs_memory: bool,
    pub publishes: bool,
    /// Whether scripts may call the command. Then the server may apply its checks for scripts.
    pub is_for_scripts: bool,
    /// Whether the command itself blocks its client, where blocking is allowed.
    pub may_block: bool,
}

impl Guarded {
    /// Checks that the command can have this number of words, including its name.
    pub fn check_arity(&self, words: usize) -> Result<(), Error> {
        let arity = usize::try_from(self.arity.unsigned_abs()).unwrap_or(usize::MAX);
        let fits = if self.arity < 0 { words >= arity } else { words == arity };
        if fits { Ok(()) } else { Err(Error::GuardedArity) }
    }
}

/// Commands for connections. On some servers their flags or categories do not say so.
const OF_CONNECTIONS: [&[u8]; 10] = [
    b"select",
    b"asking",
    b"readonly",
    b"readwrite",
    b"quit",
    b"wait",
    b"waitaof",
    // Redis 6.2 closes the client that sends one of these, such as a browser's request. For a module's call it would
    // free the client twice.
    b"post",
    b"host:",
    // This command is served even for keys that another node has not handed over yet.
    b"restore-asking",
];

impl Described<'_> {
    /// Whether the command can be guarded, and how it then runs.
    pub fn guarded(&self) -> Result<Guarded, Error> {
        let (has, is_in) = (|flag| has(&self.flags, flag), |name| has(&self.categories, name));
        if is_itself(self.name) {
            return Err(Error::GuardedItself);
        }
        if self.is_of_a_module() && ours(self.name).is_none() {
            return Err(Error::GuardedModule);
        }
        // In a cluster the call would have the slot of the guarded lock.
        if ours(self.name).is_some_and(|spec| spec.access == Access::Owner) {
            return Err(Error::GuardedAdministration);
        }
        let blocks = has(b"blocking") || is_in(b"@blocking");
        if is_in(b"@transaction") {
            return Err(Error::GuardedTransaction);
        }
        if is_in(b"@scripting") {
            return Err(Error::GuardedScript);
        }
        if has(b"admin") || is_in(b"@admin") {
            return Err(Error::GuardedAdministration);
        }
        let is_listed = OF_CONNECTIONS.iter().any(|name| self.name.eq_ignore_ascii_case(name));
        let is_for_scripts = !has(b"noscript");
        if is_listed || is_in(b"@connection") || !is_for_scripts && !blocks {
            return Err(Error::GuardedConnection);
        }
        Ok(Guarded {
            arity: self.arity,
            reads_only: has(b"readonly") && !self.name.eq_ignore_ascii_case(PFCOUNT),
            needs_memory: has(b"denyoom"),
            publishes: is_in(b"@pubsub"),
            is_for_scripts,
            may_block: blocks,
        })
    }

    /// Whether the command comes from a module, so that another command may later have its name.
    pub fn is_of_a_module(&self) -> bool {
        has(&self.flags, b"module") || self.categories.is_empty()
    }
}

/// Flagged as read-only, but stores the count in the key, and the server replicates this.
const PFCOUNT: &[u8] = b"pfcount";

/// A command of Redis 8.4 and Valkey 9.1: `MSETEX numkeys key value [key value ...]`.
const MSETEX: &[u8] = b"msetex";

/// Whether the command may have [keys](hidden_keys) that the server does not find for a module.
pub fn may_have_hidden_keys(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(MSETEX) || ours(name).is_some_and(|spec| spec.also_from().is_some())
}

/// The positions of keys that the server may not find for a module: it does not search after a number or a keyword,
/// unless it has a function for the command.
pub fn hidden_keys(words: &[&[u8]]) -> impl Iterator<Item = usize> {
    const FIRST: usize = 2;
    const FEWEST_WORDS: usize = 4;
    let name = words.first().copied().unwrap_or_default();
    let is_msetex = name.eq_ignore_ascii_case(MSETEX);
    let number = words.get(1).filter(|_| is_msetex).and_then(|word| args::parse_integer(word));
    let pairs = number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
    // The server does not check whether the last key has a value.
    let end = pairs.saturating_mul(2).saturating_add(FIRST).saturating_sub(1);
    let of_pairs = if end.max(FEWEST_WORDS) <= words.len() { FIRST..end } else { 0..0 };
    let behind_also = ours(name).map_or(0..0, |spec| spec.keys_behind_also(words));
    of_pairs.step_by(2).chain(behind_also)
}

fn ours(name: &[u8]) -> Option<&'static Spec> {
    ALL.into_iter().find(|spec| spec.name.to_bytes().eq_ignore_ascii_case(name))
}

fn has(words: &[&[u8]], word: &[u8]) -> bool {
    words.iter().any(|it| it.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn described(name: &'static str, arity: i64, words: &'static str) -> Described<'static> {
        let (categories, flags) =
            words.split(' ').map(str::as_bytes).partition(|word| word.starts_with(b"@"));
        Described { name: name.as_bytes(), arity, flags, categories }
    }

    #[test]
    fn mistakes_are_found_from_left_to_right() {
        for (line, error) in [
            ("lock.guard k a 1", Error::WrongArity),
            ("lock.guard k  x lock.guard", Error::OwnerLength),
            ("lock.guard k a x lock.guard", Error::FenceNotANumber),
            ("lock.guard k a 1 lock.guard", Error::GuardedItself),
            ("lock.guard k a 1 Lock.Guard k a 1 get k", Error::GuardedItself),
        ] {
            assert_eq!(parse(&words(line)), Err(error), "{line}");
        }
        let proof = parse(&words("lock.guard k a 7 set x 1 px 5")).unwrap();
        assert_eq!((proof.owner.as_bytes(), proof.fence), (&b"a"[..], Some(7)));
    }

    #[test]
    fn a_name_ends_where_the_server_ends_it() {
        for itself in [&b"lock.guard"[..], b"LOCK.GUARD\0", b"Lock.Guard\x00644", b"lock.guard\0\0"]
        {
            assert!(is_itself(itself), "{}", itself.escape_ascii());
        }
        for other in [&b""[..], b"\0", b"\0lock.guard", b"lock.guar\0d", b"lock.guards", b"get"] {
            assert!(!is_itself(other), "{}", other.escape_ascii());
        }
    }

    #[test]
    fn data_can_be_written_read_and_published() {
        let set = described("set", -3, "write denyoom @write @string @slow").guarded().unwrap();
        assert_eq!((set.reads_only, set.needs_memory, set.is_for_scripts), (false, true, true));
        let get = described("get", 2, "readonly fast @read @string @fast").guarded().unwrap();
        assert_eq!((get.reads_only, get.needs_memory, get.publishes), (true, false, false));
        assert!(described("publish", 3, "pubsub fast @pubsub @fast").guarded().unwrap().publishes);
        // It keeps the count.
        let pfcount = described("PFCOUNT", -2, "readonly @read @hyperloglog @slow").guarded();
        assert!(!pfcount.unwrap().reads_only);
    }

    #[test]
    fn what_blocks_is_run_and_does_not_block() {
        for said in ["write noscript blocking @list @blocking", "write noscript @list @blocking"] {
            let blpop = described("blpop", -3, said).guarded().unwrap();
            assert_eq!((blpop.is_for_scripts, blpop.may_block), (false, true), "{said}");
        }
        assert!(!described("lpop", -2, "write @list").guarded().unwrap().may_block);
    }

    #[test]
    fn what_belongs_to_a_connection_or_runs_commands_is_refused() {
        for (name, words, error) in [
            ("exec", "noscript @slow @transaction", Error::GuardedTransaction),
            ("watch", "noscript fast @fast @transaction", Error::GuardedTransaction),
            ("eval", "noscript @slow @scripting", Error::GuardedScript),
            ("config|get", "admin noscript @admin @slow", Error::GuardedAdministration),
            ("save", "admin @slow", Error::GuardedAdministration),
            ("keys", "readonly @admin @slow", Error::GuardedAdministration),
            ("subscribe", "pubsub noscript @pubsub @slow", Error::GuardedConnection),
            ("hello", "noscript fast @fast @connection", Error::GuardedConnection),
            ("ping", "fast @fast @connection", Error::GuardedConnection),
            ("wait", "noscript @keyspace @slow", Error::GuardedConnection),
            ("SELECT", "loading fast stale @keyspace @fast", Error::GuardedConnection),
            ("post", "readonly loading stale @read @slow", Error::GuardedConnection),
            ("lock.guard", "write module @write", Error::GuardedItself),
            ("lock.drop", "write module @write", Error::GuardedAdministration),
            // Those of other modules, whatever the server says of them.
            ("m.set", "write module blocking @write @slow", Error::GuardedModule),
            ("m.set", "write module", Error::GuardedModule),
            ("m.set", "readonly module fast", Error::GuardedModule),
            ("m.set", "write", Error::GuardedModule),
        ] {
            assert_eq!(described(name, 1, words).guarded(), Err(error), "{name}: {words}");
        }
        for ours in ["lock.acquire", "LOCK.RELEASE"] {
            assert!(described(ours, -3, "write module blocking").guarded().is_ok());
            assert!(described(ours, -3, "write").guarded().is_ok());
        }
    }

    #[test]
    fn keys_behind_a_number_or_a_word_are_found_where_the_request_has_them() {
        let hidden = |line| hidden_keys(&words(line)).collect::<Vec<_>>();
        assert_eq!(hidden("MSetEx 2 k v l w EX 5"), [2, 4]);
        assert_eq!(hidden("msetex 2 k v l"), [2, 4]);
        assert_eq!(hidden("LOCK.RELEASE k a ALSO 2 l m"), [5, 6]);
        let none: [usize; 0] = [];
        let lines = "msetex, msetex 3 k v l w, msetex 0 k v, msetex 1 k, msetex x k v, \
                     msetex 18446744073709551615 k v, lock.release k a, lock.check k ALSO 1 l, \
                     mset k v";
        for line in lines.split(", ") {
            assert_eq!(hidden(line), none, "{line}");
        }
        let has_any = ["msetex", "LOCK.ACQUIRE", "lock.check", "mset"]
            .map(|name| may_have_hidden_keys(name.as_bytes()));
        assert_eq!(has_any, [true, true, false, false]);
    }

    #[test]
    fn the_number_of_words_is_that_of_the_command() {
        let fits =
            |arity, words| described("c", arity, "@slow").guarded().unwrap().check_arity(words);
        for (arity, words) in [(2, 2), (-2, 2), (-2, 9), (1, 1), (-1, 10_000)] {
            assert_eq!(fits(arity, words), Ok(()), "{arity} {words}");
        }
        for (arity, words) in [(2, 1), (2, 3), (-2, 1), (1, 2), (0, 1)] {
            assert_eq!(fits(arity, words), Err(Error::GuardedArity), "{arity} {words}");
        }
    }
}
