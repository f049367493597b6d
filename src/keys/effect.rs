//! What a command may do to a lock that it names, judged by its words.
//!
//! The command filter sees every command before the server does, and asks this about commands that name a contended
//! lock. If the words do not tell, the command counts as one that frees the lock.

use crate::ffi::call_reply::CallReply;
use leasehold_core::lock::Suspicion;
use redis_module::raw::RedisModuleCtx;
use std::cell::RefCell;

/// The commands that only read, as the server lists them.
pub(crate) struct Readers {
    /// Sorted. Longer names are left out, and count as commands that free a lock.
    names: RefCell<Vec<Name>>,
}

/// A name of up to 16 characters, in lower case.
type Name = u128;

impl Readers {
    pub(crate) const fn new() -> Self {
        Self { names: RefCell::new(Vec::new()) }
    }

    pub(crate) fn reset(&self) {
        self.names.borrow_mut().clear();
    }

    /// Asks the server which commands only read. Commands of modules loaded later are missing. If the server does not
    /// answer, the list is empty, and locks are looked at more often than necessary.
    pub(crate) fn learn(&self, ctx: *mut RedisModuleCtx) {
        if !self.names.borrow().is_empty() {
            return;
        }
        let reply = CallReply::to(ctx, c"ACL", &[c"CAT", c"read"]);
        let mut names: Vec<_> =
            reply.iter().flat_map(|reply| reply.texts()).filter_map(name).collect();
        names.sort_unstable();
        self.names.replace(names);
    }

    /// What a command may do to a lock that it names. `None` if the command leaves the lock unchanged. `options` are
    /// the words after the third.
    pub(crate) fn suspicion<'w>(
        &self,
        command: &[u8],
        options: impl Iterator<Item = &'w [u8]>,
    ) -> Option<Suspicion> {
        let command = name(command);
        if command == SET {
            return set(options);
        }
        let leaves_it = command.is_some_and(|command| {
            Some(command) == SETNX || self.names.borrow().binary_search(&command).is_ok()
        });
        (!leaves_it).then_some(Suspicion::Freed)
    }
}

/// What a `SET` with these options may do.
fn set<'w>(options: impl Iterator<Item = &'w [u8]>) -> Option<Suspicion> {
    let (mut is_new, mut expires) = (false, false);
    for option in options {
        let is_any_of = |known: &[&[u8]]| known.iter().any(|it| option.eq_ignore_ascii_case(it));
        if is_any_of(&[b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE"]) {
            // Any word may follow this option.
            return Some(Suspicion::Freed);
        }
        is_new |= is_any_of(&[b"NX"]);
        expires |= is_any_of(&[b"EX", b"PX", b"EXAT", b"PXAT"]);
    }
    match (is_new, expires) {
        (true, _) => None,
        // The new value may have expired already.
        (false, true) => Some(Suspicion::Freed),
        (false, false) => Some(Suspicion::Rewritten),
    }
}

const SET: Option<Name> = Some(Name::from_le_bytes(*b"set\0\0\0\0\0\0\0\0\0\0\0\0\0"));
const SETNX: Option<Name> = Some(Name::from_le_bytes(*b"setnx\0\0\0\0\0\0\0\0\0\0\0"));

fn name(word: &[u8]) -> Option<Name> {
    let mut letters = [0; size_of::<Name>()];
    letters.get_mut(..word.len())?.copy_from_slice(word);
    letters.make_ascii_lowercase();
    Some(Name::from_le_bytes(letters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_suspicion(command: &str, expected: Option<Suspicion>) {
        let mut names: Vec<_> =
            ["get", "mget", "ttl"].iter().filter_map(|word| name(word.as_bytes())).collect();
        names.sort_unstable();
        let readers = Readers { names: RefCell::new(names) };
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let options = words.iter().copied().skip(3);
        assert_eq!(readers.suspicion(words[0], options), expected, "{command}");
    }

    #[test]
    fn a_command_that_only_reads_leaves_a_lock_as_it_is() {
        for command in ["GET k", "get k", "MGet a k", "TTL k"] {
            assert_suspicion(command, None);
        }
    }

    #[test]
    fn a_set_leaves_the_key_there_and_may_leave_it_as_it_is() {
        for command in ["SET k v NX", "set k v px 1000 nx", "SET k v NX GET", "SETNX k v"] {
            assert_suspicion(command, None);
        }
        for command in
            ["SET k v", "SET k NX", "set NX NX", "SET k v KEEPTTL", "SET k v XX", "SET k"]
        {
            assert_suspicion(command, Some(Suspicion::Rewritten));
        }
        for command in ["SET k v PX 1", "set k v xx pxat 1", "SET k v IFEQ NX", "SET k v IFNE x NX"]
        {
            assert_suspicion(command, Some(Suspicion::Freed));
        }
    }

    #[test]
    fn any_other_command_may_free_a_lock() {
        for command in ["DEL k", "GETDEL k", "", "EVAL x 1 k", "a-name-longer-than-any k", "gets k"]
        {
            assert_suspicion(command, Some(Suspicion::Freed));
        }
    }
}
