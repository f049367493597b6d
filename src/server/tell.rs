//! Telling replicas, and the append-only file, how far the fence clock is.
//!
//! A replica learns fences from the grants that it applies (see [`learn`](super::learn)), and goes on above them when it takes
//! over. What it cannot see there is that its primary's fence clock has just been lifted, by up to the margin: the
//! first grants after that may be lost with the primary, and the replica's clock may be behind (L2). So the primary tells
//! them, whenever one joins and whenever the fence clock is lifted: it replicates a grant and its release, of a lock that
//! nobody has.
//!
//! ```text
//!   SET leasehold:fence-clock 1795233605000000:leasehold PXAT …      heard, and learned from like any other
//!   DEL leasehold:fence-clock                                        nothing is left
//! ```
//!
//! The primary itself has no such key. A replica without the module makes nothing of it, and the append-only file takes it
//! along.
//!
//! That file knows every fence that was given out, until it is rewritten: then it holds the locks there are, and no fence
//! of those that are free again. As long as the fence clock is ahead of the time, as a raised one may be by hours, a server
//! that loads the file could go back. What the file is told once the child that writes it anew is born comes
//! behind what that child writes.

use super::authority::{self, Authority};
use super::key::OwnedString;
use super::state::STATE;
use super::{alarm, clock, guard, product, replicate, subscription};
use crate::lock::{Deadline, Owner, Ttl, Value};
use crate::plant::{Bug, planted};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleEvent};
use std::ffi::c_void;

const KEY: &[u8] = b"leasehold:fence-clock";
const OWNER: &[u8] = b"leasehold";

/// It is deleted in the same breath.
const TTL_MILLIS: u64 = 60_000;

/// The fence clock has been lifted.
pub(super) fn lifted() {
    // Without anybody to tell there is to be no timer either: servers do not unload a module that has one.
    if STATE.has_replicas.get() {
        STATE.telling.want();
    }
}

/// Finds out whether there is anybody to tell.
pub(super) fn look_for_replicas(ctx: *mut RedisModuleCtx) {
    let count = product::info_field(ctx, c"replication", c"connected_slaves");
    STATE.has_replicas.set(count.is_some_and(|count| count != "0"));
}

/// Tells replicas, if there is something new. Called from contexts of the module's own.
pub(super) fn tell(ctx: *mut RedisModuleCtx) {
    if !STATE.telling.take(clock::monotonic()) {
        return;
    }
    look_for_replicas(ctx);
    match authority::of_the_server(ctx) {
        Authority::Yes if STATE.has_replicas.get() || authority::is_filed(ctx) => {
            replicate_fence(ctx);
        }
        Authority::NotNow => STATE.telling.want(),
        _ => {}
    }
}

fn replicate_fence(ctx: *mut RedisModuleCtx) {
    let (Some(fence), Some(owner), Some(ttl)) =
        (STATE.fences().highest(), Owner::new(OWNER), Ttl::from_millis(TTL_MILLIS))
    else {
        return;
    };
    if planted(Bug::LiftUntold) {
        return;
    }
    let name = OwnedString::new(ctx, KEY);
    let value = OwnedString::new(ctx, Value::new(fence, owner).as_bytes());
    let deadline = Deadline::after(clock::now(), ttl);
    // A command that is unknown was refused at load, or the log tells of it when a lock is next granted.
    let _ = replicate::set(ctx, name.string(), value.string(), Some(deadline))
        .and_then(|()| replicate::del(ctx, name.string()));
}

/// Subscribes to replicas that join, and to files that are written anew; false if the server will not have it.
pub(super) fn subscribe(ctx: *mut RedisModuleCtx) -> bool {
    subscription::to_server_event(ctx, raw::REDISMODULE_EVENT_REPLICA_CHANGE, Some(joined))
        && subscription::to_server_event(ctx, raw::REDISMODULE_EVENT_FORK_CHILD, Some(forked))
}

unsafe extern "C" fn joined(
    ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    stage: u64,
    _data: *mut c_void,
) {
    guard::event("replica-joined", || {
        if stage == raw::REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE {
            STATE.has_replicas.set(true);
            STATE.telling.want();
            alarm::set(ctx);
        }
    });
}

unsafe extern "C" fn forked(
    ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    stage: u64,
    _data: *mut c_void,
) {
    guard::event("forked", || {
        // Whatever the child writes: a save of the data costs no more than two commands in vain.
        if stage == raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN
            && authority::is_filed(ctx)
            && STATE.fences().ahead_micros(clock::now()) > 0
        {
            STATE.telling.want();
            alarm::set(ctx);
        }
    });
}
