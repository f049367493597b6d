//! One command that is being executed: its words, its keys, its reply.

use super::guarded::InnerCommand;
use super::{getkeys, held_reply};
use crate::blocked_client::BlockedClient;
use crate::clients::host::{LockKey, Server};
use crate::cluster::slots;
use crate::engine::ENGINE;
use crate::ffi::{Ctx, RawString, Rights, Words, api, bytes_of, may_use_all_keys, status};
use crate::keys::command_filter;
use crate::reply::respond;
use crate::{authority, guard};
use leasehold_core::cluster::Slot;
use leasehold_core::command::{
    Also, Decide, Error, MayWait, Reply, Spec, check, drop as drop_page, guard as guard_page,
    release,
};
use leasehold_core::engine::{Authority, Cursor, Done, Freed, Key, Lock, Mode};
use leasehold_core::lock::{Checked, Hold, Moment, Name, Proof, Queues, Stored};
use std::cell::Cell;
use std::ffi::c_int;
use std::slice;

/// No command that names one lock takes more words.
const FEW_WORDS: usize = 15;

pub(crate) struct Call {
    pub(crate) ctx: Ctx,
    words: Words,
    answered: Cell<bool>,
}

/// Executes a command behind the [guard]. The client gets exactly one reply, however `body` ends.
pub(crate) fn execute(
    entry: &'static str,
    spec: &Spec,
    ctx: Ctx,
    argv: *mut RawString,
    argc: c_int,
    body: impl FnOnce(&Call) -> Result<(), Error>,
) -> c_int {
    // SAFETY: the server keeps the words until the command returns, when the `Call` is gone.
    let words = unsafe { Words::new(argv, argc) };
    if getkeys::have_been_told(ctx, &words, spec) {
        return status(true);
    }
    let call = Call { ctx, words, answered: Cell::new(false) };
    if let Err(error) = guard::answer(entry, ctx, || body(&call))
        && !call.answered.get()
    {
        call.reply(Reply::Error(error));
    }
    // The client has its reply, and the server ignores any other status.
    status(true)
}

