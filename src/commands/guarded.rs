//! The command behind `LOCK.GUARD`, and its call.
//!
//! The command runs as if its client had sent it: in the client's protocol, with the client's rights, and refused when
//! the server is out of memory, as far as the server can be told so. The effects of the command are replicated,
//! `LOCK.GUARD` is not.
//!
//! From Redis 7.0 on the server checks the command, its keys and its channels itself, when it runs the command as the
//! user. Redis 6.2 has checked the keys, which are declared, and tells modules nothing else. So there the user must be
//! one who may run every command.

use super::command_table::{self, CommandName};
use super::held_reply;
use crate::authority;
use crate::ffi::{
    CallReply, Ctx, RawString, ShortText, api, bytes_of, call_filter, client, optional,
};
use leasehold_core::command::Error;
use leasehold_core::command::guard::Guarded;
use std::ffi::{CString, c_char};

/// A command that can be guarded, with its words.
pub(crate) struct InnerCommand<'w> {
    name: CommandName,
    arguments: &'w [RawString],
    guarded: Guarded,
}

/// The flags of a call, and a letter for each word.
type Format = ShortText<{ MOST_FLAGS + MOST_COPIED + 1 }>;

const MOST_FLAGS: usize = 8;

impl<'w> InnerCommand<'w> {
    /// # Errors
    /// If the command does not exist, has the wrong number of words, or cannot be guarded.
    pub(crate) fn find(ctx: Ctx, words: &'w [RawString]) -> Result<Self, Error> {
        let &[name_string, ref arguments @ ..] = words else { return Err(Error::WrongArity) };
        // SAFETY: the words are arguments of the command being executed.
        let word = |string: RawString| unsafe { bytes_of(string) };
        let second = arguments.first().map(|&string| word(string));
        let guarded = command_table::find(ctx, word(name_string), second)?;
        guarded.check_arity(words.len())?;
        let name = CommandName::new().with(word(name_string)).ok_or(Error::GuardedUnknown)?;
        Ok(Self { name, arguments, guarded })
    }

    pub(crate) fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    /// The words after the command's name.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &'w [u8]> + use<'w> {
        // SAFETY: the words are arguments of the command being executed.
        self.arguments.iter().map(|&string| unsafe { bytes_of(string) })
    }

    /// Runs the command and returns its reply. The reply may be an error, also if the server did not run the command.
    pub(crate) fn run(&self, ctx: Ctx) -> Result<CallReply, Error> {
        check_rights(ctx, &self.guarded)?;
        if !runs_as_user() && self.guarded.needs_memory && authority::is_out_of_memory(ctx) {
            return Err(Error::GuardedOutOfMemory);
        }
        let reply = self.call(ctx)?;
        match reply.error() {
            // Another module calls, and the call has no user.
            Some(text) if text.starts_with(b"ERR cannot run as user") => {
                Err(Error::GuardedForNobody)
            }
            // Redis 7.0 words the error differently.
            Some(text) if text.starts_with(b"ERR acl verification failed") => {
                Err(Error::GuardedDenied)
            }
            _ => Ok(reply),
        }
    }

    /// The flags of the call.
    ///
    /// The effects are replicated (`!`), except for a command that only reads: Redis 6.2 would replicate an empty
    /// transaction. The call is refused when memory is out (`M`), the reply is in the client's protocol (`0`), errors
    /// are replies (`E`), the user's rights apply (`C`), commands that scripts must not run are refused (`S`), and the
    /// reply may be [held back](held_reply) (`K`).
    fn flags(&self) -> Option<Format> {
        let Guarded { reads_only, is_for_scripts, may_block, .. } = self.guarded;
        let format = Format::new().with(if reads_only { b"" } else { b"!" })?;
        if !runs_as_user() {
            return Some(format);
        }
        format
            .with(b"M0EC")?
            .with(if is_for_scripts { b"S" } else { b"" })?
            .with(if held_reply::is_possible() && !may_block { b"K" } else { b"" })
    }

    fn call(&self, ctx: Ctx) -> Result<CallReply, Error> {
        let flags = self.flags().ok_or(Error::Internal)?;
        call_filter::unreplaced(ctx, self.name.as_c_str(), || match copied(self.arguments) {
            Some(copied) => self.call_with_copies(ctx, flags, &copied),
            None => self.call_with_strings(ctx, flags),
        })
        .ok_or(Error::GuardedModule)?
        .ok_or(Error::GuardedRefused)
    }

    fn call_with_strings(&self, ctx: Ctx, flags: Format) -> Option<CallReply> {
        let (format, arguments) = (flags.with(b"v")?, self.arguments);
        // SAFETY: the format takes a list of valid strings and their number, and the server takes a reference to each.
        // Nobody else gets the reply.
        unsafe {
            CallReply::given(api!(RedisModule_Call)(
                ctx,
                self.name.as_c_str().as_ptr(),
                format.as_c_str().as_ptr(),
                arguments.as_ptr(),
                arguments.len(),
            ))
        }
    }

    fn call_with_copies(&self, ctx: Ctx, flags: Format, copied: &Copied<'_>) -> Option<CallReply> {
        let words = [b'b'; MOST_COPIED];
        let format = flags.with(words.get(..self.arguments.len())?)?;
        let &[one, two, three, four, five, six, seven, eight] = copied;
        // SAFETY: the format names as many pairs of start and length as there are words, and at most as many as are
        // passed here. Pairs that it does not name are not read. The server copies the words. Nobody else gets the
        // reply.
        unsafe {
            CallReply::given(api!(RedisModule_Call)(
                ctx,
                self.name.as_c_str().as_ptr(),
                format.as_c_str().as_ptr(),
                one.as_ptr().cast::<c_char>(),
                one.len(),
                two.as_ptr().cast::<c_char>(),
                two.len(),
                three.as_ptr().cast::<c_char>(),
                three.len(),
                four.as_ptr().cast::<c_char>(),
                four.len(),
                five.as_ptr().cast::<c_char>(),
                five.len(),
                six.as_ptr().cast::<c_char>(),
                six.len(),
                seven.as_ptr().cast::<c_char>(),
                seven.len(),
                eight.as_ptr().cast::<c_char>(),
                eight.len(),
            ))
        }
    }
}

