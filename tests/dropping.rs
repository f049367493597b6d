//! `LOCK.DROP owner [CURSOR cursor] [COUNT n]`: what becomes of an owner that is gone.

use crate::waiting::play;
use redis::Value;
use std::time::Duration;
use testkit::{
    Client, Cluster, Server, SlotMove, aof, becomes, code, error, int, is_older_than, items,
    number, start_pair, wait_until_in_sync,
};

const LONG: u64 = 60_000;

const STORIES: &str = "
    # it waits no more, and who waits behind it goes on
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
    LOCK.DROP bob -> 0 1
    bob: -> -DROPPED somebody dropped this owner and its place in the queue (LOCK.DROP)
    LOCK.WAITERS k -> ticket(carol)
    INFO leasehold_waits_refused -> 1
    LOCK.DROP carol -> 0 1
    LOCK.WAITERS k -> (empty)
    LOCK.DROP carol -> 0 0

    # what it holds goes to who waits, as by its own release
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    LOCK.DROP alice -> 0 1
    bob: -> B
    INFO leasehold_releases -> 1
    LOCK.LOG -> (empty)
    LOCK.RELEASE k alice -> 0

    # in a transaction, as elsewhere
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    MULTI: LOCK.DROP alice; LOCK.CHECK k bob; LOCK.DROP bob -> 0 1; B; 0 1

    # and in a script
    LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
    EVAL \"return redis.call('LOCK.DROP', 'carol')\" 0 -> 0 1
    LOCK.WAITERS k -> (empty)

    # who waits for several locks waits for none of them any more
    LOCK.ACQUIRE k bob 60000 TICKET 60000 ALSO 2 l m -> nil
    LOCK.ACQUIRE l carol 60000 TICKET 60000 -> nil
    LOCK.DROP bob COUNT 1 -> …3
    LOCK.WAITERS k; LOCK.WAITERS m -> (empty); (empty)
    LOCK.CHECK l carol -> until B

    # a hold that is bound to a connection
    LOCK.ACQUIRE l bob 60000 EPHEMERAL 60000 -> B
    LOCK.ACQUIRE m bob 60000 EPHEMERAL 60000 -> C
    LOCK.DROP bob -> 0 2
    DBSIZE -> 1
    INFO leasehold_bindings -> 0

    # a hold of a lock that was contended, and one that the log names
    LOCK.ACQUIRE k bob 60000 -> nil
    LOCK.DROP alice -> 0 1
    CONFIG SET leasehold.log-long-wait 1 -> OK
    LOCK.ACQUIRE k alice 60000 -> B
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    5 ms pass
    LOCK.RELEASE k alice -> 1
    bob: -> C
    LOCK.TOP RESET; LOCK.LOG -> OK; long-wait(bob)
    LOCK.DROP bob -> 0 1

    # its own holds of shared locks, and no others
    LOCK.ACQUIRE l bob 60000 SHARE 0 -> B
    LOCK.ACQUIRE l carol 60000 SHARE 0 -> C
    LOCK.ACQUIRE l dave 60000 TICKET 60000 -> nil
    LOCK.DROP carol -> 0 1
    LOCK.HOLDERS l -> bob

    # a foreign lock, if the owner is its whole value
    SET l bob PX 60000 -> OK
    LOCK.ACQUIRE l carol 60000 TICKET 60000 -> nil
    LOCK.DROP bo -> 0 0
    LOCK.DROP bob -> 0 1
    LOCK.CHECK l carol -> B

    # nothing of another database
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    other: SELECT 1 -> OK
    other: LOCK.DROP bob -> 0 0
    other: LOCK.DROP alice -> 0 0
    LOCK.WAITERS k -> ticket(bob)

    # what holds no lock is nobody's
    RPUSH l bob -> 1
    LOCK.ACQUIRE l bob 60000 -> -WRONGTYPE
    LOCK.DROP bob -> 0 0

    # step by step
    LOCK.ACQUIRE l bob 60000 EPHEMERAL 60000 -> B
    LOCK.ACQUIRE m bob 60000 EPHEMERAL 60000 -> C
    LOCK.DROP bob COUNT 1 -> 281474976710657 1
    LOCK.DROP bob COUNT 1 CURSOR 281474976710657 -> 281474976710658 1
    LOCK.DROP bob CURSOR 281474976710658 -> 0 0
    LOCK.DROP bob CURSOR 18446744073709551615 -> 0 0

    # mistakes are named from left to right
    LOCK.DROP -> -ERR…
    LOCK.DROP \"\" x -> -ERR owner must be 1 to 255 bytes long
    LOCK.DROP bob COUNT 0 -> -ERR unknown option, expected CURSOR…
