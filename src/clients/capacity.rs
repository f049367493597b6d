//! How many clients may wait: fewer than the server accepts, whatever the settings say.
//!
//! Each waiting client occupies a connection. If waiters could take all of `maxclients`, no holder could connect to
//! release its lock, and no waiter would be served. Other clients may still take what the waiters leave: only the
//! server could prevent that.

use crate::ffi::{Ctx, MainThread, log, server_flavor};
use crate::{clock, config};
use leasehold_core::lock::{Monotonic, Room};
use std::cell::Cell;
use std::ffi::CStr;

/// How long the known `maxclients` is trusted. Redis 6.2 does not report changes of the setting.
const MILLIS_BETWEEN_LOOKS: u64 = 1_000;

/// Fewer connections than this beside the waiters are hardly enough for holders, replicas, monitoring and an operator.
const RESERVE: u64 = 32;

/// What limits the number of waiters on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    MaxWaiters,
    ShareOfMaxClients,
}

/// The name of the server's setting.
pub(crate) const MAX_CLIENTS: &CStr = c"maxclients";
/// Our settings that, with `maxclients`, decide how many may wait on the server.
pub(crate) const OWN_SETTINGS: [&CStr; 2] =
    [c"leasehold.max-waiters", c"leasehold.max-waiters-percent"];

/// The last known `maxclients`. `None` if the server does not say.
static VALUE: MainThread<Cell<Option<u64>>> = MainThread::new(Cell::new(None));
static LOOKED: MainThread<Cell<Option<Monotonic>>> = MainThread::new(Cell::new(None));

/// Reads `maxclients` from the server.
pub(crate) fn look(ctx: Ctx) {
    let field = server_flavor::info_field(ctx, c"clients", MAX_CLIENTS);
    VALUE.set(field.and_then(|value| value.parse().ok()));
    LOOKED.set(Some(clock::monotonic()));
}

/// Reads `maxclients` again, unless that was done a moment ago.
fn look_again(ctx: Ctx) {
    let now = clock::monotonic();
    let is_recent = |looked| now.millis_since(looked) < MILLIS_BETWEEN_LOOKS;
    if !LOOKED.get().is_some_and(is_recent) {
        look(ctx);
    }
}

/// Warns of settings that do not fit together.
pub(crate) fn warn(ctx: Ctx) {
    warn_if_they_limit(ctx);
    warn_if_few_are_left(ctx);
}

/// Warns if waiters may leave almost no connections to holders.
fn warn_if_few_are_left(ctx: Ctx) {
    let ((most, _), Some(value)) = (most_waiters(), VALUE.get()) else { return };
    let left = value.saturating_sub(most);
    if most == 0 || left >= RESERVE {
        return;
    }
    log::warning(
        ctx,
        &format!(
            "those who wait leave {left} connections of maxclients ({value}): a holder that has to connect to \
             release its lock may find none; lower max-waiters or max-waiters-percent, or raise maxclients"
        ),
    );
}

/// Warns if fewer clients may wait than the operator has set.
fn warn_if_they_limit(ctx: Ctx) {
    let (Some(value), (most, Limit::ShareOfMaxClients)) = (VALUE.get(), most_waiters()) else {
        return;
    };
    let (set, percent) = (config::MAX_WAITERS.get(), config::MAX_WAITERS_PERCENT.get());
    log::warning(
        ctx,
        &format!(
            "at most {most} clients may wait, not the {set} of max-waiters: each keeps a connection, and \
             waiters may take {percent} % of maxclients ({value})"
        ),
    );
}

/// How many clients may wait on the server at once, and what limits the number.
pub(crate) fn most_waiters() -> (u64, Limit) {
    let set = config::MAX_WAITERS.get();
    let share = |clients: u64| clients.saturating_mul(config::MAX_WAITERS_PERCENT.get()) / 100;
    match VALUE.get().map(share) {
        Some(share) if share < set => (share, Limit::ShareOfMaxClients),
        _ => (set, Limit::MaxWaiters),
    }
}

/// The room for clients that wait on their connections.
pub(crate) fn room_for_clients(ctx: Ctx) -> Room {
    look_again(ctx);
    let (connections, limit) = most_waiters();
    Room {
        connections: count(connections),
        is_share_of_all: limit == Limit::ShareOfMaxClients,
        for_all: count(config::MAX_WAITERS.get()),
        per_lock: count(config::MAX_WAITERS_PER_LOCK.get()),
    }
}

/// The room for tickets. A ticket occupies no connection, so one lock may have all tickets.
pub(crate) fn room_for_tickets() -> Room {
    let most = count(config::MAX_TICKETS.get());
    Room { connections: 0, is_share_of_all: false, for_all: most, per_lock: most }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
