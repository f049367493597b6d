//! What the server says about a command in COMMAND INFO, COMMAND DOCS and GETKEYS, and what our HELP says.

use super::Also;
use std::ffi::CStr;
use std::ops::Range;

/// The facts of one command. C strings where the server gets them unchanged.
#[derive(Debug)]
pub struct Spec {
    pub name: &'static CStr,
    pub summary: &'static CStr,
    pub complexity: &'static CStr,
    pub since: &'static CStr,
    /// What a released version changed: the version, and a sentence.
    pub history: &'static [(&'static CStr, &'static CStr)],
    /// Hints for clients and proxies, in the server's words, separated by spaces.
    pub tips: Option<&'static CStr>,
    pub access: Access,
    pub args: &'static [Arg],
}

/// How a command uses its key. Decides the flags, the key specification and so the ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    None,
    /// No key, but shows what happens to all keys: for operators, not for users of locks.
    Operator,
    Read,
    /// Lists the key's waiters, which takes time in proportion to their number.
    List,
    /// May create the key, so it is refused when memory is out. May wait for the key.
    Insert,
    /// May change the key's expiry. Works when memory is out.
    Update,
    /// May delete the key. Works when memory is out.
    Delete,
    /// Reads the key, and uses other keys as the guarded command does.
    Guard,
    /// No key: changes the locks of an owner that the client may change. Works when memory is out.
    Owner,
}

#[derive(Clone, Copy, Debug)]
pub struct Arg {
    pub name: &'static CStr,
    pub kind: ArgKind,
    pub optional: bool,
    /// The word that a client puts in front of the argument.
    pub keyword: Option<&'static CStr>,
}

