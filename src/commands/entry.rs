//! The commands, as the server calls them. Each parses its words, opens the key, and replies with what the core says.

use super::call::{self, Call};
use crate::clients::channel;
use crate::engine::ENGINE;
use crate::ffi::{Ctx, RawString};
use crate::{clock, config};
use leasehold_core::command::acquire::MintedOwner;
use leasehold_core::command::{
    Error, Reply, Spec, acquire, check, drop, extend, guard, help, holders, info, log, raise,
    release, top, waiters,
};
use std::ffi::c_int;

/// The signature of every command.
pub(crate) type Entry = extern "C" fn(Ctx, *mut RawString, c_int) -> c_int;

/// A command: its description, and the function that the server calls, which has the name of its page.
macro_rules! command {
    ($name:literal, $page:ident) => {{
        extern "C" fn entry(ctx: Ctx, argv: *mut RawString, argc: c_int) -> c_int {
            call::execute($name, &$page::SPEC, ctx, argv, argc, $page)
        }
        (&$page::SPEC, entry)
    }};
}

/// Every command.
pub(crate) static COMMANDS: [(&Spec, Entry); 13] = [
    command!("lock.acquire", acquire),
    command!("lock.release", release),
    command!("lock.extend", extend),
    command!("lock.raise", raise),
    command!("lock.check", check),
    command!("lock.guard", guard),
    command!("lock.info", info),
    command!("lock.holders", holders),
    command!("lock.waiters", waiters),
    command!("lock.top", top),
    command!("lock.log", log),
    command!("lock.drop", drop),
    command!("lock.help", help),
];

fn acquire(call: &Call) -> Result<(), Error> {
    let limits = config::limits();
    let request = call.parse(|words| acquire::Request::parse(words, &limits, mint_owner))?;
    if let Some(channel) = request.channel() {
        channel::check(call.ctx, channel)?;
    }
    let done = call.change_or_wait(request.also(), &request)?;
    match request.reply(&done.decision)? {
        Some(reply) => call.reply(reply),
        None => call.replies_later(),
    }
    Ok(())
}

/// A random UUID (version 4), as text. No other place draws random numbers.
fn mint_owner() -> MintedOwner {
    let mut text = [0; size_of::<MintedOwner>()];
    uuid::Builder::from_random_bytes(rand::random())
        .into_uuid()
        .hyphenated()
        .encode_lower(&mut text);
    text
}

fn release(call: &Call) -> Result<(), Error> {
    let request = call.parse(release::Request::parse)?;
    let done = call.change(request.also(), &request)?;
    call.reply(release::reply(done.released));
    Ok(())
}

fn extend(call: &Call) -> Result<(), Error> {
    let request = call.parse(|words| extend::Request::parse(words, &config::limits()))?;
    let done = call.change(request.also(), &request)?;
    call.reply(extend::reply(&done.decision));
    Ok(())
}

fn raise(call: &Call) -> Result<(), Error> {
    let request = call.parse(raise::Request::parse)?;
    let done = call.change(None, &request)?;
    call.reply(raise::reply(&done.decision));
    Ok(())
}

fn check(call: &Call) -> Result<(), Error> {
    let proof = call.parse(check::parse)?;
    call.check(&proof)
}

fn guard(call: &Call) -> Result<(), Error> {
    let proof = call.parse(guard::parse)?;
    call.run_if_held(&proof)
}

fn info(call: &Call) -> Result<(), Error> {
    call.parse(info::parse)?;
    call.read(|holds, waiters, now| info::answer(holds, waiters, now))
}

fn holders(call: &Call) -> Result<(), Error> {
    let count = call.parse(holders::parse)?;
    call.read(|holds, _, now| holders::answer(count, holds, now))
}

fn waiters(call: &Call) -> Result<(), Error> {
    let count = call.parse(waiters::parse)?;
    let now = clock::monotonic();
    call.read_queue(|queues, name| {
        waiters::answer(count, queues.queue(name), |client| client.id, now)
    })
}

fn top(call: &Call) -> Result<(), Error> {
    let request = call.parse(top::Request::parse)?;
    ENGINE.with_observer(|observer| match request {
        top::Request::Show { count } => {
            let rows = observer.contention.top(count).into_iter().map(|entry| top::Row {
                key: entry.key.as_bytes(),
                db: entry.db,
                waits: entry.waits,
                refused: entry.refused,
                wait_total_ms: entry.total_wait_us / 1_000,
                wait_longest_ms: entry.longest_wait_us / 1_000,
                missed: entry.missed,
            });
            call.reply(top::answer(rows));
        }
        top::Request::Reset => {
            observer.contention.reset();
            call.reply(Reply::Ok);
        }
    });
    Ok(())
}

fn log(call: &Call) -> Result<(), Error> {
    let request = call.parse(log::Request::parse)?;
    ENGINE.with_observer(|observer| match request {
        log::Request::Show { count } => {
            let rows = observer.log.latest(count).map(|entry| log::Row {
                id: entry.id,
                time: entry.at.millis(),
                event: entry.event.name(),
                db: entry.db,
                key: entry.key.as_bytes(),
                owner: entry.owner.as_bytes(),
                ms: entry.millis,
            });
            call.reply(log::answer(rows));
        }
        log::Request::Reset => {
            observer.log.reset();
            call.reply(Reply::Ok);
        }
    });
    Ok(())
}

fn drop(call: &Call) -> Result<(), Error> {
    let request = call.parse(drop::Request::parse)?;
    let freed = call.drop_owner(&request)?;
    call.reply(drop::reply(freed.next.number(), freed.count));
    Ok(())
}

fn help(call: &Call) -> Result<(), Error> {
    call.parse(help::parse)?;
    call.reply(help::answer());
    Ok(())
}
