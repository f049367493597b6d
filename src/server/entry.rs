//! The commands, as the server calls them. Each: parse, open the key, let the page answer.

use super::call::Call;
use super::ffi::api::status;
use super::host::LockKey;
use super::locks::LOCKS;
use super::wait::Block;
use super::{call, clock, config, guard, inner_command, random_owner};
use leasehold_core::command::{
    Decide, Error, Reply, acquire, check, extend, guard as guard_page, help, holders, info, log,
    raise, release, top, waiters,
};
use leasehold_core::engine::Taken;
use leasehold_core::lock::{Outcome, Wait};
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
    call::execute("lock.acquire", ctx, argv, argc, |call| {
        let limits = config::limits();
        let request =
            call.parse(|words| acquire::Request::parse(words, &limits, random_owner::mint_owner))?;
        if let Some(channel) = request.channel() {
            call.check_channel(channel)?;
        }
        let key = call.key()?;
        let outcome = call.change(&key, &request)?;
        if let Outcome::Wait(wait) = outcome {
            return begin_to_wait(call, &key, &request, wait);
        }
        call.reply(&request.reply(&outcome)?);
        Ok(())
    })
}

/// The lock is not to be had now. Out of the way of those who get it at once.
#[inline(never)]
fn begin_to_wait(
    call: &Call,
    key: &LockKey<'_>,
    request: &acquire::Request<'_>,
    wait: Wait<'_>,
) -> Result<(), Error> {
    let wanted = request.wanted()?;
    let outcome = match wait {
        Wait::Block(patience) => {
            let (minted, grace) = (request.is_minted(), request.grace());
            return call.wait(key, &wanted, Block { patience, minted, grace });
        }
        Wait::Ticket(ticket) => match call.take_ticket(key, &wanted, ticket, request.grace())? {
            Taken::Queued => Outcome::Wait(wait),
            Taken::Over => call.change(key, request)?,
        },
    };
    call.reply(&request.reply(&outcome)?);
    Ok(())
}

pub(super) extern "C" fn release(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    call::execute("lock.release", ctx, argv, argc, |call| {
        let request = call.parse(release::Request::parse)?;
        let outcome = call.change(&call.key()?, &request)?;
        call.reply(&release::reply(&outcome));
        Ok(())
    })
}

pub(super) extern "C" fn extend(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    call::execute("lock.extend", ctx, argv, argc, |call| {
        let request = call.parse(|words| extend::Request::parse(words, &config::limits()))?;
        let outcome = call.change(&call.key()?, &request)?;
        call.reply(&extend::reply(&outcome));
        Ok(())
    })
}

pub(super) extern "C" fn raise(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    call::execute("lock.raise", ctx, argv, argc, |call| {
        let request = call.parse(raise::Request::parse)?;
        let outcome = call.change(&call.key()?, &request)?;
        call.reply(&raise::reply(&outcome));
        Ok(())
    })
}

pub(super) extern "C" fn check(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    call::execute("lock.check", ctx, argv, argc, |call| {
        let request = call.parse(check::Request::parse)?;
        call.check(request.proof())
    })
}

pub(super) extern "C" fn guard(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    if inner_command::is_asked_for_keys(ctx) {
        return guard::value("lock.guard keys", status(true), || {
            inner_command::declare_keys(ctx, Call::new(ctx, argv, argc).strings());
            status(true)
        });
    }
    call::execute("lock.guard", ctx, argv, argc, |call| {
        let request = call.parse(guard_page::Request::parse)?;
        call.run_if_held(request.proof())
    })
}

pub(super) extern "C" fn info(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    call::execute("lock.info", ctx, argv, argc, |call| {
        let request = call.parse(info::Request::parse)?;
        call.read(|holds, waiters, now| request.answer(holds, waiters, now))
    })
}

pub(super) extern "C" fn holders(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    call::execute("lock.holders", ctx, argv, argc, |call| {
        let request = call.parse(holders::Request::parse)?;
        call.read(|holds, _, now| request.answer(holds, now))
    })
}

pub(super) extern "C" fn waiters(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    call::execute("lock.waiters", ctx, argv, argc, |call| {
        let request = call.parse(waiters::Request::parse)?;
        let now = clock::monotonic();
        call.read_queue(|queues, name| request.answer(queues.queue(name), |client| client.id, now))
    })
}

pub(super) extern "C" fn top(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    call::execute("lock.top", ctx, argv, argc, |call| {
        let request = call.parse(top::Request::parse)?;
        LOCKS.with_observer(|observer| match request {
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
    call::execute("lock.log", ctx, argv, argc, |call| {
        let request = call.parse(log::Request::parse)?;
        LOCKS.with_observer(|observer| match request {
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
    call::execute("lock.help", ctx, argv, argc, |call| {
        let request = call.parse(help::Request::parse)?;
        call.reply(&request.answer());
        Ok(())
    })
}
