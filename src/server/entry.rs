//! The commands, as the server calls them. Each: parse, open the key, let the page answer.

use super::call::{Decision, Standing};
use super::park::Wait;
use super::{clock, config, entropy, guard};
use crate::command::acquire::{self, Step};
use crate::command::{Answer, Change, Reply, check, extend, help, info, release, waiters};
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
        let step = call.change_key(|stored, waiters, now, fences| {
            let (change, step) = request.answer(stored, waiters, now, fences)?;
            let standing = match (&change, &step) {
                (Change::Grant(_), _) | (_, Step::Wait(_) | Step::Reply(Reply::Nil)) => {
                    Standing::Other
                }
                (_, Step::Reply(_)) => Standing::Holder,
            };
            Ok(Decision { change, outcome: step, standing })
        })?;
        match step {
            Step::Reply(reply) => call.reply(&reply),
            Step::Wait(patience) => call.wait(&Wait {
                owner: request.owner()?,
                minted: request.is_minted(),
                ttl: request.ttl(),
                patience,
            })?,
        }
        Ok(())
    })
}

pub(super) extern "C" fn release(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    guard::command("lock.release", ctx, argv, argc, |call| {
        let request = release::Request::parse(call.words().as_slice())?;
        let reply = call.change_key(|stored, _, now, fences| {
            let Answer { change, reply } = request.answer(stored, now, fences)?;
            Ok(Decision { change, outcome: reply, standing: Standing::Other })
        })?;
        call.reply(&reply);
        Ok(())
    })
}

pub(super) extern "C" fn extend(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    guard::command("lock.extend", ctx, argv, argc, |call| {
        let request = extend::Request::parse(call.words().as_slice(), &config::limits())?;
        let reply = call.change_key(|stored, _, now, fences| {
            let Answer { change, reply } = request.answer(stored, now, fences)?;
            let standing =
                if change == Change::Nothing { Standing::Other } else { Standing::Holder };
            Ok(Decision { change, outcome: reply, standing })
        })?;
        call.reply(&reply);
        Ok(())
    })
}

pub(super) extern "C" fn check(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    guard::command("lock.check", ctx, argv, argc, |call| {
        let request = check::Request::parse(call.words().as_slice())?;
        call.read_key(|stored, _, now, fences| request.answer(stored, now, fences))
    })
}

pub(super) extern "C" fn info(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    guard::command("lock.info", ctx, argv, argc, |call| {
        let request = info::Request::parse(call.words().as_slice())?;
        call.read_key(|stored, waiters, now, fences| request.answer(stored, waiters, now, fences))
    })
}

pub(super) extern "C" fn waiters(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    guard::command("lock.waiters", ctx, argv, argc, |call| {
        let request = waiters::Request::parse(call.words().as_slice())?;
        let now = clock::now();
        call.read_queue(|queues, db, key| {
            request.answer(queues.queue(db, key), |parked| parked.client, now)
        })
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
