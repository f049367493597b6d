//! The real server, as the host of the [engine](leasehold_core::engine).

use super::{capacity, channel, connections};
use crate::blocked_client::{self, BlockedClient};
use crate::cluster::slots;
use crate::engine::ENGINE;
use crate::ffi::{Ctx, OwnedString, RawString, api, bytes_of, client, log, status};
use crate::keys::open_key::OpenKey;
use crate::keys::{command_filter, eviction};
use crate::{authority, clock, config};
use leasehold_core::command::{Error, acquire};
use leasehold_core::engine::{
    Announced, Answer, Authority, Host, Initiator, Key, Lock, Mode, Warning,
};
use leasehold_core::lock::{
    KeptOwner, KeptTicket, KeptWait, Limits, Moment, Monotonic, Name, Owner, Room, WaitKind,
    WaiterId,
};
use leasehold_core::observe::Event;
use redis_module::raw;

/// The server, during one call of the module.
#[derive(Clone, Copy)]
pub(crate) struct Server {
    pub(crate) ctx: Ctx,
}

impl Host for Server {
    type Client = BlockedClient;
    type Lock<'n> = LockKey<'n>;

    fn now(&self) -> Moment {
        clock::now()
    }

    fn monotonic(&self) -> Monotonic {
        clock::monotonic()
    }

    fn authority(&self) -> Authority {
        authority::of_the_server(self.ctx)
    }

    fn limits(&self) -> Limits {
        config::limits()
    }

    fn room(&self, kind: WaitKind) -> Room {
        match kind {
            WaitKind::Blocked => capacity::room_for_clients(self.ctx),
            WaitKind::Ticket => capacity::room_for_tickets(),
        }
    }

    fn may_block(&self) -> bool {
        !authority::denies_blocking(self.ctx)
    }

    fn block(&self, is_minted: bool) -> Result<BlockedClient, Error> {
        blocked_client::block(self.ctx, is_minted)
    }

    fn waits(&self, id: WaiterId) {
        ENGINE.with_queues(|queues| match queues.waiter(id).map(|waiter| &waiter.wait) {
            Some(KeptWait::Blocked(client)) => {
                blocked_client::remember(client.handle.address(), id)
            }
            Some(KeptWait::Ticket(_)) | None => {}
        });
        command_filter::install(self.ctx);
        eviction::somebody_waits(self.ctx);
    }

    fn client_id(&self) -> u64 {
        client::id(self.ctx)
    }

    fn connection(&self) -> Option<u64> {
        let id = self.client_id();
        client::is_connected(self.ctx, id).then_some(id)
    }

    fn is_connected(&self, connection: u64) -> bool {
        client::is_connected(self.ctx, connection)
    }

    fn hear_of_connections(&self) {
        connections::hear(self.ctx);
    }

    /// Selects the lock's database. Never in the context of a client's command: the client would stay in that
    /// database.
    fn lock<'n>(&'n self, name: Name<'n>) -> Option<LockKey<'n>> {
        // SAFETY: takes a valid context and a number.
        let selected = unsafe { api!(RedisModule_SelectDb)(self.ctx, name.db) };
        (selected == status(true)).then(|| LockKey::selected(self.ctx, name))
    }

    fn beside<'n>(&'n self, name: Name<'n>) -> LockKey<'n> {
        LockKey::selected(self.ctx, name)
    }

    fn answer(&self, _name: Name<'_>, client: BlockedClient, owner: KeptOwner, answer: Answer) {
        client.unblock(owner, answer);
    }

    fn announce(
        &self,
        name: Name<'_>,
        ticket: &KeptTicket,
        owner: Owner<'_>,
        answer: &Answer,
    ) -> Announced {
        match (answer.fence_number(), &ticket.channel) {
            (Some(fence_number), Some(channel)) => {
                let message = acquire::notice(fence_number, owner, name.key);
                Announced::To { receivers: channel::publish(self.ctx, channel, &message) }
            }
            _ => Announced::Silently,
        }
    }

    /// In a cluster, clients follow this error by themselves: they ask again, and are redirected to the new primary.
    fn demoted(&self) -> Error {
        if slots::is_in_cluster() { Error::GrantedElsewhere } else { Error::Demoted }
    }

    fn slot_has_gone(&self) {
        slots::has_gone();
    }

    fn warn(&self, warning: Warning) {
        match warning {
            Warning::FenceNotCredible => log::warning(
                self.ctx,
                "a lock's value has a fence more than a day ahead of the clock; \
                 it is kept as it is, but later fences will not be above it",
            ),
            Warning::EvictedTooFast { missing } => log::warning(
                self.ctx,
                &format!(
                    "the server evicts locks faster than they are put back: {missing} locks that are held are missing \
                     from its data for now. Give it more memory, or set maxmemory-policy to noeviction"
                ),
            ),
        }
    }
}

pub(crate) struct LockKey<'n> {
    ctx: Ctx,
    name: Name<'n>,
    string: KeyName,
}

enum KeyName {
    /// An argument of the current command.
    Argument(RawString),
    Owned(OwnedString),
}

impl<'n> LockKey<'n> {
    /// The key that a command names.
    ///
    /// # Safety
    /// The string is an argument of this context's command, and is not freed before `'n` ends.
    pub(crate) unsafe fn of_argument(ctx: Ctx, string: RawString) -> Self {
        // SAFETY: the context is valid, and the caller vouches for the string.
        let name = unsafe { Name::new(api!(RedisModule_GetSelectedDb)(ctx), bytes_of(string)) };
        Self { ctx, name, string: KeyName::Argument(string) }
    }

    /// The key of this name, in the database that is already selected.
    pub(crate) fn selected(ctx: Ctx, name: Name<'n>) -> Self {
        Self { ctx, name, string: KeyName::Owned(OwnedString::new(ctx, name.key)) }
    }

    fn string(&self) -> RawString {
        match &self.string {
            KeyName::Argument(string) => *string,
            KeyName::Owned(string) => string.string(),
        }
    }
}

impl Lock for LockKey<'_> {
    type Key<'s>
        = OpenKey<'s>
    where
        Self: 's;

    fn name(&self) -> Name<'_> {
        self.name
    }

    fn may_read(&self) -> Authority {
        authority::to_read(self.ctx, self.string())
    }

    fn may_write(&self, initiator: Initiator) -> Authority {
        authority::to_write(self.ctx, self.string(), initiator)
    }

    #[inline(always)]
    fn open(&self, mode: Mode) -> Result<OpenKey<'_>, Error> {
        let is_expected = mode == Mode::Write && slots::expects(self.name.key);
        let key = OpenKey::open(self.ctx, self.string(), mode)?;
        if is_expected && key.stored().may_be_granted(clock::now()) {
            slots::lift_for_expected();
        }
        Ok(key)
    }

    fn publish(&self, event: Event) {
        // SAFETY: context and key belong together, and the event is a C string. The server checks for subscribers
        // before it builds a message.
        unsafe {
            api!(RedisModule_NotifyKeyspaceEvent)(
                self.ctx,
                raw::REDISMODULE_NOTIFY_MODULE,
                event.name().as_ptr(),
                self.string(),
            )
        };
    }
}
