//! The recipes of docs/clients.md that wait on a shared connection, as printed: each test runs all of them.

use super::leases::{ONE, paused_until_bob_has};
use super::recipe::{Locks, Recipe};
use super::{address_of, server};
use redis::Value;
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Client, Cluster, Waiter, bulk_text, eventually, field};

const LONG: u64 = 60_000;

/// How many wait at once, and for how many locks.
const WAITS: u64 = 1_000;
const LOCKS: u64 = 200;

/// Each work says how many are in there with it, and who it is. The locks are taken for longer than any test.
const CROWD_IN_NODE: &str = r"
const one = (key) => withLock(key, { ttl: 60000, patience: 60000 }, async ({ owner }) => {
  console.log(Number(await send('INCR', `inside:${key}`)));
  await send('RPUSH', `order:${key}`, owner);
  await send('DECR', `inside:${key}`);
});
await Promise.all(Array.from({ length: WAITS }, (_, number) => one(`k${number % LOCKS}`)));
process.exit(0);
";

const CROWD_IN_ASYNCIO: &str = r"
async def one(key):
    async with lock(key, ttl=60, patience=60) as lease:
        print(await client.execute_command('INCR', f'inside:{key}'))
        await client.execute_command('RPUSH', f'order:{key}', lease.owner)
        await client.execute_command('DECR', f'inside:{key}')

async def main():
    await asyncio.gather(*(one(f'k{number % LOCKS}') for number in range(WAITS)))
    await client.aclose()

asyncio.run(main())
";

/// One gives up, one runs out of patience, and one stays.
const GIVING_UP_IN_NODE: &str = r"
const waiters = async () => (await send('LOCK.WAITERS', 'k')).length;
const until = async (wanted) => {
  const end = performance.now() + 8000;
  while ((await waiters()) !== wanted)
    if (performance.now() > end) throw new Error(`${await waiters()} wait`);
};
const stops = new AbortController();
const stopped = acquire('k', { patience: 60000, signal: stops.signal }).catch((error) => error.message);
acquire('k', { patience: 60000 });
await until(2);
stops.abort(new Error('no more'));
await until(1);
console.log(await stopped);
console.log(await acquire('k', { patience: 50 }), await acquire('k', { patience: 50, signal: stops.signal }).catch((error) => error.message));
await until(1);
process.exit(0);
";

const GIVING_UP_IN_ASYNCIO: &str = r"
async def until(wanted):
    while len(await client.execute_command('LOCK.WAITERS', 'k')) != wanted:
        await asyncio.sleep(0.01)

async def main():
    stopped, stays = (asyncio.create_task(acquire('k', patience=60)) for _ in range(2))
    await asyncio.wait_for(until(2), 8)
    stopped.cancel()
    await asyncio.wait_for(until(1), 8)
    print('no more')
    print('null' if await acquire('k', patience=0.05) is None else 'held', 'no more')
    await asyncio.wait_for(until(1), 8)
    stays.cancel()
    await client.aclose()

asyncio.run(main())
";

/// As printed, but for a ticket that lasts ten times as long. So nobody loses a place on a machine that stands still, and
/// what is to come by a message does not come by asking again in time.
fn lasting(recipe: &Recipe, address: &str) -> String {
    let text = recipe.text(address);
    let (printed, longer) = match recipe.language {
        "js" => ("const TICKET = 3000;", "const TICKET = 30000;"),
        _ => ("TICKET = 3 ", "TICKET = 30 "),
    };
    assert_eq!(text.matches(printed).count(), 1, "{text}");
    text.replace(printed, longer)
}

fn connections(client: &mut Client) -> usize {
    bulk_text(&client.cmd("CLIENT LIST")).lines().count()
}

fn until_tickets(client: &mut Client, wanted: u64) {
    eventually("as many wait by tickets as are to", || match client.counter("tickets") {
        tickets if tickets == wanted => Ok(()),
        tickets => Err(tickets),
    });
}

/// The owners who wait for this lock, oldest first.
fn queue_of(client: &mut Client, key: &str) -> Vec<String> {
    let rows = client.cmd(format!("LOCK.WAITERS {key} COUNT -1"));
    let Value::Array(rows) = rows else { panic!("{rows:?}") };
    rows.iter().map(|row| bulk_text(field(row, "owner").unwrap())).collect()
}

