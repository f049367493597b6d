//! What the server tells about a command: COMMAND INFO, COMMAND DOCS, GETKEYS, and our own HELP.

use std::ffi::CStr;

/// The facts of one command. C strings where they go to the server as they are.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static CStr,
    pub(crate) summary: &'static CStr,
    pub(crate) complexity: &'static CStr,
    pub(crate) since: &'static CStr,
    /// How many words a request has, the command's name included; negative for "or more". The server
    /// checks this where it knows it; the page checks all of it.
    pub(crate) arity: i32,
    pub(crate) access: Access,
    pub(crate) args: &'static [Arg],
}

/// What a command does to its key. Decides the flags, the key specification and so the ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// No key.
    None,
    /// Reads it.
    Read,
    /// May create it, so it is refused when memory is out; and may wait for it.
    Insert,
    /// May change its expiry. Works when memory is out.
    Update,
    /// May delete it. Works when memory is out.
    Delete,
}

#[derive(Debug)]
pub(crate) struct Arg {
    pub(crate) name: &'static CStr,
    pub(crate) kind: ArgKind,
    pub(crate) optional: bool,
    /// The word that a client puts in front of it.
    pub(crate) keyword: Option<&'static CStr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgKind {
    Key,
    Text,
    Integer,
}

impl Arg {
    pub(super) const KEY: Self = Self::needed(c"key", ArgKind::Key);
    pub(super) const OWNER: Self = Self::needed(c"owner", ArgKind::Text);
    pub(super) const TTL: Self = Self::needed(c"ttl", ArgKind::Integer);
    pub(super) const FENCE: Self = Self::optional(c"fence", None);
    pub(super) const BLOCK: Self = Self::optional(c"milliseconds", Some(c"BLOCK"));
    pub(super) const COUNT: Self = Self::optional(c"count", Some(c"COUNT"));

    const fn needed(name: &'static CStr, kind: ArgKind) -> Self {
        Self { name, kind, optional: false, keyword: None }
    }

    const fn optional(name: &'static CStr, keyword: Option<&'static CStr>) -> Self {
        Self { name, kind: ArgKind::Integer, optional: true, keyword }
    }
}

impl Spec {
    /// As a person writes it: `LOCK.RELEASE key owner [fence]`.
    pub(crate) fn usage(&self) -> String {
        let mut usage = self.name.to_string_lossy().to_uppercase();
        for arg in self.args {
            let words: Vec<_> =
                arg.keyword.iter().chain([&arg.name]).map(|word| word.to_string_lossy()).collect();
            let words = words.join(" ");
            usage.push_str(&if arg.optional { format!(" [{words}]") } else { format!(" {words}") });
        }
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::super::ALL;
    use super::*;

    #[test]
    fn the_arity_counts_the_name_and_what_cannot_be_left_out() {
        for spec in ALL {
            let needed = spec.args.iter().filter(|arg| !arg.optional).count() + 1;
            assert_eq!(usize::try_from(spec.arity.abs()), Ok(needed), "{:?}", spec.name);
            assert!(spec.arity < 0 || needed == spec.args.len() + 1, "{:?}", spec.name);
        }
    }

    #[test]
    fn a_command_with_a_key_names_it_first() {
        for spec in ALL {
            let first = spec.args.first().map(|arg| arg.kind);
            assert_eq!(first == Some(ArgKind::Key), spec.access != Access::None, "{:?}", spec.name);
        }
    }

    #[test]
    fn usage_shows_what_may_be_left_out() {
        let usages = ALL.map(Spec::usage);
        assert!(usages.contains(&"LOCK.RELEASE key owner [fence]".to_owned()));
        assert!(usages.contains(&"LOCK.ACQUIRE key owner ttl [BLOCK milliseconds]".to_owned()));
    }
}
