//! The recipes of docs/clients.md for Node and Python, as printed, in trouble: each test runs all of them.

use super::program::Told;
use super::recipe::{Locks, Outcome, Recipe};
use super::{address_of, server};
use redis::Value;
use std::fs;
use std::process::Command;
use std::thread;
use testkit::{
    Client, Cluster, Server, Takeover, bulk_text, eventually, field, lacks, wait_until_it_is,
};

const LONG: u64 = 60_000;

/// How long after the end of its patience a request may fail.
const SECOND: u64 = 1_000;

/// How many wait at once.
const MANY: u64 = 50;

/// One lock, for a work that is over at once.
pub(super) const ONE: Locks<'static> =
    Locks { name: "k", ttl: LONG, patience: 0, hold: 0, count: 1, share: 1 };

/// The process of who waits first, with which its owner begins, and how long it has waited.
fn first_waiter(client: &mut Client, lock: &str) -> Option<(String, i64)> {
    let waiters = client.cmd(format!("LOCK.WAITERS {lock}"));
    let Value::Array(waiters) = waiters else { panic!("{waiters:?}") };
    let first = waiters.first()?;
    let owner = bulk_text(field(first, "owner").unwrap());
    let Some(&Value::Int(waited)) = field(first, "waited") else { panic!("{first:?}") };
    Some((owner.split(':').next().unwrap().to_owned(), waited))
}

/// The first in time of three. A busy machine may delay any of them; a recipe that is late delays all.
fn in_time(limit: u64, mut request: impl FnMut() -> Vec<Outcome>) -> Outcome {
    let mut only = || request().pop().unwrap();
    let mut outcome = only();
    for _ in 0..2 {
        if outcome.millis >= limit {
            outcome = only();
        }
    }
    assert!(outcome.millis < limit, "late: {outcome:?}");
    outcome
}

fn signal(process: &str, which: &str) {
    assert!(Command::new("kill").args([which, process]).status().unwrap().success());
}

/// Prints a lease's fence, and what its functions say, one after another.
fn steps(recipe: &Recipe) -> &'static str {
    match recipe.client {
        "redis-py" => {
            "lease = acquire('k', ttl=60)
print(lease.fence, lease.extend(500), lease.valid_for() > 400, lease.lost.is_set())
print(acquire('k') is None, acquire('k', patience=0.05) is None)
print(lease.release(), lease.release(), lease.extend(1))"
        }
        "redis-py with asyncio" => {
            "async def main():
    lease = await acquire('k', ttl=60)
    print(lease.fence, await lease.extend(500), lease.valid_for() > 400, lease.lost.is_set())
    print(await acquire('k') is None, await acquire('k', patience=0.05) is None)
    print(await lease.release(), await lease.release(), await lease.extend(1))
    await client.aclose()
asyncio.run(main())"
        }
        _ => {
            "const lease = await acquire('k', { ttl: 60000 });
console.log(lease.fence, await lease.extend(500000), lease.validFor() > 400000, lease.signal.aborted);
console.log(await acquire('k') === null, await acquire('k', { patience: 50 }) === null);
console.log(await lease.release(), await lease.release(), await lease.extend(1000));
process.exit(0);"
        }
    }
}

#[test]
fn a_lease_is_taken_extended_and_given_back_and_a_busy_lock_is_no_error() {
    for recipe in Recipe::all() {
        let server = server();
        let text = recipe.text(&address_of(&server));
        let told: Told = recipe.run(&format!("{text}\n{}\n", steps(&recipe)));
        let said = told.output().to_lowercase();
        let (fence, rest) = said.split_once(' ').unwrap();
        assert_eq!(fence.len(), 16, "{said}");
        assert_eq!(rest, "true true false\ntrue true\ntrue false false\n", "{}", recipe.client);
        let mut client = server.client();
        let counters = ["grants", "releases", "waits_timed_out", "held"];
        assert_eq!(counters.map(|name| client.counter(name)), [1, 1, 1, 0], "{}", recipe.client);
    }
}

