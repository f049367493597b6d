//! The command behind `LOCK.GUARD`, and its call.
//!
//! It is called as its sender would have sent it: in the protocol and with the rights of that client, and refused where
//! memory is out, as far as the server can be told so. What it does is replicated, and `LOCK.GUARD` itself is not.

use super::authority;
use super::command_table::{self, CommandName};
use super::ffi::api::api;
use super::ffi::call_filter;
use super::ffi::call_reply::CallReply;
use super::ffi::short_text::ShortText;
use super::ffi::string::bytes_of;
use super::held_reply;
use super::permission;
use leasehold_core::command::Error;
use leasehold_core::command::guard::Guarded;
use redis_module::raw::{RedisModuleCtx, RedisModuleString};
use std::ffi::c_char;

/// A command that can be guarded, with its words.
pub(super) struct InnerCommand<'w> {
    name: CommandName,
    arguments: &'w [*mut RedisModuleString],
    guarded: Guarded,
}

/// The flags of a call, and a letter for each word.
type Format = ShortText<{ MOST_FLAGS + MOST_COPIED + 1 }>;

const MOST_FLAGS: usize = 8;

impl<'w> InnerCommand<'w> {
    /// # Errors
    /// If there is no such command, if it has another number of words, or if it cannot be guarded.
    pub(super) fn find(
        ctx: *mut RedisModuleCtx,
        words: &'w [*mut RedisModuleString],
    ) -> Result<Self, Error> {
        let &[name_string, ref arguments @ ..] = words else { return Err(Error::WrongArity) };
        // SAFETY: the words are arguments of the command being executed.
        let word = |string: *mut RedisModuleString| unsafe { bytes_of(string) };
        let second = arguments.first().map(|&string| word(string));
        let guarded = command_table::find(ctx, word(name_string), second)?;
        guarded.check_arity(words.len())?;
        let name = CommandName::new().with(word(name_string)).ok_or(Error::GuardedUnknown)?;
        Ok(Self { name, arguments, guarded })
    }

    pub(super) fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    /// The words behind its name.
    pub(super) fn arguments(&self) -> impl Iterator<Item = &'w [u8]> + use<'w> {
        // SAFETY: the words are arguments of the command being executed.
        self.arguments.iter().map(|&string| unsafe { bytes_of(string) })
    }

    /// What the server replies to it. It may be an error, also because the server did not run it.
    pub(super) fn run(&self, ctx: *mut RedisModuleCtx) -> Result<CallReply, Error> {
        permission::check(ctx, &self.guarded)?;
        if !permission::runs_as_user()
            && self.guarded.needs_memory
            && authority::is_out_of_memory(ctx)
        {
            return Err(Error::GuardedOutOfMemory);
        }
        let reply = self.call(ctx)?;
        match reply.error() {
            // Another module calls on behalf of nobody.
            Some(text) if text.starts_with(b"ERR cannot run as user") => {
                Err(Error::GuardedForNobody)
            }
            // Redis 7.0 has another word for it.
            Some(text) if text.starts_with(b"ERR acl verification failed") => {
                Err(Error::GuardedDenied)
            }
            _ => Ok(reply),
        }
    }

    /// How it is to be called.
    ///
    /// What it does is replicated (`!`); for a command that only reads, Redis 6.2 would replicate an empty transaction.
    /// Memory that is out is heeded (`M`), the reply is in the client's protocol (`0`), errors are replies (`E`), the
    /// user's rights count (`C`), what is refused to scripts is refused (`S`), and the reply may be [held back](held_reply)
    /// (`K`).
    fn flags(&self) -> Option<Format> {
        let Guarded { reads_only, is_for_scripts, may_block, .. } = self.guarded;
        let format = Format::new().with(if reads_only { b"" } else { b"!" })?;
        if !permission::runs_as_user() {
            return Some(format);
        }
        format
            .with(b"M0EC")?
            .with(if is_for_scripts { b"S" } else { b"" })?
            .with(if held_reply::is_possible() && !may_block { b"K" } else { b"" })
    }

    fn call(&self, ctx: *mut RedisModuleCtx) -> Result<CallReply, Error> {
        let flags = self.flags().ok_or(Error::Internal)?;
        call_filter::unreplaced(ctx, self.name.as_c_str(), || match copied(self.arguments) {
            Some(copied) => self.call_with_copies(ctx, flags, &copied),
            None => self.call_with_strings(ctx, flags),
        })
        .ok_or(Error::GuardedModule)?
        .ok_or(Error::GuardedRefused)
    }

    fn call_with_strings(&self, ctx: *mut RedisModuleCtx, flags: Format) -> Option<CallReply> {
        let (format, arguments) = (flags.with(b"v")?, self.arguments);
        // SAFETY: the format takes a list of valid strings and their number; the server takes its own share of each. The reply
        // goes nowhere else.
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

    fn call_with_copies(
        &self,
        ctx: *mut RedisModuleCtx,
        flags: Format,
        copied: &Copied<'_>,
    ) -> Option<CallReply> {
        let words = [b'b'; MOST_COPIED];
        let format = flags.with(words.get(..self.arguments.len())?)?;
        let &[one, two, three, four, five, six, seven, eight] = copied;
        // SAFETY: the format takes the start and the length of so many words, which are no more than there are here;
        // what it does not name is not read. The server copies them. The reply goes nowhere else.
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

/// How many words are copied at most.
const MOST_COPIED: usize = 8;

type Copied<'w> = [&'w [u8]; MOST_COPIED];

/// The words, if the server is to be given copies of them: they are few, short, and a number is among them.
///
/// The server keeps a number that it stores in 8 bytes and not as a string, but only if nobody else has a share of that
/// string, as the client has whose word it is.
fn copied(strings: &[*mut RedisModuleString]) -> Option<Copied<'_>> {
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
