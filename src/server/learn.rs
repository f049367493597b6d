//! Learning fences from data that is not this server's own doing.
//!
//! A replica applies its primary's grants, and a server that starts loads those of its predecessor, as plain
//! `SET key value PXAT deadline` and as keys of a file: nobody asks the module. Yet when its time comes, its
//! fences must be above all of them (L2), also with a clock that is an hour behind, and also for locks that
//! were released or deleted since. So while the server is a replica or loading, the module looks at every
//! key that is given an expiry.
//!
//! Only what was really applied teaches anything. A filter on commands would be cheaper, but it sees them
//! before the server asks whether their sender may run them.

use super::call::bytes_of;
use super::key::{Key, Mode, OwnedString};
use super::state::STATE;
use super::{authority, clock};
use crate::lock::{Hold, Stored, Value};
use redis_module::raw::{RedisModuleCtx, RedisModuleString};

/// Starts or stops to learn, as the server is a replica, or is loading, or not.
pub(super) fn while_told(ctx: *mut RedisModuleCtx, loading: bool) {
    STATE.learning.set(loading || authority::is_replica(ctx));
}

/// Takes note of the fence in a key that was given an expiry, or loaded.
pub(super) fn from_key(ctx: *mut RedisModuleCtx, key: *mut RedisModuleString) {
    // A string of our own: while loading, the server's may lie on its stack, which an opened key must not
    // outlive.
    // SAFETY: the key's name lives as long as this callback.
    let name = OwnedString::new(ctx, unsafe { bytes_of(key) });
    let key = Key::open(ctx, name.string(), Mode::Peek);
    // Reading a short string makes the server store it less compactly, so others' keys are left alone as far
    // as can be told from outside.
    if key.has_expiry()
        && Value::LENGTHS.contains(&key.len())
        && let Stored::Text { value, .. } = key.stored()
        && let Some(fence) = Hold::read(value, None).fence
    {
        STATE.with_fences(|fences| fences.observe(fence, clock::now()));
    }
}
