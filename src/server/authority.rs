//! What this server is to its data at the moment.

use super::api::api;
use super::guard;
use redis_module::raw::{self, RedisModuleCtx};

pub(super) fn is_replica(ctx: *mut RedisModuleCtx) -> bool {
    // SAFETY: takes a valid context.
    let flags = unsafe { api!(RedisModule_GetContextFlags)(ctx) };
    flags & guard::flag(raw::REDISMODULE_CTX_FLAGS_SLAVE) != 0
}
