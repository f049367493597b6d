//! Commands that the server runs only while the lock is held, once at the most.

use crate::scene::{
    LONG, behind, client, cluster_locks, eventually, eventually_free, held, locks_with, millis,
    quorum, sentinel_locks, server, soon, with_module, without_module,
};
use leasehold_client::{Error, Guard, Locks, Loss, Released, Renew, Settings};
use redis::{Cmd, FromRedisValue, Value};
use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{
    Cluster, Proxy, Sentinels, Server, SlotMove, Way, bulk, lacks, start_pair, wait_until_in_sync,
};
use tokio::time::timeout;

/// How long clients wait for answers that do not come.
const RESPONSE: Duration = millis(1_000);

/// The same where they are to come: longer than a busy machine takes.
fn patient() -> Settings {
    Settings { response_timeout: millis(15_000), ..Settings::default() }
}

fn impatient() -> Settings {
    Settings { response_timeout: RESPONSE, ..Settings::default() }
}

/// The words of a command, separated by spaces.
fn command(line: &str) -> Cmd {
    let mut words = line.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    command.arg(words.collect::<Vec<_>>()).take()
}

async fn run<T: FromRedisValue>(guard: &Guard, line: &str) -> Result<T, Error> {
    soon(guard.run_command(&command(line))).await
}

/// A connection that has ended may be noticed by the command that was to be sent on it.
async fn run_or_again<T: FromRedisValue>(guard: &Guard, line: &str) -> Result<T, Error> {
    match run(guard, line).await {
        Err(Error::Unanswered { .. }) => run(guard, line).await,
        came => came,
    }
}

/// How often the server was sent a guarded command.
fn asked(server: &Server) -> u64 {
    server.client().executed().get("lock.guard").copied().unwrap_or_default()
}

fn visits(server: &Server) -> Option<String> {
    held(server, "visits")
}

#[track_caller]
fn assert_not_run<T>(came: Result<T, Error>, why: Loss) {
    match came {
        Err(Error::Lost { loss, .. }) => assert_eq!(loss, why),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was run"),
    }
}