#[test]
fn a_lease_is_renewed_for_as_long_as_the_work_takes() {
    for recipe in Recipe::all() {
        let server = server();
        // A busy machine lets a program stand still for a second.
        let locks = Locks { ttl: 3_000, hold: 6_000, ..ONE };
        let outcomes = recipe.takes(&recipe.text(&address_of(&server)), locks);
        assert!(outcomes[0].is("done"), "{}: {outcomes:?}", recipe.client);
        let mut client = server.client();
        assert_eq!((client.counter("grants"), client.counter("releases")), (1, 1));
        assert!(client.counter("extends") >= 4, "{}", recipe.client);
    }
}

#[test]
fn the_work_is_told_when_its_lock_is_deleted_or_its_server_is_silent_for_a_lease() {
    for recipe in Recipe::all() {
        for is_deleted in [true, false] {
            let mut server = server();
            let text = recipe.text(&address_of(&server));
            let locks = Locks { ttl: 1_500, hold: LONG, ..ONE };
            let outcomes = thread::scope(|scope| {
                let works = scope.spawn(|| recipe.takes(&text, locks));
                eventually("the work goes on, for the lease was renewed", || {
                    if server.client().counter("extends") > 0 { Ok(()) } else { Err(()) }
                });
                if is_deleted {
                    server.cmd("DEL k");
                } else {
                    server.freeze();
                }
                let outcomes = works.join().unwrap();
                if !is_deleted {
                    server.thaw();
                }
                outcomes
            });
            assert!(outcomes[0].is("lost"), "{}: {outcomes:?}", recipe.client);
        }
    }
}

#[test]
fn fifty_wait_at_once_and_all_are_served_also_when_their_connections_are_killed() {
    for recipe in Recipe::all() {
        for are_killed in [false, true] {
            let server = server();
            let mut client = server.client();
            let fence = client.grant("k", "alice", LONG);
            let text = recipe.text(&address_of(&server));
            let locks = Locks { ttl: 3_000, patience: 30_000, count: MANY, ..ONE };
            let outcomes = thread::scope(|scope| {
                let waits = scope.spawn(|| recipe.takes(&text, locks));
                client.wait_until_waiters(MANY);
                if are_killed {
                    client.cmd("CLIENT KILL TYPE normal SKIPME yes");
                    client.wait_until_waiters(MANY);
                    assert!(client.counter("waits_started") >= 2 * MANY, "they were not killed");
                }
                assert!(client.release("k", "alice"));
                waits.join().unwrap()
            });
            let mut fences: Vec<_> = outcomes.iter().map(|outcome| outcome.came.clone()).collect();
            fences.sort_unstable();
            fences.dedup();
            assert_eq!(fences.len() as u64, MANY, "{}: {outcomes:?}", recipe.client);
            assert!(outcomes.iter().all(|outcome| outcome.is("done")), "{outcomes:?}");
            assert!(fences[0] > format!("done {fence}"), "{fences:?}");
            assert_eq!((client.counter("releases"), client.counter("held")), (MANY + 1, 0));
        }
    }
}

#[test]
fn a_request_ends_within_its_patience_when_connections_are_killed_and_the_lock_stays_busy() {
    let patience = 4_000;
    for recipe in Recipe::all().chain(Recipe::by_tickets()) {
        let server = server();
        let mut client = server.client();
        client.grant("k", "alice", LONG);
        let text = recipe.text(&address_of(&server));
        let outcome = in_time(patience + SECOND, || {
            thread::scope(|scope| {
                let waits = scope.spawn(|| recipe.takes(&text, Locks { patience, ..ONE }));
                eventually("it has waited half its patience", || {
                    let waited = first_waiter(&mut client, "k").map(|(_, waited)| waited);
                    waited.filter(|waited| *waited > 2_000).ok_or(waited)
                });
                client.cmd("CLIENT KILL TYPE normal SKIPME yes");
                waits.join().unwrap()
            })
        });
        assert!(outcome.is("busy") && outcome.millis >= patience, "{}: {outcome:?}", recipe.client);
    }
}

