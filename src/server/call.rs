//! One command in the course of being executed: its words, its key, its reply.

use super::api::api;
use super::authority::{self, Account};
use super::key::{Key, Mode};
use super::park::{self, Parked, Wait};
use super::respond::respond;
use super::state::STATE;
use super::witness::{Happened, Witness, fence_of};
use super::{alarm, clock, eviction, handoff, log, slots};
use leasehold_core::command::{Change, Error, Reply};
use leasehold_core::lock::{Fence, FenceClock, Hold, Moment, Ownership, Queues, Stored};
use leasehold_core::observe::Lock;
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

/// What a command that may change the lock comes to.
pub(super) struct Decision<'r, T> {
    pub(super) change: Change<'r>,
    pub(super) outcome: T,
    pub(super) happened: Happened<'r>,
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

    /// The first, which is the name of the command, stays empty: nobody asks for it.
    pub(super) fn words(&self) -> Words<'_> {
        let mut words = Words { words: [&[]; MOST_WORDS], len: self.argc.min(MOST_WORDS) };
        if let ([_, words @ ..], [_, strings @ ..]) = (&mut words.words, self.strings()) {
            for (word, &string) in words.iter_mut().zip(strings) {
                // SAFETY: an argument of this command, which outlives the `Call` that the words borrow from.
                *word = unsafe { bytes_of(string) };
            }
        }
        words
    }

    /// Every word, however many, and not counting any as a name: the arguments of a loadmodule line.
    pub(super) fn all_words(&self) -> Vec<&[u8]> {
        // SAFETY: as in `words`.
        self.strings().iter().map(|&string| unsafe { bytes_of(string) }).collect()
    }

    /// Opens the key, which is the first argument of every command that has one, lets `decide` say what
    /// is to become of it, does it, and passes on what `decide` has to say besides.
    ///
    /// `decide` is told how many wait for the lock. If any do, this is where a lock changes hands:
    /// what may have happened to it is dealt with before, what was done to it now, after.
    pub(super) fn change_key<'r, T>(
        &self,
        decide: impl FnOnce(
            Stored<'_>,
            usize,
            Moment,
            &mut FenceClock,
        ) -> Result<Decision<'r, T>, Error>,
    ) -> Result<T, Error> {
        if authority::is_repeated(self.ctx) {
            return Err(Error::ScriptRepeated);
        }
        let name = self.key_name()?;
        let waiters = self.settle_if_dirty(name);
        slots::prepare();
        let mut key = Key::open(self.ctx, name, Mode::Write);
        let now = clock::now();
        let witness = Witness { ctx: self.ctx, name, lock: self.lock(name), now };
        eviction::put_back(&mut key, &witness)?;
        let stored = key.stored();
        if stored.is_free(now) {
            slots::about_to_grant(self.lock(name).key);
        }
        let Decision { change, outcome, happened } =
            self.consult(|fences| decide(stored, waiters, now, fences))?;
        let fence = fence_of(stored);
        if happened.confirms() {
            hear_of(fence);
        }
        let changes = change != Change::Nothing;
        let is_another_hold = matches!(change, Change::Free | Change::Raise { .. });
        if !changes {
            witness.refusal(&happened, stored);
        }
        key.apply(change)?;
        drop(key);
        witness.command(&happened, fence);
        if waiters > 0 && changes {
            if is_another_hold {
                self.in_queues(name, |queues, db, key| queues.changed(db, key));
            }
            self.settle(name);
        }
        Ok(outcome)
    }

    /// Opens the key and replies with what `look` makes of it, and of the number of those who wait.
    pub(super) fn read_key(
        &self,
        look: impl for<'v> FnOnce(
            Stored<'v>,
            usize,
            Moment,
            &mut FenceClock,
        ) -> Result<Reply<'v>, Error>,
    ) -> Result<(), Error> {
        let name = self.key_name()?;
        let waiters = self.in_queues(name, |queues, db, key| queues.waiters_for(db, key));
        let evicted = eviction::kept(self.lock(name));
        let key = Key::open(self.ctx, name, Mode::Read);
        // What is about to become of the lock, a command that only reads cannot do, but it can tell.
        let stored = match (key.stored(), &evicted) {
            (Stored::Nothing, Some(evicted)) => evicted.as_stored(),
            (stored, _) => stored,
        };
        let stored = match stored {
            Stored::Text { value, .. } if self.is_given_back(name, value) => Stored::Nothing,
            stored => stored,
        };
        let now = clock::now();
        let reply = self.consult(|fences| look(stored, waiters, now, fences))?;
        if let Reply::Integer(_) = reply {
            hear_of(fence_of(stored)); // a check, answered with the fence
        }
        self.reply(&reply);
        Ok(())
    }

    /// Replies with what `look` makes of the queue.
    pub(super) fn read_queue(
        &self,
        look: impl for<'q> FnOnce(&'q Queues<Parked>, i32, &'q [u8]) -> Reply<'q>,
    ) -> Result<(), Error> {
        let name = self.key_name()?;
        let key = Key::open(self.ctx, name, Mode::Read);
        if let Stored::OtherType = key.stored() {
            return Err(Error::WrongType);
        }
        // Replying writes into the client's buffer and calls nobody back.
        self.in_queues(name, |queues, db, key| self.reply(&look(queues, db, key)));
        Ok(())
    }

    /// Parks the client in the lock's queue; nil where nothing ever waits.
    pub(super) fn wait(&self, wait: &Wait<'_>) -> Result<(), Error> {
        let name = self.key_name()?;
        // SAFETY: an argument of this command.
        let key = unsafe { bytes_of(name) };
        if park::park(self.ctx, self.db(), key, wait)? {
            self.answered.set(true);
            self.settle_if_dirty(name);
        } else {
            STATE.with_observer(|observer| observer.refused(Lock { db: self.db(), key }));
            self.reply(&Reply::Nil);
        }
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
    fn consult<T>(&self, decide: impl FnOnce(&mut FenceClock) -> T) -> T {
        let refused = STATE.fences().refused();
        let outcome = STATE.with_fences(decide);
        if STATE.fences().refused() != refused && STATE.may_complain() {
            log::warning(
                self.ctx,
                "a lock's value has a fence more than a day ahead of the clock; \
                 it is kept as it is, but later fences will not be above it",
            );
        }
        outcome
    }

    /// How many wait for the lock, once whatever may have happened to it has had its effect.
    fn settle_if_dirty(&self, name: *mut RedisModuleString) -> usize {
        if STATE.next_given_back().is_some() {
            // SAFETY: an argument of this command.
            handoff::take_back_first(self.ctx, self.db(), unsafe { bytes_of(name) });
        }
        if STATE.with_queues(|queues| queues.is_empty()) {
            return 0;
        }
        if self.in_queues(name, |queues, db, key| queues.may_have_changed(db, key)) {
            self.settle(name);
        }
        self.in_queues(name, |queues, db, key| queues.waiters_for(db, key))
    }

    fn is_given_back(&self, name: *mut RedisModuleString, value: &[u8]) -> bool {
        // Nearly always none is.
        if STATE.next_given_back().is_none() {
            return false;
        }
        // SAFETY: an argument of this command.
        let key = unsafe { bytes_of(name) };
        STATE.is_given_back(self.db(), key, Hold::read(value, None).fence)
    }

    fn settle(&self, name: *mut RedisModuleString) {
        // SAFETY: an argument of this command.
        let key = unsafe { bytes_of(name) };
        let _done = handoff::settle(self.ctx, self.db(), key, Account::Command, Ownership::Ours);
        alarm::set(self.ctx);
    }

    fn in_queues<T>(
        &self,
        name: *mut RedisModuleString,
        body: impl FnOnce(&mut Queues<Parked>, i32, &[u8]) -> T,
    ) -> T {
        let db = self.db();
        // SAFETY: an argument of this command.
        let key = unsafe { bytes_of(name) };
        STATE.with_queues(|queues| body(queues, db, key))
    }

    fn db(&self) -> c_int {
        // SAFETY: takes the context of this command.
        unsafe { api!(RedisModule_GetSelectedDb)(self.ctx) }
    }

    /// The lock that the command is about.
    fn lock(&self, name: *mut RedisModuleString) -> Lock<'_> {
        // SAFETY: an argument of this command.
        Lock { db: self.db(), key: unsafe { bytes_of(name) } }
    }

    fn key_name(&self) -> Result<*mut RedisModuleString, Error> {
        self.strings().get(1).copied().ok_or(Error::WrongArity)
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

/// Somebody counts on the grant that the key holds: even if the waiter that it was made to never hears of it,
/// it is not taken back.
fn hear_of(fence: Option<Fence>) {
    if let Some(fence) = fence {
        STATE.heard(fence.number());
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