#[test]
fn a_thousand_wait_for_200_locks_on_two_connections_and_are_served_alone_and_in_order() {
    for recipe in Recipe::by_tickets() {
        let server = server();
        let mut client = server.client();
        let keys: Vec<_> = (0..LOCKS).map(|number| format!("k{number}")).collect();
        for key in &keys {
            client.grant(key, "alice", LONG);
        }
        let crowd = if recipe.language == "js" { CROWD_IN_NODE } else { CROWD_IN_ASYNCIO };
        let crowd = crowd.replace("WAITS", &WAITS.to_string()).replace("LOCKS", &LOCKS.to_string());
        let text = format!("{}\n{crowd}", lasting(&recipe, &address_of(&server)));
        let before = connections(&mut client);
        let (told, queues) = thread::scope(|scope| {
            let waits = scope.spawn(|| recipe.run(&text));
            until_tickets(&mut client, WAITS);
            assert_eq!(connections(&mut client), before + 2, "{}", recipe.client);
            let queues: Vec<_> = keys.iter().map(|key| queue_of(&mut client, key)).collect();
            for key in &keys {
                assert!(client.release(key, "alice"));
            }
            (waits.join().unwrap().output(), queues)
        });
        assert_eq!(told, "1\n".repeat(WAITS as usize), "{}: not alone", recipe.client);
        for (key, queue) in keys.iter().zip(queues) {
            let served = client.cmd(format!("LRANGE order:{key} 0 -1"));
            let Value::Array(served) = served else { panic!("{served:?}") };
            let served: Vec<_> = served.iter().map(bulk_text).collect();
            assert_eq!(served.len() as u64, WAITS / LOCKS);
            assert_eq!(served, queue, "{}: {key}", recipe.client);
        }
        assert_eq!(client.counter("tickets") + client.counter("held"), 0, "{}", recipe.client);
    }
}

/// The connection that hears of grants is killed in the step that makes one.
#[test]
fn a_grant_whose_message_is_lost_is_found_by_asking_again() {
    for recipe in Recipe::by_tickets() {
        let server = server();
        let mut client = server.client();
        client.grant("k", "alice", LONG);
        let text = recipe.text(&address_of(&server));
        let locks = Locks { patience: 40_000, ..ONE };
        let outcomes = thread::scope(|scope| {
            let waits = scope.spawn(|| recipe.takes(&text, locks));
            until_tickets(&mut client, 1);
            let replies = client.transaction(&["CLIENT KILL TYPE pubsub", "LOCK.RELEASE k alice"]);
            assert_eq!(replies, [Value::Int(1), Value::Int(1)], "{}", recipe.client);
            waits.join().unwrap()
        });
        let [outcome] = &outcomes[..] else { panic!("{outcomes:?}") };
        assert!(outcome.is("done") && outcome.millis < 20_000, "{}: {outcome:?}", recipe.client);
    }
}

/// Whether the place was still there when the recipe had asked again on new connections. Where a machine stands still for
/// longer than the ticket, it was not.
fn keeps_its_place_before_bob(recipe: &Recipe) -> bool {
    let server = server();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let text = recipe.text(&address_of(&server));
    let locks = Locks { patience: 40_000, hold: 100, ..ONE };
    thread::scope(|scope| {
        let waits = scope.spawn(|| recipe.takes(&text, locks));
        until_tickets(&mut client, 1);
        let owner = queue_of(&mut client, "k").remove(0);
        let killed =
            client.transaction(&["CLIENT KILL TYPE pubsub", "CLIENT KILL TYPE normal SKIPME yes"]);
        assert!(killed.iter().all(|killed| *killed == Value::Int(1)), "{killed:?}");
        let mut bob = Waiter::of(&server, "k", "bob");
        let mut asked = || client.executed()["lock.acquire"];
        let before = asked();
        eventually("it asks again", || if asked() > before + 1 { Ok(()) } else { Err(asked()) });
        let queue = queue_of(&mut client, "k");
        assert!(client.release("k", "alice"));
        if queue == [owner, "bob".to_owned()] {
            let outcomes = waits.join().unwrap();
            let fence = bob.fence();
            let [outcome] = &outcomes[..] else { panic!("{outcomes:?}") };
            let after = format!("done {fence}");
            assert!(outcome.is("done") && outcome.came < after, "{}: {outcome:?}", recipe.client);
            return true;
        }
        bob.fence();
        assert!(client.release("k", "bob"));
        assert!(waits.join().unwrap()[0].is("done"), "{}", recipe.client);
        false
    })
}

#[test]
fn a_place_is_kept_when_all_connections_are_killed() {
    for recipe in Recipe::by_tickets() {
        let is_kept = (0..3).any(|_| keeps_its_place_before_bob(&recipe));
        assert!(is_kept, "{}: it lost its place each time", recipe.client);
    }
}