#[test]
fn a_server_that_never_returns_is_an_error_within_the_patience_and_a_second() {
    let patience = 2_000;
    for recipe in Recipe::all().chain(Recipe::by_tickets()) {
        for is_killed in [false, true] {
            let outcome = in_time(patience + SECOND, || {
                let mut server = server();
                server.client().grant("k", "alice", LONG);
                let text = recipe.text(&address_of(&server));
                thread::scope(|scope| {
                    let waits = scope.spawn(|| recipe.takes(&text, Locks { patience, ..ONE }));
                    let mut client = server.client();
                    eventually("it waits", || first_waiter(&mut client, "k").ok_or(()));
                    if is_killed {
                        server.kill();
                    } else {
                        server.freeze();
                    }
                    waits.join().unwrap()
                })
            });
            assert!(outcome.is("error"), "{}: {outcome:?}", recipe.client);
        }
    }
}

#[test]
fn what_came_of_the_work_is_not_lost_when_the_release_fails() {
    let hold = 1_000;
    for recipe in Recipe::all() {
        let works_and_fails_to_release = || {
            let mut server = server();
            let text = recipe.text(&address_of(&server));
            let locks = Locks { ttl: 30_000, hold, ..ONE };
            thread::scope(|scope| {
                let works = scope.spawn(|| recipe.takes(&text, locks));
                eventually("it holds the lock", || server.client().info("k").map(drop).ok_or(()));
                server.freeze();
                works.join().unwrap()
            })
        };
        // On a busy machine the server may be frozen before the program has heard all that it asks before
        // it begins to work, and then that fails.
        let begins_to_work = || {
            let outcomes = works_and_fails_to_release();
            if outcomes[0].millis < hold { works_and_fails_to_release() } else { outcomes }
        };
        let outcome = in_time(hold + 2 * SECOND, begins_to_work);
        assert!(outcome.is("done"), "{}: {outcome:?}", recipe.client);
    }
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
    let (process, _) =
        eventually("it waits", || first_waiter(&mut client, lock).ok_or("nobody waits"));
    let grants = client.counter("grants");
    signal(&process, "-STOP");
    // One thread takes the signal and stops the others, which may take a while on a busy machine.
    eventually("it is paused", || {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"));
        let is_paused = stat.as_ref().map_or(true, |stat| stat.contains(") T "));
        if is_paused { Ok(()) } else { Err(stat) }
    });
    server.cmd(format!("DEL {lock}"));
    let bob = server.client().cmd(format!("LOCK.ACQUIRE {lock} bob {LONG} BLOCK {LONG}"));
    let Value::Int(bob) = bob else { panic!("{bob:?}") };
    assert_eq!(client.counter("grants"), grants + 2, "it was granted before bob");
    signal(&process, "-CONT");
    eventually("it waits again", || first_waiter(&mut client, lock).ok_or("nobody waits"));
    bob.try_into().unwrap()
}

/// The lease is granted and over while the program sleeps, and another one has the lock when it wakes up.
#[test]
fn work_does_not_begin_with_a_lease_that_ended_while_the_program_was_paused() {
    for recipe in Recipe::all() {
        let server = server();
        let mut client = server.client();
        client.grant("k", "alice", LONG);
        let text = recipe.text(&address_of(&server));
        let locks = Locks { ttl: 1_000, patience: 30_000, ..ONE };
        let outcomes = thread::scope(|scope| {
            let waits = scope.spawn(|| recipe.takes(&text, locks));
            let bob = paused_until_bob_has(&server, "k");
            assert_eq!(client.check("k", "bob"), Some(bob));
            assert!(client.release("k", "bob"));
            waits.join().unwrap()
        });
        assert!(outcomes[0].is("done"), "{}: {outcomes:?}", recipe.client);
    }
}

#[test]
fn a_limit_for_the_replies_of_ioredis_does_not_cut_a_wait_short() {
    let Some(recipe) = Recipe::ioredis() else { return };
    let server = server();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let address = address_of(&server);
    let (usual, limited) = (
        format!("new Redis('{address}')"),
        format!("new Redis('{address}', {{ commandTimeout: 1000 }})"),
    );
    let text = recipe.text(&address);
    assert!(text.contains(&usual), "{text}");
    let text = text.replace(&usual, &limited);
    let outcomes = thread::scope(|scope| {
        let waits = scope.spawn(|| recipe.takes(&text, Locks { patience: 10_000, ..ONE }));
        eventually("it has waited for longer than the limit", || {
            let waited = first_waiter(&mut client, "k").map(|(_, waited)| waited);
            waited.filter(|waited| *waited > 2_000).ok_or(waited)
        });
        assert!(client.release("k", "alice"));
        waits.join().unwrap()
    });
    assert!(outcomes[0].is("done"), "{outcomes:?}");
}

