//! The commands, as the server calls them. Each: parse, open the key, let the page answer.

use super::{config, entropy, guard};
use crate::command::{acquire, check, extend, help, info, release};
use redis_module::raw::{RedisModuleCtx, RedisModuleString};
use std::ffi::c_int;

/// What every command looks like to the server.
pub(super) type Entry =
    extern "C" fn(*mut RedisModuleCtx, *mut *mut RedisModuleString, c_int) -> c_int;

pub(super) extern "C" fn acquire(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    guard::command("lock.acquire", ctx, argv, argc, |call| {
        let words = call.words();
        let limits = config::limits();
        let request = acquire::Request::parse(words.as_slice(), &limits, entropy::mint_owner)?;
        call.change_key(|stored, now, fences| request.answer(stored, now, fences))
    })
}

pub(super) extern "C" fn release(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    guard::command("lock.release", ctx, argv, argc, |call| {
        let request = release::Request::parse(call.words().as_slice())?;
        call.change_key(|stored, now, fences| request.answer(stored, now, fences))
    })
}

pub(super) extern "C" fn extend(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    guard::command("lock.extend", ctx, argv, argc, |call| {
        let request = extend::Request::parse(call.words().as_slice(), &config::limits())?;
        call.change_key(|stored, now, fences| request.answer(stored, now, fences))
    })
}

pub(super) extern "C" fn check(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    guard::command("lock.check", ctx, argv, argc, |call| {
        let request = check::Request::parse(call.words().as_slice())?;
        call.read_key(|stored, now, fences| request.answer(stored, now, fences))
    })
}

pub(super) extern "C" fn info(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    guard::command("lock.info", ctx, argv, argc, |call| {
        let request = info::Request::parse(call.words().as_slice())?;
        call.read_key(|stored, now, fences| request.answer(stored, now, fences))
    })
}

pub(super) extern "C" fn help(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    guard::command("lock.help", ctx, argv, argc, |call| {
        let request = help::Request::parse(call.words().as_slice())?;
        call.reply(&request.answer());
        Ok(())
    })
}