/// The grant lapses while the program sleeps, and bob has the lock when it wakes up.
#[test]
fn work_does_not_begin_with_a_grant_that_nobody_claimed_in_time() {
    for recipe in Recipe::by_tickets() {
        let server = server();
        let mut client = server.client();
        client.grant("k", "alice", LONG);
        let text = recipe.text(&address_of(&server));
        let locks = Locks { ttl: 1_000, patience: 40_000, ..ONE };
        let (bob, outcomes) = thread::scope(|scope| {
            let waits = scope.spawn(|| recipe.takes(&text, locks));
            let bob = paused_until_bob_has(&server, "k");
            assert_eq!(client.check("k", "bob"), Some(bob));
            assert!(client.release("k", "bob"));
            (bob, waits.join().unwrap())
        });
        let [outcome] = &outcomes[..] else { panic!("{outcomes:?}") };
        let before = format!("done {bob}");
        assert!(outcome.is("done") && outcome.came > before, "{}: {outcome:?}", recipe.client);
    }
}

/// A place that is left behind would stay for longer than this waits.
#[test]
fn whoever_gives_up_or_runs_out_of_patience_leaves_no_place_behind() {
    let by_tickets = Recipe::by_tickets().map(|recipe| (recipe, true));
    let on_their_own = Recipe::of_javascript().map(|recipe| (recipe, false));
    for (recipe, by_ticket) in by_tickets.chain(on_their_own) {
        let server = server();
        server.client().grant("k", "alice", LONG);
        let address = address_of(&server);
        let text = if by_ticket { lasting(&recipe, &address) } else { recipe.text(&address) };
        let program =
            if recipe.language == "js" { GIVING_UP_IN_NODE } else { GIVING_UP_IN_ASYNCIO };
        let told = recipe.run(&format!("{text}\n{program}")).output();
        assert_eq!(told, "no more\nnull no more\n", "{}", recipe.client);
    }
}

/// Takes the lock of this name, as the language writes it.
fn takes(recipe: &Recipe, key: &str) -> String {
    match recipe.language {
        "js" => format!(
            "console.log(await withLock({key}, {{ ttl: 60000, patience: 60000 }}, () => 'done'));
            process.exit(0);"
        ),
        _ => format!(
            "async def main():
    async with lock({key}, ttl=60, patience=60):
        print('done')
    await client.aclose()
asyncio.run(main())"
        ),
    }
}

/// It hears of the grant, for it would not ask again in time.
#[test]
fn a_grant_is_heard_of_whatever_the_name_of_the_lock() {
    let soon = Duration::from_secs(8);
    for recipe in Recipe::by_tickets() {
        let bytes = match recipe.client {
            "ioredis" => Some("Buffer.from([0xff, 0x20, 0x0a, 0x00])"),
            "redis-py with asyncio" => Some(r"b'\xff \n\x00'"),
            _ => None, // it sends only strings
        };
        let binary = bytes.map(|literal| (literal, b"\xff \n\0".to_vec()));
        let spoken = (r"'a lock, \u00ff \n 3 b'", "a lock, \u{ff} \n 3 b".as_bytes().to_vec());
        for (literal, key) in binary.into_iter().chain([spoken]) {
            let server = server();
            let mut client = server.client();
            client.grant(&key, "alice", LONG);
            let address = address_of(&server);
            let text = format!("{}\n{}", lasting(&recipe, &address), takes(&recipe, literal));
            let told = thread::scope(|scope| {
                let waits = scope.spawn(|| recipe.run(&text));
                until_tickets(&mut client, 1);
                let released = Instant::now();
                assert!(client.release(&key, "alice"));
                let told = waits.join().unwrap().output();
                assert!(released.elapsed() < soon, "{}: not heard of", recipe.client);
                told
            });
            assert_eq!(told, "done\n", "{}", recipe.client);
            assert_eq!(client.counter("held"), 0, "{}", recipe.client);
        }
    }
}

#[test]
fn in_a_cluster_each_ticket_is_taken_at_the_node_of_its_lock() {
    const MANY: u64 = 50;
    for recipe in Recipe::by_tickets() {
        let cluster = Cluster::of(3, 0);
        let keys: Vec<_> = (0..MANY).map(|number| format!("w{number}")).collect();
        for key in &keys {
            cluster.client_for(key).grant(key, "alice", LONG);
        }
        let text = recipe.text_in_a_cluster(&address_of(cluster.node(0)));
        let locks =
            Locks { name: "w#", ttl: 30_000, patience: 40_000, count: MANY, hold: 10, share: 1 };
        let outcomes = thread::scope(|scope| {
            let waits = scope.spawn(|| recipe.takes(&text, locks));
            let tickets = || cluster.nodes().iter().map(|node| node.client().counter("tickets"));
            eventually("all wait", || match tickets().sum::<u64>() {
                MANY => Ok(()),
                tickets => Err(tickets),
            });
            for key in &keys {
                assert!(cluster.client_for(key).release(key, "alice"));
            }
            waits.join().unwrap()
        });
        assert!(outcomes.iter().all(|outcome| outcome.is("done")), "{outcomes:?}");
    }
}
