//! The commands, as the server calls them. Each: parse, open the key, let the page answer.

use super::call::Decision;
use super::park::Wait;
use super::state::STATE;
use super::witness::Happened;
use super::{clock, config, entropy, guard};
use leasehold_core::command::acquire::{self, Step};
use leasehold_core::command::{
    Answer, Change, Reply, check, extend, help, info, log, raise, release, top, waiters,
};
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
            let happened = match (&change, &step) {
                (Change::Grant(grant), _) => Happened::Granted(*grant),
                (_, Step::Wait(_)) => Happened::Waits,
                (_, Step::Reply(Reply::Nil)) => Happened::Refused,
                (Change::Lease(longer), _) => Happened::Again { longer: Some(*longer) },
                (_, _) => Happened::Again { longer: None },
            };
            Ok(Decision { change, outcome: step, happened })
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
            let happened = match change {
                Change::Free => Happened::Released,
                _ => Happened::NotReleased(request.proof()),
            };
            Ok(Decision { change, outcome: reply, happened })
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
            let happened = match change {
                Change::Lease(deadline) => Happened::Extended(deadline),
                _ => Happened::NotExtended(request.proof()),
            };
            Ok(Decision { change, outcome: reply, happened })
        })?;
        call.reply(&reply);
        Ok(())
    })
}

pub(super) extern "C" fn raise(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    guard::command("lock.raise", ctx, argv, argc, |call| {
        let request = raise::Request::parse(call.words().as_slice())?;
        let reply = call.change_key(|stored, _, now, fences| {
            let Answer { change, reply } = request.answer(stored, now, fences)?;
            let happened = match (&change, &reply) {
                (Change::Raise { fence, .. }, _) => Happened::Raised(*fence),
                (_, Reply::Integer(_)) => Happened::Confirmed,
                _ => Happened::NotRaised,
            };
            Ok(Decision { change, outcome: reply, happened })
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
        let now = clock::monotonic();
        call.read_queue(|queues, db, key| {
            request.answer(queues.queue(db, key), |parked| parked.client, now)
        })
    })
}

pub(super) extern "C" fn top(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    guard::command("lock.top", ctx, argv, argc, |call| {
        let request = top::Request::parse(call.words().as_slice())?;
        STATE.with_observer(|observer| match request {
            top::Request::Show { count } => {
                let rows = observer.top(count).into_iter().map(|entry| top::Row {
                    key: entry.key.as_bytes(),
                    db: entry.db,
                    waits: entry.waits,
                    refused: entry.refused,
                    wait_total_ms: entry.total_wait_us / 1_000,
                    wait_longest_ms: entry.longest_wait_us / 1_000,
                    missed: entry.missed,
                });
                call.reply(&top::answer(rows));
            }
            top::Request::Reset => {
                observer.reset_top();
                call.reply(&Reply::Ok);
            }
        });
        Ok(())
    })
}

pub(super) extern "C" fn log(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    guard::command("lock.log", ctx, argv, argc, |call| {
        let request = log::Request::parse(call.words().as_slice())?;
        STATE.with_observer(|observer| match request {
            log::Request::Show { count } => {
                let rows = observer.latest(count).map(|entry| log::Row {
                    id: entry.id,
                    time: entry.at.millis(),
                    event: entry.event.name(),
                    db: entry.db,
                    key: entry.key.as_bytes(),
                    owner: entry.owner.as_bytes(),
                    ms: entry.millis,
                });
                call.reply(&log::answer(rows));
            }
            log::Request::Reset => {
                observer.reset_log();
                call.reply(&Reply::Ok);
            }
        });
        Ok(())
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