";

#[test]
fn everything_of_an_owner_that_the_module_remembers_is_freed() {
    // Redis 6.2 does not tell of whom a script is, and has no settings of modules.
    let is_old = is_older_than((7, 0));
    let needs_new = |story: &&str| story.contains("CONFIG SET") || story.contains("EVAL");
    let stories = STORIES.split("\n\n").filter(|story| !is_old || !needs_new(story));
    play(Server::builder, &stories.collect::<Vec<_>>().join("\n\n"));
}

#[test]
fn it_is_replicated_as_releases_are() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    client.cmd("LOCK.ACQUIRE k bob 60000 TICKET 60000");
    let shared = ["alice", "carol"];
    for owner in shared {
        client.cmd(format!("LOCK.ACQUIRE l {owner} {LONG} SHARE 0"));
    }
    client.cmd("LOCK.ACQUIRE l dave 60000 TICKET 60000");
    let before = aof::lines(&server).len();
    assert_eq!(client.cmd("LOCK.DROP alice"), Value::Array(vec![int(0), int(2)]));
    let lines = aof::lines(&server)[before..].join(" ; ");
    assert!(lines.starts_with("DEL k ; SET k ") && lines.contains(":bob PXAT "), "{lines}");
    assert!(lines.contains(" ; SETRANGE l ") && !lines.contains("LOCK."), "{lines}");
}

#[test]
fn replicas_refuse() {
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    primary.client().grant("k", "alice", LONG);
    wait_until_in_sync(&primary, &replica);
    let mut client = replica.client();
    assert_eq!(code(client.cmd("LOCK.DROP alice")), "READONLY");
    client.cmd("CONFIG SET replica-read-only no");
    let told = "READONLY LOCK.DROP is not possible on a replica, ask its primary";
    assert_eq!(client.cmd("LOCK.DROP alice"), error(told));
}

/// A user learns nothing of locks that it may not release, and does nothing to them.
#[test]
fn only_what_the_user_may_release_is_freed() {
    let server = Server::start();
    let mut client = server.client();
    for key in ["mine:a", "theirs:a"] {
        client.grant(key, "alice", LONG);
        client.cmd(format!("LOCK.ACQUIRE {key} bob {LONG} TICKET {LONG}"));
    }
    client.grant("mine:b", "carol", LONG);
    client.cmd(format!("LOCK.ACQUIRE mine:b bob {LONG} TICKET {LONG} ALSO 1 theirs:b"));
    let drop = |client: &mut Client, owner: &str| client.cmd(format!("LOCK.DROP {owner}"));
    let freed = |count| Value::Array(vec![int(0), int(count)]);
    let mut nobody = server.user("nobody", "+@all -lock.drop ~*");
    assert_eq!(code(drop(&mut nobody, "bob")), "NOPERM");
    let mut worker = server.user("worker", "+@all ~mine:*");
    if is_older_than((7, 0)) {
        assert_eq!(code(drop(&mut worker, "bob")), "NOPERM", "nobody says what it may do");
        assert_eq!(drop(&mut client, "bob"), freed(4));
        return;
    }
    let mut reader = server.user("reader", "+@all %R~mine:*");
    let mut beside = server.user("beside", "+@all ~other:* (+@read ~*)");
    assert_eq!(drop(&mut beside, "bob"), freed(0), "a selector of one is no right of another");
    assert_eq!(drop(&mut reader, "bob"), freed(0));
    assert_eq!(drop(&mut worker, "bob"), freed(1), "the places for several locks go together");
    assert_eq!(drop(&mut worker, "alice"), freed(1));
    let script = "EVAL \"return redis.call('LOCK.DROP', 'alice')\" 0";
    assert_eq!(
        worker.cmd(["EVAL", "return redis.call('LOCK.DROP', 'alice')", "0"]),
        freed(0),
        "{script}"
    );
    assert_eq!(client.check("theirs:a", "alice"), client.info("theirs:a").map(|info| info.fence));
    assert_eq!(items(&client.cmd("ACL LOG")).len(), 1, "the refused command, and no key");
    assert_eq!(drop(&mut client, "bob"), freed(3));
}

