//! Lifts of the fence clock, whenever grants may exist that this process does not know of, and broadcasts of it to
//! replicas and the append-only file.
//!
//! A replica learns fences from the grants that it applies (see [`fence_observer`](crate::keys::fence_observer)), and
//! continues above them when it takes over. A grant that it never received may have a larger fence: up to the margin
//! above the primary's clock, if the fence clock was just lifted. So the primary broadcasts its fence clock, as a
//! grant and a release of a lock that nobody holds:
//!
//! ```text
//!   SET leasehold:fence-clock 1795233605000000:leasehold PXAT …      a replica learns the fence, as from any grant
//!   DEL leasehold:fence-clock                                        nothing is left
//! ```
//!
//! The primary itself has no such key. A replica without the module sets the key and deletes it.
//!
//! | broadcast when            | because                                                                          |
//! |---------------------------|----------------------------------------------------------------------------------|
//! | a replica joins           | it has not received the grants that were released before                         |
//! | the fence clock is lifted | the next grants may be lost with this server                                     |
//! | a file is being rewritten | the new file has the locks that are held, and no fence of those that are free    |
//!
//! Nothing is broadcast before this server has issued or seen a fence: until then no fence can go back. The first
//! grant is itself a `SET` with a fence above the floor of the fence clock, so every connected replica learns the
//! floor from it. On a server without locks, tools that read the replication stream, such as change data capture,
//! never see the module.
//!
//! The file gets the fence clock only while the fence clock is ahead of the wall clock, as a raised one may be by
//! hours. Otherwise the margin suffices. The broadcast happens after the fork, so it follows what the child writes.

use super::{listeners, replicate};
use crate::engine::{fences, with_fences};
use crate::ffi::{Ctx, MainThread, OwnedString, server_flavor, subscription};
use crate::throttle::Throttle;
use crate::{authority, clock, config, guard};
use leasehold_core::engine::Authority;
use leasehold_core::lock::{Deadline, Fence, Monotonic, Owner, Ttl, Value};
use redis_module::raw::{self, RedisModuleEvent};
use std::cell::Cell;
use std::ffi::c_void;

const KEY: &[u8] = b"leasehold:fence-clock";
const OWNER: &[u8] = b"leasehold";

/// Never reached: the key is deleted in the same transaction.
const TTL_MILLIS: u64 = 60_000;

static WANTED: MainThread<Throttle> = MainThread::new(Throttle::new());

/// Whether there may be replicas.
static HAS_REPLICAS: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// Lifts the fence clock above every fence that a process with a clock close to ours may have issued until now (L2). A
/// server that lost its data, or took over from a primary whose last grants it never saw, knows no better bound.
pub(crate) fn lift() {
    let floor = clock::exactly().plus_millis(config::FENCE_MARGIN.get());
    with_fences(|fences| fences.raise(floor));
    request_after_lift();
}

/// Lifts the fence clock of a server that begins to grant locks, and starts the quarantine if an operator has set one:
/// unknown grants may still be in force, and end meanwhile (L1).
pub(crate) fn begin() {
    lift();
    quarantine();
}

/// Lifts the fence clock of a replica that takes over. It knows all fences of the old primary but the last.
pub(crate) fn take_over() {
    let margin = config::FENCE_MARGIN.get();
    with_fences(|fences| fences.raise_above_known(clock::now(), margin));
    request_after_lift();
    quarantine();
}

fn quarantine() {
    let millis = config::QUARANTINE.get();
    with_fences(|fences| fences.quarantine(clock::monotonic(), millis));
}

/// When to call [`broadcast`].
pub(crate) fn due(now: Monotonic) -> Option<Monotonic> {
    WANTED.due(now)
}

/// Requests a broadcast: the fence clock has been lifted.
fn request_after_lift() {
    if HAS_REPLICAS.get() {
        request();
    }
}

fn request() {
    if fences().is_in_use() {
        WANTED.want();
    }
}

pub(crate) fn look_for_replicas(ctx: Ctx) {
    let count = server_flavor::info_field(ctx, c"replication", c"connected_slaves");
    HAS_REPLICAS.set(count.is_some_and(|count| count != "0"));
}

/// Broadcasts the fence clock, if requested. Called from the module's own contexts.
pub(crate) fn broadcast(ctx: Ctx) {
    if !WANTED.take(clock::monotonic()) {
        return;
    }
    look_for_replicas(ctx);
    match authority::of_the_server(ctx) {
        Authority::Yes if HAS_REPLICAS.get() || authority::is_filed(ctx) => {
            if let Some(fence) = fences().highest() {
                replicate_fence(ctx, fence);
            }
        }
        Authority::NotNow => WANTED.want(),
        _ => {}
    }
}

fn replicate_fence(ctx: Ctx, fence: Fence) {
    let (Some(owner), Some(ttl)) = (Owner::new(OWNER), Ttl::from_millis(TTL_MILLIS)) else {
        return;
    };
    let name = OwnedString::new(ctx, KEY);
    let value = OwnedString::new(ctx, Value::new(fence, owner).as_bytes());
    let deadline = Deadline::after(clock::now(), ttl);
    // An unknown command was refused at load, or is logged when a lock is next granted.
    let _ = replicate::set(ctx, name.string(), value.string(), Some(deadline))
        .and_then(|()| replicate::del(ctx, name.string()));
}

/// Subscribes to replicas that join and to rewritten files. False if the server refuses.
pub(crate) fn subscribe(ctx: Ctx) -> bool {
    subscription::to_server_event(ctx, raw::REDISMODULE_EVENT_REPLICA_CHANGE, Some(joined))
        && subscription::to_server_event(ctx, raw::REDISMODULE_EVENT_FORK_CHILD, Some(forked))
}

unsafe extern "C" fn joined(ctx: Ctx, _: RedisModuleEvent, stage: u64, _data: *mut c_void) {
    listeners::expect();
    guard::event("replica-joined", ctx, || {
        if stage == raw::REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE {
            HAS_REPLICAS.set(true);
            request();
        }
    });
}

unsafe extern "C" fn forked(ctx: Ctx, _: RedisModuleEvent, stage: u64, _data: *mut c_void) {
    listeners::expect();
    guard::event("forked", ctx, || {
        // The server does not say what the child writes. For a snapshot, the two commands are broadcast needlessly.
        if stage == raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN
            && authority::is_filed(ctx)
            && fences().ahead_micros(clock::now()) > 0
        {
            request();
        }
    });
}
