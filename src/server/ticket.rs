//! Tickets: `LOCK.ACQUIRE … TICKET` keeps a place in the queue of a lock, and answers at once.
//!
//! Nothing of the server's is kept for one, so it works wherever a command does: in transactions, scripts and pipelines.

use super::host::{LockKey, Server};
use super::locks::LOCKS;
use super::wait::Asker;
use super::{authority, clock, command_filter, eviction, ffi, room};
use leasehold_core::command::Error;
use leasehold_core::engine::Lock;
use leasehold_core::lock::{KeptOwner, KeptTicket, Ticket, Told, WaitKind, Waiter};
use redis_module::raw::RedisModuleCtx;

/// What has become of a ticket when the command that asked for it is about to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Taken {
    /// It keeps a place.
    Kept,
    /// Its turn has come already, or the server does not decide any more.
    Over,
}

/// Queues the owner for the lock, or renews its place.
pub(super) fn take(
    ctx: *mut RedisModuleCtx,
    key: &LockKey<'_>,
    asker: &Asker<'_>,
    ticket: Ticket<'_>,
) -> Result<Taken, Error> {
    let (server, name) = (Server { ctx }, key.name());
    if authority::is_replica(ctx) {
        LOCKS.cannot_wait(name);
        return Err(Error::NobodyWaitsOnReplicas);
    }
    LOCKS
        .has_room(&server, name, asker.owner, WaitKind::Ticket, room::room_for_tickets())
        .map_err(|_no_room| Error::TicketsFull)?;
    let now = clock::monotonic();
    let kept = KeptTicket {
        lasts: ticket.lasts,
        channel: ticket.channel.map(Box::from),
        client: ffi::client::id(ctx),
    };
    let waiter = Waiter {
        owner: KeptOwner::from(asker.owner),
        ttl: asker.ttl,
        share: asker.share,
        since: now,
        gives_up: Some(now.plus_millis(ticket.lasts.millis())),
        told: Told::Ticket(kept),
    };
    let id = LOCKS.join(&server, name, waiter);
    command_filter::install(ctx);
    eviction::somebody_waits(ctx);
    LOCKS.settle_joined(&server, key);
    Ok(if LOCKS.still_waits(id) { Taken::Kept } else { Taken::Over })
}