/// The number of words that are copied at most.
const MOST_COPIED: usize = 8;

type Copied<'w> = [&'w [u8]; MOST_COPIED];

/// The words, if the server should get copies: they are few and short, and one is a number.
///
/// The server stores a number in 8 bytes instead of as a string only if nobody else references the string, and the
/// client references its own words.
fn copied(strings: &[RawString]) -> Option<Copied<'_>> {
    const LONGEST: usize = 256;
    let mut words: Copied<'_> = [&[]; MOST_COPIED];
    let places = words.get_mut(..strings.len())?;
    let mut has_number = false;
    for (place, &string) in places.iter_mut().zip(strings) {
        // SAFETY: the words are arguments of the command being executed.
        let word = unsafe { bytes_of(string) };
        if word.len() > LONGEST {
            return None;
        }
        has_number |= is_number(word);
        *place = word;
    }
    has_number.then_some(words)
}

fn is_number(word: &[u8]) -> bool {
    const LONGEST: usize = 20;
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    word.len() <= LONGEST && !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// Refuses a command that the user must not run, if the server would not refuse it.
fn check_rights(ctx: Ctx, command: &Guarded) -> Result<(), Error> {
    if runs_as_user() || may_run_every_command(ctx, command).unwrap_or(false) {
        Ok(())
    } else {
        Err(Error::GuardNeedsAllCommands)
    }
}

/// Whether the server knows the call flags of Redis 7.0.
fn runs_as_user() -> bool {
    optional!(RedisModule_GetCommand).is_some()
}

/// Whether the user may run every command. `None` if the server does not say.
fn may_run_every_command(ctx: Ctx, command: &Guarded) -> Option<bool> {
    let Some(user) = client::user(ctx, client::id(ctx)) else {
        // A script does not say which user runs it.
        let rules = CallReply::to(ctx, c"ACL", &[c"LIST"])?;
        return Some(rules.whole().texts().iter().all(|rules| allow_all(rules, command)));
    };
    let reply = CallReply::to(ctx, c"ACL", &[c"GETUSER", &CString::new(user).ok()?])?;
    // The field's name, then the flags.
    let flags = reply.whole().at(1)?.texts();
    let has = |flag: &[u8]| flags.contains(&flag);
    Some(has(b"allcommands") && (!command.publishes || has(b"allchannels")))
}

/// Whether a user with these rules, as `ACL LIST` shows them, may run every command, or cannot log in.
fn allow_all(rules: &[u8], command: &Guarded) -> bool {
    let words: Vec<_> = rules.split(|&byte| byte == b' ').skip(2).collect();
    let has = |word: &[u8]| words.contains(&word);
    let takes_away = words.iter().any(|word| word.starts_with(b"-"));
    has(b"off") || has(b"+@all") && !takes_away && (!command.publishes || has(b"&*"))
}
