//! `LOCK.GUARD key owner fence command [arg ...]`: a command that is run only while its sender holds the lock.
//!
//! The hold is checked and the command run in one step of the server's, so nothing comes between: a holder that was paused
//! for longer than its lease is refused by the server that has the data.
//!
//! Which commands can be guarded is decided here, by what the server says of them. Refused is what acts on a connection, which
//! a guarded command has none of its own, and what runs other commands. Commands of other modules are refused, too: they may
//! block, whatever their flags say, and the server dies if what a module calls blocks. A call that may block has a promise for
//! its reply and can be given up, but a module may go on with what was given up, and write when the lock is somebody else's.

use super::{ALL, Access, Arg, Error, Spec, args};
use crate::lock::Proof;

pub static SPEC: Spec = Spec {
    name: c"lock.guard",
    summary: c"Runs a command if the owner holds the lock by this fence, and returns its reply.",
    complexity: c"O(N) with N holders of the lock, O(1) for one; and that of the command",
    since: c"0.2.0",
    history: &[],
    tips: None,
    arity: -5,
    access: Access::Guard,
    args: &[Arg::KEY, Arg::OWNER, Arg::NEW_FENCE, Arg::COMMAND, Arg::REST],
};

/// Where the guarded command begins.
pub const COMMAND_AT: usize = 4;

#[derive(Debug)]
pub struct Request<'a> {
    proof: Proof<'a>,
}

impl<'a> Request<'a> {
    /// The first words are enough: the others are the guarded command's.
    pub fn parse(words: &[&'a [u8]]) -> Result<Self, Error> {
        let [_, _, owner, fence, command, ..] = *words else { return Err(Error::WrongArity) };
        let (owner, fence) = (args::owner(owner)?, args::fence(fence)?);
        if is_itself(command) {
            return Err(Error::GuardedItself);
        }
        Ok(Self { proof: Proof { owner, fence: Some(fence) } })
    }

    pub fn proof(&self) -> &Proof<'a> {
        &self.proof
    }
}

/// Whether the server may take the command to be guarded for this one. It compares names up to the first zero byte, so it finds
/// this one also by a name that goes on behind that, if the hash of the whole leads to the same place.
pub fn is_itself(command: &[u8]) -> bool {
    let name = command.split(|&byte| byte == 0).next().unwrap_or_default();
    name.eq_ignore_ascii_case(SPEC.name.to_bytes())
}

/// What the server says of a command in its `COMMAND INFO`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described<'d> {
    pub name: &'d [u8],
    pub arity: i64,
    pub flags: Vec<&'d [u8]>,
    /// Those of the ACL. Before Redis 7.2 the commands of modules are in none.
    pub categories: Vec<&'d [u8]>,
}

/// A command that can be guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarded {
    arity: i64,
    pub reads_only: bool,
    pub needs_memory: bool,
    pub publishes: bool,
    /// Whether scripts may call it, too: then the server may check it as it checks those.
    pub is_for_scripts: bool,
    /// Whether it blocks its client by itself, where that is allowed.
    pub may_block: bool,
}

impl Guarded {
    /// Whether the command can have so many words, its name included.
    pub fn check_arity(&self, words: usize) -> Result<(), Error> {
        let arity = usize::try_from(self.arity.unsigned_abs()).unwrap_or(usize::MAX);
        let fits = if self.arity < 0 { words >= arity } else { words == arity };
        if fits { Ok(()) } else { Err(Error::GuardedArity) }
    }
}

/// These say nothing of what they are for in their flags or categories, on some servers.
const OF_CONNECTIONS: [&[u8]; 10] = [
    b"select",
    b"asking",
    b"readonly",
    b"readwrite",
    b"quit",
    b"wait",
    b"waitaof",
    // Redis 6.2 closes whatever sends one of these, as the request of a browser. A call of a module's it would free twice.
    b"post",
    b"host:",
    // It serves what another node has not handed over yet.
    b"restore-asking",
];

