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
    /// May create it, so it is refused when memory is out.
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgKind {
    Key,
    Text,
    Integer,
}

impl Arg {
    pub(super) const KEY: Self = Self { name: c"key", kind: ArgKind::Key, optional: false };
    pub(super) const OWNER: Self = Self { name: c"owner", kind: ArgKind::Text, optional: false };
    pub(super) const TTL: Self = Self { name: c"ttl", kind: ArgKind::Integer, optional: false };
    pub(super) const FENCE: Self = Self { name: c"fence", kind: ArgKind::Integer, optional: true };
}

impl Spec {
    /// As a person writes it: `LOCK.RELEASE key owner [fence]`.
    pub(crate) fn usage(&self) -> String {
        let mut usage = self.name.to_string_lossy().to_uppercase();
        for arg in self.args {
            let name = arg.name.to_string_lossy();
            usage.push_str(&if arg.optional { format!(" [{name}]") } else { format!(" {name}") });
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
        assert_eq!(super::super::release::SPEC.usage(), "LOCK.RELEASE key owner [fence]");
    }
}
