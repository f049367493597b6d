//! How many may wait: fewer than the server accepts clients, whatever the settings say.
//!
//! Each client that waits keeps a connection. If waiters could take all of `maxclients`, no holder could
//! connect to release its lock, and none of them would be served. Others may still take what waiters
//! leave: only the server could prevent that.

use super::ffi::main_thread::MainThread;
use super::ffi::{log, server_flavor};
use super::{clock, config};
use leasehold_core::lock::{Monotonic, Room};
use redis_module::raw::RedisModuleCtx;
use std::cell::Cell;
use std::ffi::CStr;

/// How long `maxclients` is taken to be what it was. Redis 6.2 does not tell when it is changed.
const MILLIS_BETWEEN_LOOKS: u64 = 1_000;

/// Fewer connections than this beside those who wait are hardly enough for holders, replicas,
/// monitoring and an operator.
const RESERVE: u64 = 32;

/// What limits how many wait on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    MaxWaiters,
    ShareOfMaxClients,
}

/// The server's setting of this name.
pub(super) const MAX_CLIENTS: &CStr = c"maxclients";
/// Ours, which with it decide how many may wait on the server.
pub(super) const OWN_SETTINGS: [&CStr; 2] =
    [c"leasehold.max-waiters", c"leasehold.max-waiters-percent"];

/// What was last known of `maxclients`. `None` where the server does not say.
static VALUE: MainThread<Cell<Option<u64>>> = MainThread::new(Cell::new(None));
static LOOKED: MainThread<Cell<Option<Monotonic>>> = MainThread::new(Cell::new(None));

/// Asks the server.
pub(super) fn look(ctx: *mut RedisModuleCtx) {
    let field = server_flavor::info_field(ctx, c"clients", MAX_CLIENTS);
    VALUE.set(field.and_then(|value| value.parse().ok()));
    LOOKED.set(Some(clock::monotonic()));
}

/// Asks the server if that was not done a moment ago.
pub(super) fn look_again(ctx: *mut RedisModuleCtx) {
    let now = clock::monotonic();
    let is_recent = |looked| now.millis_since(looked) < MILLIS_BETWEEN_LOOKS;
    if !LOOKED.get().is_some_and(is_recent) {
        look(ctx);
    }
}

/// Warns of settings that do not go together.
pub(super) fn warn(ctx: *mut RedisModuleCtx) {
    warn_if_they_limit(ctx);
    warn_if_few_are_left(ctx);
}

/// Warns if those who wait may leave nearly no connection to those who hold the locks.
fn warn_if_few_are_left(ctx: *mut RedisModuleCtx) {
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

/// Warns if fewer may wait than the operator has set.
fn warn_if_they_limit(ctx: *mut RedisModuleCtx) {
    let (Some(value), (most, Limit::ShareOfMaxClients)) = (VALUE.get(), most_waiters()) else {
        return;
    };
    let (set, percent) = (config::max_waiters(), config::max_waiters_percent());
    log::warning(
        ctx,
        &format!(
            "at most {most} clients may wait, not the {set} of max-waiters: each keeps a connection, and \
             waiters may take {percent} % of maxclients ({value})"
        ),
    );
}

/// How many may wait on the server at once, and for which reason no more.
pub(super) fn most_waiters() -> (u64, Limit) {
    let set = config::max_waiters();
    let share = |clients: u64| clients.saturating_mul(config::max_waiters_percent()) / 100;
    match VALUE.get().map(share) {
        Some(share) if share < set => (share, Limit::ShareOfMaxClients),
        _ => (set, Limit::MaxWaiters),
    }
}

pub(super) fn room() -> Room {
    Room {
        connections: count(most_waiters().0),
        for_all: count(config::max_waiters()),
        per_lock: count(config::max_waiters_per_lock()),
    }
}

/// A ticket keeps no connection, so as many as there may be at all may be of one lock.
pub(super) fn room_for_tickets() -> Room {
    let most = count(config::max_tickets());
    Room { connections: 0, for_all: most, per_lock: most }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