impl Described<'_> {
    /// Whether it can be guarded, and how it is run then.
    pub fn guarded(&self) -> Result<Guarded, Error> {
        let (has, is_in) = (|flag| has(&self.flags, flag), |name| has(&self.categories, name));
        if is_itself(self.name) {
            return Err(Error::GuardedItself);
        }
        if self.is_of_a_module() && ours(self.name).is_none() {
            return Err(Error::GuardedModule);
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

    /// Whether the server has it from a module, so that another one of this name may take its place some day.
    pub fn is_of_a_module(&self) -> bool {
        has(&self.flags, b"module") || self.categories.is_empty()
    }
}

/// It is flagged as one that only reads, and keeps the count with the key: the server replicates that.
const PFCOUNT: &[u8] = b"pfcount";

/// A command of Redis 8.4 and Valkey 9.1: `MSETEX numkeys key value [key value ...]`.
const MSETEX: &[u8] = b"msetex";

/// Whether the command may have [keys](hidden_keys) that the server does not find for a module.
pub fn may_have_hidden_keys(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(MSETEX) || ours(name).is_some_and(|spec| spec.also_from().is_some())
}

/// The places of the keys of a command that the server may not find for a module: it does not look behind a number or a
/// word unless it has a function of its own for that command.
pub fn hidden_keys(words: &[&[u8]]) -> impl Iterator<Item = usize> {
    const FIRST: usize = 2;
    const FEWEST_WORDS: usize = 4;
    let name = words.first().copied().unwrap_or_default();
    let is_msetex = name.eq_ignore_ascii_case(MSETEX);
    let number = words.get(1).filter(|_| is_msetex).and_then(|word| args::parse_integer(word));
    let pairs = number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
    // The server does not look whether there is a value behind the last of them.
    let end = pairs.saturating_mul(2).saturating_add(FIRST).saturating_sub(1);
    let of_pairs = if end.max(FEWEST_WORDS) <= words.len() { FIRST..end } else { 0..0 };
    let behind_also = ours(name).map_or(0..0, |spec| spec.keys_behind_also(words));
    of_pairs.step_by(2).chain(behind_also)
}

/// The command of this name, if it is one of ours.
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

    #[track_caller]
    fn assert_not_guarded(name: &'static str, words: &'static str, error: Error) {
        assert_eq!(described(name, 1, words).guarded(), Err(error), "{name}");
    }

    #[test]
    fn mistakes_are_found_from_left_to_right() {
        let parse = |line: &'static str| Request::parse(&words(line)).unwrap_err();
        assert_eq!(parse("lock.guard k a 1"), Error::WrongArity);
        assert_eq!(parse("lock.guard k  x lock.guard"), Error::OwnerLength);
        assert_eq!(parse("lock.guard k a x lock.guard"), Error::FenceNotANumber);
        for itself in ["lock.guard k a 1 lock.guard", "lock.guard k a 1 Lock.Guard k a 1 get k"] {
            assert_eq!(parse(itself), Error::GuardedItself);
        }
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
    fn what_counts_and_keeps_the_count_does_not_only_read() {
        for name in ["pfcount", "PFCOUNT"] {
            let pfcount = described(name, -2, "readonly @read @hyperloglog @slow").guarded();
            assert!(!pfcount.unwrap().reads_only, "{name}");
        }
    }

    #[test]
    fn the_proof_is_the_owner_and_the_fence_whatever_follows() {
        let line = words("lock.guard k a 7 set x 1 px 5");
        let request = Request::parse(&line).unwrap();
        assert_eq!(request.proof().owner.as_bytes(), b"a");
        assert_eq!(request.proof().fence, Some(7));
    }

    #[test]
    fn data_can_be_written_read_and_published() {
        let set = described("set", -3, "write denyoom @write @string @slow").guarded().unwrap();
        assert_eq!((set.reads_only, set.needs_memory, set.is_for_scripts), (false, true, true));
        let get = described("get", 2, "readonly fast @read @string @fast").guarded().unwrap();
        assert_eq!((get.reads_only, get.needs_memory, get.publishes), (true, false, false));
        assert!(described("publish", 3, "pubsub fast @pubsub @fast").guarded().unwrap().publishes);
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
        assert_not_guarded("exec", "noscript @slow @transaction", Error::GuardedTransaction);
        assert_not_guarded("watch", "noscript fast @fast @transaction", Error::GuardedTransaction);
        assert_not_guarded("eval", "noscript @slow @scripting", Error::GuardedScript);
        assert_not_guarded(
            "config|get",
            "admin noscript @admin @slow",
            Error::GuardedAdministration,
        );
        assert_not_guarded("save", "admin @slow", Error::GuardedAdministration);
        assert_not_guarded("keys", "readonly @admin @slow", Error::GuardedAdministration);
        assert_not_guarded("subscribe", "pubsub noscript @pubsub @slow", Error::GuardedConnection);
        assert_not_guarded("hello", "noscript fast @fast @connection", Error::GuardedConnection);
        assert_not_guarded("ping", "fast @fast @connection", Error::GuardedConnection);
        assert_not_guarded("wait", "noscript @keyspace @slow", Error::GuardedConnection);
        assert_not_guarded(
            "SELECT",
            "loading fast stale @keyspace @fast",
            Error::GuardedConnection,
        );
        assert_not_guarded("post", "readonly loading stale @read @slow", Error::GuardedConnection);
        assert_not_guarded("lock.guard", "write module @write", Error::GuardedItself);
    }

    #[test]
    fn commands_of_other_modules_are_refused_whatever_the_server_says_of_them() {
        for said in
            ["write module blocking @write @slow", "write module", "readonly module fast", "write"]
        {
            assert_not_guarded("m.set", said, Error::GuardedModule);
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
        for line in [
            "msetex",
            "msetex 3 k v l w",
            "msetex 0 k v",
            "msetex 1 k",
            "msetex x k v",
            "msetex 18446744073709551615 k v",
            "lock.release k a",
            "lock.check k ALSO 1 l",
            "mset k v",
        ] {
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
