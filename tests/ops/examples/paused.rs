//! A program that is paused for longer than its lease.

use redis::Value;
use std::fs;
use testkit::{Client, Server, bulk_text, eventually, field, signal};

const LONG: u64 = 60_000;

/// The process of who waits first, with which its owner begins.
fn first_waiter(client: &mut Client, lock: &str) -> Option<u32> {
    let waiters = client.cmd(format!("LOCK.WAITERS {lock}"));
    let Value::Array(waiters) = waiters else { panic!("{waiters:?}") };
    let owner = bulk_text(field(waiters.first()?, "owner").unwrap());
    Some(owner.split(':').next().unwrap().parse().unwrap())
}

/// One thread takes the signal and stops the others, which may take a while on a busy machine.
pub(super) fn until_it_is_paused(process: u32) {
    eventually("it is paused", || {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"));
        let is_paused = stat.as_ref().map_or(true, |stat| stat.contains(") T "));
        if is_paused { Ok(()) } else { Err(stat) }
    });
}

/// Pauses the program that waits for a lock whose lease is long, and deletes the lock: the program's
/// lease is granted and ends meanwhile. Then bob has the lock, and the program goes on and waits
/// again. Returns bob's fence.
pub(super) fn paused_until_bob_has(server: &Server, lock: &str) -> u64 {
    let mut client = server.client();
    eventually("its lease is long", || match client.info(lock).map(|info| info.ttl) {
        Some(ttl) if ttl > LONG.cast_signed() / 2 => Ok(()),
        ttl => Err(ttl),
    });
    let process = eventually("it waits", || first_waiter(&mut client, lock).ok_or("nobody waits"));
    let grants = client.counter("grants");
    signal(process, "STOP").unwrap();
    until_it_is_paused(process);
    server.cmd(format!("DEL {lock}"));
    let bob = server.client().cmd(format!("LOCK.ACQUIRE {lock} bob {LONG} BLOCK {LONG}"));
    let Value::Int(bob) = bob else { panic!("{bob:?}") };
    assert_eq!(client.counter("grants"), grants + 2, "it was granted before bob");
    signal(process, "CONT").unwrap();
    eventually("it waits again", || first_waiter(&mut client, lock).ok_or("nobody waits"));
    bob.try_into().unwrap()
}