#[derive(Clone, Copy, Debug)]
pub enum ArgKind {
    Key,
    /// One or more keys.
    Keys,
    Text,
    /// Any number of words, or none.
    Texts,
    Integer,
    /// Only its keyword.
    Word,
    OneOf(&'static [Arg]),
    /// All of these, in this order.
    Block(&'static [Arg]),
}

impl Arg {
    pub(super) const KEY: Self = Self::new(c"key", ArgKind::Key);
    pub(super) const OWNER: Self = Self::new(c"owner", ArgKind::Text);
    pub(super) const TTL: Self = Self::new(c"ttl", ArgKind::Integer);
    pub(super) const NEW_FENCE: Self = Self::new(c"fence", ArgKind::Integer);
    pub(super) const FENCE: Self = Self::NEW_FENCE.optional();
    pub(super) const SHARE: Self =
        Self::new(c"holders", ArgKind::Integer).behind(c"SHARE").optional();
    pub(super) const EPHEMERAL: Self =
        Self::new(c"grace", ArgKind::Integer).behind(c"EPHEMERAL").optional();
    pub(super) const ALSO: Self = Self::new(
        c"also",
        ArgKind::Block(&[
            Self::new(c"numkeys", ArgKind::Integer).behind(ALSO),
            Self::new(c"key", ArgKind::Keys),
        ]),
    )
    .optional();
    pub(super) const COMMAND: Self = Self::new(c"command", ArgKind::Text);
    pub(super) const REST: Self = Self::new(c"arg", ArgKind::Texts).optional();
    pub(super) const COUNT: Self =
        Self::new(c"count", ArgKind::Integer).behind(c"COUNT").optional();

    pub(super) const CURSOR: Self =
        Self::new(c"cursor", ArgKind::Integer).behind(c"CURSOR").optional();

    pub(super) const COUNT_OR_RESET: Self = Self::new(
        c"listing",
        ArgKind::OneOf(&[
            Self::new(c"count", ArgKind::Integer),
            Self::new(c"reset", ArgKind::Word).behind(c"RESET"),
        ]),
    )
    .optional();

    /// `BLOCK milliseconds | TICKET milliseconds [NOTIFY channel]`.
    pub(super) const BLOCK_OR_TICKET: Self = Self::new(
        c"wait",
        ArgKind::OneOf(&[
            Self::new(c"milliseconds", ArgKind::Integer).behind(c"BLOCK"),
            Self::new(
                c"ticket",
                ArgKind::Block(&[
                    Self::new(c"milliseconds", ArgKind::Integer).behind(c"TICKET"),
                    Self::new(c"channel", ArgKind::Text).behind(c"NOTIFY").optional(),
                ]),
            ),
        ]),
    )
    .optional();

    const fn new(name: &'static CStr, kind: ArgKind) -> Self {
        Self { name, kind, optional: false, keyword: None }
    }

    const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    const fn behind(self, keyword: &'static CStr) -> Self {
        Self { keyword: Some(keyword), ..self }
    }

    /// The argument as a person writes it.
    fn shown(&self) -> String {
        let usage = self.usage();
        if self.optional { format!("[{usage}]") } else { usage }
    }

    /// The argument as a person writes it, without a sign that it is optional.
    fn usage(&self) -> String {
        let name = match self.kind {
            ArgKind::OneOf(args) => args.iter().map(Self::usage).collect::<Vec<_>>().join(" | "),
            ArgKind::Block(args) => args.iter().map(Self::shown).collect::<Vec<_>>().join(" "),
            ArgKind::Word => String::new(),
            ArgKind::Texts => format!("{} ...", text(self.name)),
            ArgKind::Key | ArgKind::Text | ArgKind::Integer => text(self.name),
            ArgKind::Keys => {
                let name = text(self.name);
                format!("{name} [{name} ...]")
            }
        };
        match self.keyword.map(text) {
            Some(keyword) if name.is_empty() => keyword,
            Some(keyword) => format!("{keyword} {name}"),
            None => name,
        }
    }
}

/// The word before the names of other locks.
pub const ALSO: &CStr = c"ALSO";

fn text(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

impl Spec {
    /// The same request on the same data may get another reply: the reply depends on a clock or a queue.
    pub(super) const NONDETERMINISTIC: &'static CStr = c"nondeterministic_output";

    /// Also, each server replies for itself.
    pub(super) const OF_EACH_SERVER: &'static CStr =
        c"request_policy:all_nodes nondeterministic_output";

    /// Comparing one word for each hold takes some nanoseconds.
    pub(super) const O_OF_HOLDERS: &'static CStr = c"O(N) with N holders of the lock; O(1) for one";

    /// The word from which the server looks for names of other locks, if the command takes several.
    pub fn also_from(&self) -> Option<usize> {
        let takes_several = self.args.iter().any(|arg| arg.name == Arg::ALSO.name);
        takes_several.then(|| self.needed())
    }

    /// How many words cannot be left out, including the command's name.
    fn needed(&self) -> usize {
        self.args.iter().filter(|arg| !arg.optional).count().saturating_add(1)
    }

    /// The number of words, negative for "or more". The server checks the arity if it knows it, and the page checks
    /// everything.
    pub fn arity(&self) -> i32 {
        let words = i32::try_from(self.needed()).unwrap_or(i32::MAX);
        if self.args.iter().any(|arg| arg.optional) { words.saturating_neg() } else { words }
    }

    pub const fn has_key(&self) -> bool {
        matches!(self.args, [Arg { kind: ArgKind::Key, .. }, ..])
    }

    /// The positions of the keys after `ALSO`, whatever else is wrong with the request.
    pub fn keys_behind_also(&self, words: &[&[u8]]) -> Range<usize> {
        let also = self.also_from().and_then(|from| Also::find(words, from));
        also.map_or(0..0, |also| also.at..also.at.saturating_add(also.keys.len()))
    }

    /// The usage as a person writes it: `LOCK.CHECK key owner [fence]`.
    pub fn usage(&self) -> String {
        let mut usage = self.name.to_string_lossy().to_uppercase();
        for arg in self.args {
            usage.push(' ');
            usage.push_str(&arg.shown());
        }
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::super::ALL;
    use super::*;

    #[test]
    fn what_the_server_is_told_follows_from_the_arguments() {
        let arities = [-4, -3, -4, 4, -3, -5, 2, -2, -2, -1, -1, -2, 1];
        assert_eq!(ALL.map(Spec::arity), arities);
        for (spec, arity) in ALL.into_iter().zip(arities) {
            let takes_key = arity.abs() > 1 && spec.access != Access::Owner;
            assert_eq!(spec.has_key(), takes_key, "{:?}", spec.name);
            let takes_several = spec.usage().ends_with("[ALSO numkeys key [key ...]]");
            let needed = usize::try_from(arity.abs()).unwrap();
            assert_eq!(spec.also_from(), takes_several.then_some(needed), "{:?}", spec.name);
        }
    }

    #[test]
    fn usage_shows_what_may_be_left_out() {
        let usages = ALL.map(Spec::usage);
        assert!(usages.contains(&"LOCK.CHECK key owner [fence]".to_owned()));
        assert!(usages.contains(&"LOCK.GUARD key owner fence command [arg ...]".to_owned()));
        assert!(
            usages.contains(
                &"LOCK.ACQUIRE key owner ttl [SHARE holders] \
              [BLOCK milliseconds | TICKET milliseconds [NOTIFY channel]] [EPHEMERAL grace] \
              [ALSO numkeys key [key ...]]"
                    .to_owned()
            )
        );
    }
}
