//! One command in the course of being executed: its words, its key, its reply.

use super::api::api;
use super::key::{Key, Mode};
use super::respond::respond;
use super::state::STATE;
use super::{clock, log};
use crate::command::{Answer, Error, Reply, Stored};
use crate::lock::{FenceClock, Moment};
use redis_module::raw::{RedisModuleCtx, RedisModuleString};
use std::cell::Cell;
use std::ffi::c_int;
use std::slice;

/// More words than any command takes, so that one too many is still seen as such.
const MOST_WORDS: usize = 8;

pub(super) struct Call {
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: usize,
    answered: Cell<bool>,
}

/// The words of a request; on the stack, because no command needs many.
pub(super) struct Words<'c> {
    words: [&'c [u8]; MOST_WORDS],
    len: usize,
}

impl<'c> Words<'c> {
    pub(super) fn as_slice(&self) -> &[&'c [u8]] {
        self.words.get(..self.len).unwrap_or_default()
    }
}

impl Call {
    pub(super) fn new(
        ctx: *mut RedisModuleCtx,
        argv: *mut *mut RedisModuleString,
        argc: c_int,
    ) -> Self {
        Self { ctx, argv, argc: usize::try_from(argc).unwrap_or(0), answered: Cell::new(false) }
    }

    pub(super) fn words(&self) -> Words<'_> {
        let mut words = Words { words: [&[]; MOST_WORDS], len: self.argc.min(MOST_WORDS) };
        for (word, &string) in words.words.iter_mut().zip(self.strings()) {
            // SAFETY: an argument of this command, which outlives the `Call` that the words borrow from.
            *word = unsafe { bytes_of(string) };
        }
        words
    }

    /// Every word, however many, and not counting any as a name: the arguments of a loadmodule line.
    pub(super) fn all_words(&self) -> Vec<&[u8]> {
        // SAFETY: as in `words`.
        self.strings().iter().map(|&string| unsafe { bytes_of(string) }).collect()
    }

    /// Opens the key, which is the first argument of every command that has one, lets `decide` say what
    /// is to become of it, does it, and replies.
    pub(super) fn change_key<'r>(
        &self,
        decide: impl FnOnce(Stored<'_>, Moment, &mut FenceClock) -> Result<Answer<'r>, Error>,
    ) -> Result<(), Error> {
        let mut key = self.open_key(Mode::Write)?;
        let now = clock::now();
        let answer = self.consult(now, |fences| decide(key.stored(), now, fences))?;
        key.apply(answer.change)?;
        self.reply(&answer.reply);
        Ok(())
    }

    /// Opens the key and replies with what `look` makes of it.
    pub(super) fn read_key(
        &self,
        look: impl for<'v> FnOnce(Stored<'v>, Moment, &mut FenceClock) -> Result<Reply<'v>, Error>,
    ) -> Result<(), Error> {
        let key = self.open_key(Mode::Read)?;
        let now = clock::now();
        let reply = self.consult(now, |fences| look(key.stored(), now, fences))?;
        self.reply(&reply);
        Ok(())
    }

    pub(super) fn reply(&self, reply: &Reply<'_>) {
        self.answered.set(true);
        respond(self.ctx, reply);
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answered.get()
    }

    /// Lends the fence clock to a decision, and says so in the log when it met a fence that it will not
    /// learn: somebody planted it, or a clock somewhere is wrong by more than a day.
    fn consult<T>(&self, now: Moment, decide: impl FnOnce(&mut FenceClock) -> T) -> T {
        let refused = STATE.fences().refused();
        let outcome = STATE.with_fences(decide);
        if STATE.fences().refused() != refused && STATE.may_complain(now) {
            log::warning(
                self.ctx,
                "a lock's value has a fence more than a day ahead of the clock; \
                 it is kept as it is, but later fences will not be above it",
            );
        }
        outcome
    }

    fn open_key(&self, mode: Mode) -> Result<Key<'_>, Error> {
        let &name = self.strings().get(1).ok_or(Error::WrongArity)?;
        Ok(Key::open(self.ctx, name, mode))
    }

    fn strings(&self) -> &[*mut RedisModuleString] {
        if self.argv.is_null() {
            return &[];
        }
        // SAFETY: the server passes `argc` valid strings, and keeps them until the command returns,
        // which is after this `Call` is gone.
        unsafe { slice::from_raw_parts(self.argv, self.argc) }
    }
}

/// The bytes of a string of the server's.
///
/// # Safety
/// The string is valid, and neither freed nor changed while the bytes are in use.
pub(super) unsafe fn bytes_of<'s>(string: *mut RedisModuleString) -> &'s [u8] {
    let mut len = 0;
    // SAFETY: the caller vouches for the string; the server returns its bytes and their number.
    unsafe {
        let bytes = api!(RedisModule_StringPtrLen)(string, &raw mut len);
        slice::from_raw_parts(bytes.cast(), len)
    }
}