#[test]
fn in_a_cluster_each_node_frees_what_it_serves() {
    let cluster = Cluster::of(2, 0);
    let slot = cluster.slot_of(0);
    let step = SlotMove { slot: slot.number, from: 0, to: 1 };
    let mut from = cluster.node(0).client();
    let (stays, goes) = (slot.key("stays"), slot.key("goes"));
    for key in [&stays, &goes] {
        from.grant(key, "alice", LONG);
        from.cmd(format!("LOCK.ACQUIRE {key} bob {LONG} TICKET {LONG}"));
    }
    assert_eq!(cluster.node(1).client().cmd("LOCK.DROP bob"), Value::Array(vec![int(0), int(0)]));
    step.import(&cluster);
    step.migrate(&cluster);
    // Half of the slot is on its way.
    let (host, port) = ("127.0.0.1", cluster.node(1).port());
    from.cmd(format!("MIGRATE {host} {port} {goes} 0 5000"));
    let freed = from.cmd("LOCK.DROP alice");
    assert_eq!(freed, Value::Array(vec![int(0), int(1)]), "only what is here");
    assert_eq!(code(from.cmd(format!("LOCK.CHECK {goes} alice"))), "ASK");
    let mut to = cluster.node(1).client();
    let moved = to.pipeline(&["ASKING", &format!("LOCK.CHECK {goes} alice")]).remove(1);
    assert!(matches!(moved, Value::Int(_)), "{moved:?}");
}

/// Others have their turn between the steps, and one step frees only a part.
#[test]
fn an_owner_with_twenty_thousand_places_does_not_hold_up_the_server() {
    const PLACES: usize = 20_000;
    let server = Server::start();
    let mut client = server.client();
    let lines = |line: &dyn Fn(usize) -> String, client: &mut Client| {
        let lines: Vec<_> = (0..PLACES).map(line).collect();
        for chunk in lines.chunks(1_000) {
            client.pipeline(&chunk.iter().map(String::as_str).collect::<Vec<_>>());
        }
    };
    lines(&|number| format!("LOCK.ACQUIRE k{number} alice 600000"), &mut client);
    lines(&|number| format!("LOCK.ACQUIRE k{number} bob {LONG} TICKET 600000"), &mut client);
    lines(&|number| format!("LOCK.ACQUIRE k{number} carol {LONG} TICKET 600000"), &mut client);
    assert_eq!(client.counter("tickets"), 2 * PLACES as u64);
    // The server's own time: other programs of a busy machine do not count.
    let processor = server.processor_clock();
    let longest = |owner: &str| {
        let (mut cursor, mut freed, mut longest, mut steps) = (0, 0, Duration::ZERO, 0);
        let mut client = server.client();
        loop {
            let (step, before) =
                (format!("LOCK.DROP {owner} COUNT -1 CURSOR {cursor}"), processor());
            let reply = client.cmd(step);
            server.client().cmd("PING");
            longest = longest.max(processor() - before);
            let [Value::Int(next), Value::Int(count)] = items(&reply) else { panic!("{reply:?}") };
            (cursor, freed, steps) = (*next, freed + count, steps + 1);
            if cursor == 0 {
                return (freed, steps, longest);
            }
        }
    };
    let places = i64::try_from(PLACES).unwrap();
    for owner in ["bob", "alice"] {
        let (freed, steps, longest) = longest(owner);
        eprintln!("{owner}: {steps} steps, a PING waits for {longest:?}");
        assert_eq!(freed, places, "{owner}");
        assert!(steps > 3, "{owner}: {steps} steps");
        assert!(longest < Duration::from_millis(10), "{owner}: a PING waits for {longest:?}");
    }
    becomes("carol holds all", int(places), || client.cmd("DBSIZE"));
    assert_eq!(client.counter("tickets"), 0);
    assert_eq!(number(&client.cmd("LOCK.INFO k0"), "waiters"), 0);
}