#[track_caller]
fn assert_refused<T>(came: Result<T, Error>, because: &str) {
    match came {
        Err(refused @ Error::Refused { .. }) => {
            assert!(refused.to_string().contains(because), "{refused}");
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was run"),
    }
}

#[track_caller]
fn assert_unanswered<T: std::fmt::Debug>(came: Result<T, Error>) {
    assert!(matches!(came, Err(Error::Unanswered { .. })), "{came:?}");
}

async fn scene() -> (Server, Locks, Guard) {
    let server = server();
    let locks = locks_with(&server, patient());
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    (server, locks, guard)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_writes_and_reads_and_gets_the_replies_of_the_commands() {
    let (server, _locks, guard) = scene().await;
    run::<()>(&guard, "SET page news").await.unwrap();
    assert_eq!(run::<String>(&guard, "GET page").await.unwrap(), "news");
    assert_eq!(run::<Option<String>>(&guard, "GET nothing").await.unwrap(), None);
    assert_eq!(run::<u64>(&guard, "INCRBY visits 17").await.unwrap(), 17);
    assert_eq!(run::<Value>(&guard, "MGET page nothing").await.unwrap(), {
        Value::Array(vec![bulk("news"), Value::Nil])
    });
    let large = [b"\0\r\n".repeat(1 << 20), vec![255]].concat();
    let bytes = redis::cmd("SET").arg(b"\0k\r\n").arg(&large).take();
    soon(guard.run_command::<()>(&bytes)).await.unwrap();
    let read = redis::cmd("GET").arg(b"\0k\r\n").take();
    assert!(soon(guard.run_command::<Vec<u8>>(&read)).await.unwrap() == large);
    // What would wait comes back at once.
    assert_eq!(run::<Value>(&guard, "BLPOP nothing 0").await.unwrap(), Value::Nil);
    assert_eq!(asked(&server), 8);
    assert_eq!(guard.release().await.unwrap(), Released::InTime);
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_of_either_protocol_are_decoded() {
    if lacks((7, 0), "replies to modules in RESP3") {
        return;
    }
    let server = server();
    for protocol in ["resp2", "resp3"] {
        let url = format!("redis://127.0.0.1:{}?protocol={protocol}", server.port());
        let client = redis::Client::open(url).unwrap();
        let locks = Locks::with_settings(client, patient()).unwrap();
        let guard = locks.lock("printer").ttl(LONG).await.unwrap();
        run::<()>(&guard, "HSET map name value").await.unwrap();
        let map = run::<HashMap<String, String>>(&guard, "HGETALL map").await.unwrap();
        assert_eq!(map, HashMap::from([("name".to_owned(), "value".to_owned())]));
        run::<()>(&guard, "SADD set a b").await.unwrap();
        let set = run::<HashSet<String>>(&guard, "SMEMBERS set").await.unwrap();
        assert_eq!(set, HashSet::from(["a".to_owned(), "b".to_owned()]));
        run::<()>(&guard, "ZADD zset 1.5 member").await.unwrap();
        let score = run::<f64>(&guard, "ZSCORE zset member").await.unwrap();
        assert!((score - 1.5).abs() < f64::EPSILON);
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_lock_is_taken_runs_nothing_and_is_lost_at_once() {
    for taken in ["DEL printer", "SET printer somebody-else"] {
        let (server, _locks, guard) = scene().await;
        let over = guard.cancellation();
        server.cmd(taken);
        assert_eq!(guard.loss(), None, "nobody has told it");
        assert_not_run(run::<()>(&guard, "SET page news").await, Loss::Taken);
        assert_eq!(held(&server, "page"), None);
        // Renewals would tell after twenty seconds.
        assert_eq!(timeout(millis(5_000), guard.lost()).await, Ok(Loss::Taken));
        timeout(millis(5_000), over.cancelled()).await.unwrap();
        // From now on nobody is asked.
        assert_not_run(run::<()>(&guard, "SET page news").await, Loss::Taken);
        assert_eq!(asked(&server), 1);
        assert_eq!(guard.release().await.unwrap(), Released::Late);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_is_known_to_be_lost_asks_nobody() {
    let (server, locks, closed) = scene().await;
    let over = locks.lock("scanner").ttl(millis(100)).renew(Renew::Never).await.unwrap();
    assert_eq!(soon(over.lost()).await, Loss::Expired);
    assert_not_run(run::<()>(&over, "SET page news").await, Loss::Expired);
    assert!(locks.close(LONG).await.is_empty());
    let came = run::<()>(&closed, "SET page news").await;
    assert!(matches!(came, Err(Error::Closed)), "{came:?}");
    assert_eq!((asked(&server), held(&server, "page")), (0, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_says_of_a_command_is_told_in_its_words_and_the_lock_is_held() {
    let (server, locks, guard) = scene().await;
    run::<()>(&guard, "SET page news").await.unwrap();
    let before = server.client().info_number("stats", "total_connections_received");
    for (line, error) in [
        ("LPUSH page x", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("NOSUCH page", "ERR unknown command to guard"),
        ("GET", "ERR wrong number of arguments for the command to guard"),
        ("MULTI", "ERR LOCK.GUARD does not run commands of transactions, use it inside MULTI"),
        ("INCR page", "ERR value is not an integer or out of range"),
    ] {
        assert_refused(run::<()>(&guard, line).await, error);
    }
    assert_refused(soon(guard.run_command::<()>(&Cmd::new())).await, "ERR");
    // None of that is taken for a server without the module, or for the end of a connection.
    assert_eq!(run::<String>(&guard, "GET page").await.unwrap(), "news");
    assert_eq!(locks.info("printer").await.unwrap().unwrap().waiters, Some(0));
    let after = server.client().info_number("stats", "total_connections_received");
    // Each look at the number is one.
    assert_eq!((after - before, guard.loss()), (1, None));
    let cursor = redis::cmd("SCAN").cursor_arg(0).take();
    let refused = soon(guard.run_command::<()>(&cursor)).await.unwrap_err();
    assert!(matches!(&refused, Error::Setting { setting, .. } if setting == "command"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_of_another_type_says_that_the_command_was_run() {
    let (server, _locks, guard) = scene().await;
    let came = run::<u64>(&guard, "SET page news").await.unwrap_err();
    assert!(matches!(came, Error::UnexpectedReply { .. }), "{came:?}");
    assert_eq!((held(&server, "page").as_deref(), guard.loss()), (Some("news"), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_cannot_guard_is_told_why_and_nothing_is_run() {
    let plain = without_module().start();
    let guard = locks_with(&plain, patient()).lock("printer").ttl(LONG).await.unwrap();
    assert_refused(run::<()>(&guard, "SET page news").await, "unknown command");
    assert_eq!((held(&plain, "page"), guard.release().await.unwrap()), (None, Released::InTime));
    let server = server();
    server.cmd("ACL SETUSER worker on >secret ~* &* +@all -lock.guard");
    let url = format!("redis://worker:secret@127.0.0.1:{}", server.port());
    let locks = Locks::new(redis::Client::open(url).unwrap());
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    let refused = run::<()>(&guard, "SET page news").await;
    assert!(
        matches!(&refused, Err(Error::Refused { source }) if source.code() == Some("NOPERM")),
        "{refused:?}"
    );
    let servers: Vec<_> = (0..3).map(|_| with_module().start()).collect();
    let guard = soon(quorum(&servers).lock("printer").ttl(LONG)).await.unwrap();
    let refused = run::<()>(&guard, "SET page news").await.unwrap_err();
    assert!(matches!(&refused, Error::Setting { setting, .. } if setting == "server"));
    // On each server alone its hold is one as any other, and most of them are to decide.
    for server in &servers {
        let fence = guard.fence().to_string();
        let words = ["LOCK.GUARD", "printer", guard.owner(), &fence, "INCR", "visits"];
        assert_eq!(server.cmd(words), Value::Int(1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_leaders_guard_each_by_their_own_hold() {
    let (server, locks, _guard) = scene().await;
    let (one, two) = (locks.read("prices").ttl(LONG), locks.read("prices").ttl(LONG));
    let (one, two) = (one.await.unwrap(), two.await.unwrap());
    server.cmd(["LOCK.RELEASE", "prices", one.owner()]);
    assert_not_run(run::<()>(&one, "INCR visits").await, Loss::Taken);
    assert_eq!(run::<u64>(&two, "INCR visits").await.unwrap(), 1);
    assert_eq!((one.loss(), two.loss()), (Some(Loss::Taken), None));
    let election = |candidate| locks.election("scheduler", candidate);
    let first = election("anna").campaign().await.unwrap();
    // Somebody has forced another election.
    server.cmd("DEL scheduler");
    let second = soon(election("ben").campaign()).await.unwrap();
    assert_not_run(run::<()>(&first, "INCR visits").await, Loss::Taken);
    assert_eq!(run::<u64>(&second, "INCR visits").await.unwrap(), 2);
    let all = locks.all(["a", "b"]).ttl(LONG).await.unwrap();
    assert_eq!(run::<u64>(&all, "INCR visits").await.unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_write_behind_one_fence() {
    let (_server, _locks, guard) = scene().await;
    let guard = Arc::new(guard);
    let task = |_| {
        let guard = Arc::clone(&guard);
        tokio::spawn(async move { run::<u64>(&guard, "INCR visits").await.unwrap() })
    };
    let mut seen = HashSet::new();
    for task in (0..200).map(task).collect::<Vec<_>>() {
        assert!(seen.insert(soon(task).await.unwrap()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_answered_is_not_sent_again() {
    for way in [Way::FromServer, Way::ToServer] {
        let server = server();
        let proxy = Proxy::to(server.port());
        let locks = behind(&proxy, impatient());
        let guard = locks.lock("printer").ttl(LONG).await.unwrap();
        let was_run = matches!(way, Way::FromServer);
        proxy.cut_one_way(way);
        assert_unanswered(run::<u64>(&guard, "INCR visits").await);
        proxy.heal();
        assert_eq!(guard.loss(), None, "nobody has said so");
        let expected = if was_run { 2 } else { 1 };
        assert_eq!(run_or_again::<u64>(&guard, "INCR visits").await.unwrap(), expected);
        assert_eq!(asked(&server), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_late_is_run_while_the_lock_is_held_and_not_once_it_is_released() {
    for is_released in [false, true] {
        let server = server();
        let proxy = Proxy::to(server.port());
        let locks = behind(&proxy, impatient());
        let guard = locks.lock("printer").ttl(LONG).await.unwrap();
        proxy.hold();
        assert_unanswered(run::<u64>(&guard, "INCR visits").await);
        assert_eq!(asked(&server), 0, "it is on its way");
        let mut guard = Some(guard);
        if is_released {
            assert_eq!(guard.take().unwrap().release().await.unwrap(), Released::InTime);
        }
        proxy.deliver();
        let was_asked = || if asked(&server) == 1 { Ok(()) } else { Err(()) };
        eventually("it has arrived", was_asked).await;
        assert_eq!(visits(&server).is_some(), !is_released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_stops_waiting_for_the_answer_has_it_run_once_at_the_most() {
    let server = server();
    let proxy = Proxy::to(server.port());
    let guard = behind(&proxy, patient()).lock("printer").ttl(LONG).await.unwrap();
    proxy.hold();
    assert!(timeout(millis(50), run::<u64>(&guard, "INCR visits")).await.is_err());
    proxy.deliver();
    // Behind it, on the same connection.
    assert_eq!(run::<u64>(&guard, "INCR visits").await.unwrap(), 2);
    assert_eq!(asked(&server), 2);
    assert_eq!(guard.release().await.unwrap(), Released::InTime);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_after_the_lease_is_heard_and_says_that_nothing_was_run() {
    let server = server();
    let proxy = Proxy::to(server.port());
    let locks = behind(&proxy, patient());
    let guard = locks.lock("printer").ttl(millis(500)).renew(Renew::Never).await.unwrap();
    proxy.hold();
    let incr = command("INCR visits");
    let mut writing = pin!(guard.run_command::<u64>(&incr));
    let lost = async {
        tokio::select! {
            came = &mut writing => panic!("nobody can have answered: {came:?}"),
            loss = guard.lost() => loss,
        }
    };
    assert_eq!(soon(lost).await, Loss::Expired);
    eventually_free(&server, "printer").await;
    proxy.deliver();
    assert_not_run(soon(writing).await, Loss::Expired);
    assert_eq!((asked(&server), visits(&server)), (1, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_has_ended_costs_one_command_at_the_most() {
    let (server, _locks, guard) = scene().await;
    let (mut answered, mut unanswered) = (0_u64, 0_u64);
    for _ in 0..20 {
        server.cmd("CLIENT KILL TYPE normal SKIPME yes");
        match run::<u64>(&guard, "INCR visits").await {
            Ok(_) => answered += 1,
            Err(Error::Unanswered { .. }) => {
                unanswered += 1;
                run::<u64>(&guard, "INCR visits").await.unwrap();
                answered += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    let visits: u64 = visits(&server).unwrap().parse().unwrap();
    assert!((answered..=answered + unanswered).contains(&visits), "{visits} of {answered}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_was_run_where_no_server_can_be_reached() {
    let mut server = server();
    let locks = locks_with(&server, Settings { retry_for: millis(500), ..impatient() });
    let (long, short) = (locks.lock("printer").ttl(LONG), locks.lock("scanner").ttl(millis(300)));
    let (long, short) = (long.await.unwrap(), short.await.unwrap());
    server.kill();
    let begun = Instant::now();
    let came = run_or_again::<u64>(&long, "INCR visits").await;
    assert!(matches!(came, Err(Error::Unreachable { .. })), "{came:?}");
    assert!(begun.elapsed() < millis(5_000), "{:?}", begun.elapsed());
    assert_eq!(soon(short.lost()).await, Loss::Expired);
    assert_not_run(run::<u64>(&short, "INCR visits").await, Loss::Expired);
    // It has forgotten the lock.
    server.start_again();
    assert_not_run(run_or_again::<u64>(&long, "INCR visits").await, Loss::Taken);
    assert_eq!(visits(&server), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_it_is_run_where_the_lock_is_and_follows_its_slot() {
    let cluster = Cluster::of(2, 0);
    let locks = cluster_locks(&cluster, patient());
    let slots = [cluster.slot_of(0), cluster.slot_of(1)];
    let names = slots.each_ref().map(|slot| slot.key("lock"));
    let guard = locks.lock(&names[0]).ttl(LONG).await.unwrap();
    let incr = format!("INCR {}", slots[0].key("visits"));
    assert_eq!(run::<u64>(&guard, &incr).await.unwrap(), 1);
    let elsewhere = format!("INCR {}", slots[1].key("visits"));
    assert_refused(run::<u64>(&guard, &elsewhere).await, "CROSSSLOT");
    let slot_move = SlotMove { slot: slots[0].number, from: 0, to: 1 };
    slot_move.by_hand(&cluster);
    assert_eq!(run::<u64>(&guard, &incr).await.unwrap(), 2);
    assert_eq!(held(cluster.node(1), &slots[0].key("visits")).as_deref(), Some("2"));
    // The connection to the node ends, and the redis crate does not repeat it.
    cluster.node(1).cmd("CLIENT KILL TYPE normal SKIPME yes");
    let came = run_or_again::<u64>(&guard, &incr).await.unwrap();
    assert!((3..=4).contains(&came), "{came}");
    assert_eq!(guard.release().await.unwrap(), Released::InTime);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_run_at_the_next_primary() {
    let mut sentinels = Sentinels::start();
    let locks = sentinel_locks(&sentinels, patient());
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    assert_eq!(run::<u64>(&guard, "INCR visits").await.unwrap(), 1);
    for replica in [1, 2] {
        wait_until_in_sync(sentinels.server(0), sentinels.server(replica));
    }
    sentinels.server_mut(0).kill();
    let primary = sentinels.wait_for_another_primary_than(0);
    assert_eq!(run_or_again::<u64>(&guard, "INCR visits").await.unwrap(), 2);
    assert_eq!(visits(sentinels.server(primary)).as_deref(), Some("2"));
}

/// The former primary is a replica by now, and answers on the connection that there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_become_a_replica_is_not_asked_again_on_the_same_connection() {
    let (server, other) = start_pair(with_module(), with_module());
    let locks = Locks::with_settings(client(server.port()), impatient()).unwrap();
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    wait_until_in_sync(&server, &other);
    other.cmd("REPLICAOF NO ONE");
    server.cmd(["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    let before = server.client().info_number("stats", "total_connections_received");
    assert_refused(run::<u64>(&guard, "INCR visits").await, "READONLY");
    let after = server.client().info_number("stats", "total_connections_received");
    assert!(after - before > 2, "sentinels would have named another one by then");
    assert_eq!(visits(&other), None);
}