impl Call {
    /// Passes the words to `parse`. They are on the stack unless there are many. The first word, the command's name,
    /// stays empty because nobody reads it.
    pub(crate) fn parse<'c, R>(
        &'c self,
        parse: impl FnOnce(&[&'c [u8]]) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let strings = self.words.strings();
        if strings.len() > FEW_WORDS {
            return parse(&self.words.bytes());
        }
        let mut words: [&[u8]; FEW_WORDS] = [&[]; FEW_WORDS];
        if let ([_, words @ ..], [_, strings @ ..]) = (&mut words, strings) {
            for (word, &string) in words.iter_mut().zip(strings) {
                // SAFETY: an argument of this command, which outlives the `Call` that the words borrow from.
                *word = unsafe { bytes_of(string) };
            }
        }
        parse(words.get(..strings.len()).unwrap_or(&words))
    }

    /// Lets the request decide what happens to its locks, and does it.
    pub(crate) fn change<'r>(
        &self,
        also: Option<&Also<'_>>,
        request: &'r impl Decide,
    ) -> Result<Done<'r>, Error> {
        self.with_locks(also, |locks| ENGINE.on(&self.server()).change(locks, request))
    }

    /// As `change`, for a request whose client may wait.
    pub(crate) fn change_or_wait<'r>(
        &self,
        also: Option<&Also<'_>>,
        request: &'r impl MayWait,
    ) -> Result<Done<'r>, Error> {
        self.with_locks(also, |locks| ENGINE.on(&self.server()).change_or_wait(locks, request))
    }

    /// Passes the locks of the request to `change`.
    #[inline(always)]
    fn with_locks<'r>(
        &self,
        also: Option<&Also<'_>>,
        change: impl FnOnce(&[LockKey<'_>]) -> Result<Done<'r>, Error>,
    ) -> Result<Done<'r>, Error> {
        if authority::is_verbatim_script(self.ctx) {
            return Err(Error::ScriptRepeated);
        }
        match also {
            None => change(slice::from_ref(&self.key()?)),
            Some(also) => change(&self.keys(also)?),
        }
    }

    /// Takes one step of freeing what an owner holds, in the selected database, of the locks that the user may release.
    pub(crate) fn drop_owner(&self, request: &drop_page::Request<'_>) -> Result<Freed, Error> {
        if authority::is_verbatim_script(self.ctx) {
            return Err(Error::ScriptRepeated);
        }
        // There the server would look for every key in the slot of the transaction.
        if authority::is_in_cluster(self.ctx) && authority::denies_blocking(self.ctx) {
            return Err(Error::DropInTransactionOfCluster);
        }
        let rights = Rights::of_command(self.ctx);
        if rights.is_none() && may_use_all_keys(self.ctx) != Some(true) {
            return Err(Error::DropNeedsAllKeys);
        }
        let owner = request.owner()?.as_bytes();
        let is_allowed = |name: Name<'_>| {
            let release = [release::SPEC.name.to_bytes(), name.key, owner];
            rights.as_ref().is_none_or(|rights| rights.allow(release))
        };
        // SAFETY: takes a valid context.
        let db = unsafe { api!(RedisModule_GetSelectedDb)(self.ctx) };
        let from = Cursor::from(request.cursor);
        ENGINE.on(&self.server()).drop_owner(request, db, from, request.count, is_allowed)
    }

    /// Replies with the fence of the hold in force, if the proof is of that hold.
    pub(crate) fn check(&self, proof: &Proof<'_>) -> Result<(), Error> {
        let checked = ENGINE.on(&self.server()).check(&self.key()?, proof)?;
        self.reply(check::reply(checked));
        Ok(())
    }

    /// Runs the command behind the proof if the proof is of the hold in force, and forwards the command's reply.
    pub(crate) fn run_if_held(&self, proof: &Proof<'_>) -> Result<(), Error> {
        if authority::is_verbatim_script(self.ctx) {
            return Err(Error::ScriptRepeated);
        }
        let words = self.words.strings().get(guard_page::COMMAND_AT..).unwrap_or_default();
        let command = InnerCommand::find(self.ctx, words)?;
        self.look_at_keys_of(words)?;
        match ENGINE.on(&self.server()).check(&self.key()?, proof)? {
            Checked::NotHolder => return Err(Error::NotHolder),
            Checked::Holds { .. } => {}
        }
        let reply = command.run(self.ctx)?;
        // The server does not show the module's filter the commands that the module calls.
        command_filter::hear_of_call(command.name(), || command.arguments());
        if reply.is_promise() {
            held_reply::wait(self.ctx, &reply)?;
            self.replies_later();
            return Ok(());
        }
        self.answered.set(true);
        if !reply.forward(self.ctx) {
            respond(self.ctx, Reply::Error(Error::GuardedRefused));
        }
        Ok(())
    }

    /// Checks the keys of a guarded command, in a cluster whose server does not know of these keys.
    fn look_at_keys_of(&self, command: &[RawString]) -> Result<(), Error> {
        if !slots::is_in_cluster() || getkeys::are_told() {
            return Ok(());
        }
        let keys = getkeys::of(self.ctx, command);
        self.check_slot(&keys)
    }

    /// Replies with what `look` says of the holds in force and of the number of waiters.
    pub(crate) fn read(
        &self,
        look: impl for<'v> FnOnce(&mut dyn Iterator<Item = Hold<'v>>, usize, Moment) -> Reply<'v>,
    ) -> Result<(), Error> {
        ENGINE.on(&self.server()).read(&self.key()?, |holds, waiters, now| {
            self.reply(look(holds, waiters, now));
        })
    }

    /// Replies with what `look` says of the queue.
    pub(crate) fn read_queue(
        &self,
        look: impl for<'q> FnOnce(&'q Queues<BlockedClient>, Name<'q>) -> Reply<'q>,
    ) -> Result<(), Error> {
        let key = self.key()?;
        if let Stored::OtherType = key.open(Mode::Read)?.stored() {
            return Err(Error::WrongType);
        }
        // Replying writes into the client's buffer and calls nothing back.
        ENGINE.with_queues(|queues| self.reply(look(queues, key.name())));
        Ok(())
    }

    pub(crate) fn reply(&self, reply: Reply<'_>) {
        self.answered.set(true);
        respond(self.ctx, reply);
    }

    /// The client is blocked, and has its reply when it is unblocked.
    pub(crate) fn replies_later(&self) {
        self.answered.set(true);
    }

    /// The key of the lock: the first argument of every command that takes a lock.
    pub(crate) fn key(&self) -> Result<LockKey<'_>, Error> {
        let name = self.words.strings().get(1).copied().ok_or(Error::WrongArity)?;
        // SAFETY: an argument of this command, which outlives the `Call` that the key borrows from.
        Ok(unsafe { LockKey::of_argument(self.ctx, name) })
    }

    /// The keys of all locks of the request. In a cluster the server has checked only the first.
    #[inline(never)]
    pub(crate) fn keys(&self, also: &Also<'_>) -> Result<Vec<LockKey<'_>>, Error> {
        let end = also.at.saturating_add(also.keys.len());
        let others = self.words.strings().get(also.at..end).ok_or(Error::WrongArity)?;
        if slots::is_in_cluster() {
            self.check_slot(others)?;
        }
        let first = self.key()?;
        // SAFETY: arguments of this command, which outlive the `Call` that the keys borrow from.
        let other = |&key: &_| unsafe { LockKey::of_argument(self.ctx, key) };
        Ok(std::iter::once(first).chain(others.iter().map(other)).collect())
    }

    /// Checks that the other keys are in the slot of the first, and all on this node.
    fn check_slot(&self, others: &[RawString]) -> Result<(), Error> {
        let slot = Slot::of(self.key()?.name().key);
        // SAFETY: arguments of this command.
        if others.iter().any(|&key| Slot::of(unsafe { bytes_of(key) }) != slot) {
            return Err(Error::CrossSlot);
        }
        let all: Vec<_> = self.words.strings().get(1).into_iter().chain(others).copied().collect();
        match authority::to_read_all(self.ctx, &all) {
            Authority::NotOurs => Err(Error::SlotIsMoving),
            _ => Ok(()),
        }
    }

    fn server(&self) -> Server {
        Server { ctx: self.ctx }
    }
}
