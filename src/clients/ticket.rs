//! Tickets: `LOCK.ACQUIRE … TICKET` keeps a place in the queue of a lock, and replies at once.
//!
//! A ticket keeps no resource of the server, so it works wherever a command works: in transactions, scripts and
//! pipelines.

use super::capacity;
use super::host::{LockKey, Server};
use crate::authority;
use crate::engine::ENGINE;
use crate::ffi::client;
use crate::keys::{command_filter, eviction};
use leasehold_core::command::Error;
use leasehold_core::engine::Taken;
use leasehold_core::lock::{Ephemeral, Grace, Names, Renewed, Ticket, TicketRequest, Wanted};
use redis_module::raw::RedisModuleCtx;

/// Queues the owner for these locks, or renews its tickets.
pub(crate) fn take(
    ctx: *mut RedisModuleCtx,
    keys: &[LockKey<'_>],
    names: Names<'_>,
    wanted: &Wanted<'_>,
    ticket: Ticket<'_>,
    grace: Option<Grace>,
) -> Result<Taken, Error> {
    let server = Server { ctx };
    let connection = client::id(ctx);
    let ephemeral = grace.map(|grace| Ephemeral { connection, grace });
    let ticket = TicketRequest { ticket, client: connection, ephemeral };
    match ENGINE.renew_ticket(&server, names, wanted, &ticket) {
        Renewed::Yes | Renewed::Sooner => return Ok(Taken::Queued),
        Renewed::No => {}
    }
    if authority::is_replica(ctx) {
        ENGINE.cannot_wait(names.first);
        return Err(Error::NobodyWaitsOnReplicas);
    }
    let taken = ENGINE
        .take_ticket(&server, keys, names, wanted, &ticket, capacity::room_for_tickets())
        .map_err(|_no_room| Error::TicketsFull)?;
    if taken == Taken::Queued {
        command_filter::install(ctx);
        eviction::somebody_waits(ctx);
    }
    Ok(taken)
}