#[test]
fn a_request_that_is_cancelled_in_asyncio_leaves_the_queue() {
    let Some(recipe) = Recipe::asyncio() else { return };
    let server = server();
    server.client().grant("k", "alice", LONG);
    let program = "async def waiters(wanted):
    while len(await client.execute_command('LOCK.WAITERS', 'k')) != wanted:
        await asyncio.sleep(0.01)
async def main():
    request = asyncio.create_task(acquire('k', patience=60))
    await asyncio.wait_for(waiters(1), 20)
    request.cancel()
    await asyncio.wait_for(waiters(0), 20)
    print(request.cancelled() or await asyncio.wait([request]) and request.cancelled())
    await client.aclose()
asyncio.run(main())";
    let text = recipe.text(&address_of(&server));
    assert_eq!(recipe.run(&format!("{text}\n{program}\n")).output(), "True\n");
}

pub(super) fn redirections(node: &Server) -> u64 {
    let errors = node.client().info_text("errorstats");
    let of_moved = errors.lines().find_map(|line| line.strip_prefix("errorstat_MOVED:count="));
    of_moved.map_or(0, |count| count.trim().parse().unwrap())
}

#[test]
fn in_a_cluster_every_request_goes_to_the_node_that_has_its_key() {
    if lacks((6, 2), "errorstats") {
        return;
    }
    for recipe in Recipe::all() {
        let cluster = Cluster::of(3, 0);
        let text = recipe.text_in_a_cluster(&address_of(cluster.node(0)));
        let locks = Locks { name: "k#", ttl: 3_000, patience: 20_000, count: 300, ..ONE };
        let outcomes = recipe.takes(&text, locks);
        assert!(outcomes.iter().all(|outcome| outcome.is("done")), "{outcomes:?}");
        let fifty =
            Locks { name: "w#", ttl: 3_000, patience: 20_000, hold: 10, count: MANY, ..ONE };
        for number in 0..MANY {
            let key = format!("w{number}");
            cluster.client_for(&key).grant(&key, "alice", LONG);
        }
        let outcomes = thread::scope(|scope| {
            let waits = scope.spawn(|| recipe.takes(&text, fifty));
            let waiters = || cluster.nodes().iter().map(|node| node.client().counter("waiters"));
            eventually("all wait", || match waiters().sum::<u64>() {
                MANY => Ok(()),
                waiters => Err(waiters),
            });
            for number in 0..MANY {
                let key = format!("w{number}");
                assert!(cluster.client_for(&key).release(&key, "alice"));
            }
            waits.join().unwrap()
        });
        assert!(outcomes.iter().all(|outcome| outcome.is("done")), "{outcomes:?}");
        let redirected: Vec<_> = cluster.nodes().iter().map(|node| redirections(node)).collect();
        // Of either program.
        assert!(redirected.iter().sum::<u64>() <= 2, "{}: {redirected:?}", recipe.client);
    }
}

#[test]
fn in_a_cluster_a_wait_asks_again_when_its_node_hands_over_or_dies() {
    for recipe in Recipe::all() {
        for it_dies in [false, true] {
            let mut cluster = Cluster::start();
            let key = cluster.slot_of(0).key("k");
            let mut client = cluster.node(0).client();
            client.grant(&key, "alice", LONG);
            assert_eq!(client.cmd("WAIT 1 10000"), Value::Int(1));
            let text = recipe.text_in_a_cluster(&address_of(cluster.node(1)));
            let locks = Locks { name: &key, patience: 30_000, ..ONE };
            let outcomes = thread::scope(|scope| {
                let waits = scope.spawn(|| recipe.takes(&text, locks));
                client.wait_until_waiters(1);
                if it_dies {
                    cluster.node_mut(0).kill();
                    wait_until_it_is(cluster.node(3), "master");
                } else {
                    cluster.take_over(3, Takeover::Agreed);
                }
                let mut successor = cluster.node(3).client();
                successor.wait_until_waiters(1);
                assert!(successor.release(&key, "alice"));
                waits.join().unwrap()
            });
            assert!(outcomes[0].is("done"), "{}: {outcomes:?}", recipe.client);
        }
    }
}
