//! Commands that the server runs only while the lock is held, where connections and servers fail: each is run once at the most.

use crate::guarding::{PATIENT, asked, assert_not_run, command, run};
use crate::scene::{LONG, eventually, held, locks, locks_with, millis, server, soon, url};
use crate::scripted_sentinel::ScriptedSentinel;
use leasehold_client::{Error, Guard, Locks, Loss, Released, Settings, Target};
use redis::Value;
use std::pin::pin;
use std::time::{Duration, Instant};
use testkit::{Cluster, Proxy, Sentinels, Server, SlotMove, Way, start_pair, wait_until_in_sync};
use tokio::time::{sleep, timeout};

/// How long a client waits for answers that do not come.
const RESPONSE: Duration = millis(1_000);

async fn behind(proxy: &Proxy, settings: Settings) -> Guard {
    let locks = Locks::connect_with(url(proxy.port()), settings).await.unwrap();
    locks.lock("printer").ttl(LONG).await.unwrap()
}

fn visits(server: &Server) -> Option<String> {
    held(server, "visits")
}

#[track_caller]
fn assert_unanswered<T: std::fmt::Debug>(came: Result<T, Error>) {
    let error = came.unwrap_err();
    assert!(matches!(error, Error::Unanswered { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.starts_with("nobody answered, and the command may have been run"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_run_and_not_answered_is_not_sent_again() {
    let server = server();
    let proxy = Proxy::to(server.port());
    let guard = behind(&proxy, Settings::default().response(RESPONSE)).await;
    proxy.cut_one_way(Way::FromServer);
    assert_unanswered(run::<u64>(&guard, "INCR visits").await);
    proxy.heal();
    assert_eq!(guard.loss(), None, "nobody has said so");
    assert_eq!(run::<u64>(&guard, "INCR visits").await.unwrap(), 2);
    assert_eq!(asked(&server), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_network_lost_is_not_sent_again_either() {
    let server = server();
    let proxy = Proxy::to(server.port());
    let guard = behind(&proxy, Settings::default().response(RESPONSE)).await;
    proxy.cut_one_way(Way::ToServer);
    assert_unanswered(run::<u64>(&guard, "INCR visits").await);
    proxy.heal();
    assert_eq!(run::<u64>(&guard, "INCR visits").await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_late_is_run_while_the_lock_is_held_and_not_once_it_is_released() {
    for is_released in [false, true] {
        let server = server();
        let proxy = Proxy::to(server.port());
        let guard = behind(&proxy, Settings::default().response(RESPONSE)).await;
        proxy.hold();
        assert_unanswered(run::<u64>(&guard, "INCR visits").await);
        assert_eq!(asked(&server), 0, "it is on its way");
        let mut guard = Some(guard);
        if is_released {
            assert_eq!(guard.take().unwrap().release().await.unwrap(), Released::Released);
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
    let guard = behind(&proxy, Settings::default().response(PATIENT)).await;
    proxy.hold();
    assert!(timeout(millis(50), run::<u64>(&guard, "INCR visits")).await.is_err());
    proxy.deliver();
    // Behind it, on the same connection.
    assert_eq!(run::<u64>(&guard, "INCR visits").await.unwrap(), 2);
    assert_eq!(asked(&server), 2);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_after_the_lease_is_heard_and_says_that_nothing_was_run() {
    let server = server();
    let proxy = Proxy::to(server.port());
    let settings = Settings::default().response(PATIENT);
    let locks = Locks::connect_with(url(proxy.port()), settings).await.unwrap();
    let guard = locks.lock("printer").fixed_ttl(millis(500)).await.unwrap();
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
    eventually("its lease is over on the server", || held(&server, "printer").map_or(Ok(()), Err))
        .await;
    assert!(
        timeout(millis(50), &mut writing).await.is_err(),
        "it may still be run, as far as is known"
    );
    proxy.deliver();
    assert_not_run(soon(writing).await, Loss::Expired);
    assert_eq!((asked(&server), visits(&server)), (1, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_has_ended_before_is_replaced_and_the_command_sent_on_the_next() {
    let server = server();
    let guard = locks(&server).await.lock("printer").ttl(LONG).await.unwrap();
    let (mut answered, mut unanswered) = (0_u64, 0_u64);
    for _ in 0..20 {
        // Whatever became of the connection before, there is one now.
        assert_eq!(run::<u64>(&guard, "EXISTS nothing").await.unwrap(), 0);
        server.cmd("CLIENT KILL TYPE normal");
        // Most often the client has seen the end by then; if not, it cannot know.
        sleep(millis(20)).await;
        match run::<u64>(&guard, "INCR visits").await {
            Ok(_) => answered += 1,
            Err(Error::Unanswered { .. }) => unanswered += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(answered > 0, "each was taken for sent");
    let visits: u64 = visits(&server).unwrap().parse().unwrap();
    assert!((answered..=answered + unanswered).contains(&visits), "{visits} of {answered}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_was_run_where_no_server_can_be_reached() {
    let mut server = server();
    let settings = Settings::default().within(millis(500)).response(RESPONSE);
    let locks = locks_with(&server, settings).await;
    let (long, short) = (locks.lock("printer").ttl(LONG), locks.lock("scanner").ttl(millis(300)));
    let (long, short) = (long.await.unwrap(), short.await.unwrap());
    server.kill();
    let begun = Instant::now();
    let mut came = run::<u64>(&long, "INCR visits").await;
    if matches!(came, Err(Error::Unanswered { .. })) {
        // It was on its way before the end of the connection was seen.
        came = run::<u64>(&long, "INCR visits").await;
    }
    assert!(matches!(came, Err(Error::Unreachable { .. })), "{came:?}");
    assert!(begun.elapsed() < millis(5_000), "{:?}", begun.elapsed());
    assert_eq!(soon(short.lost()).await, Loss::Expired);
    assert_not_run(run::<u64>(&short, "INCR visits").await, Loss::Expired);
    // It has forgotten the lock.
    server.start_again();
    assert_not_run(run::<u64>(&long, "INCR visits").await, Loss::Taken);
    assert_eq!(visits(&server), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_looks_for_a_server_gives_up_when_the_lock_is_lost() {
    let mut server = server();
    let locks = locks_with(&server, Settings::default().within(LONG)).await;
    let guard = locks.lock("printer").ttl(millis(600)).await.unwrap();
    server.kill();
    let mut came = run::<u64>(&guard, "INCR visits").await;
    if matches!(came, Err(Error::Unanswered { .. })) {
        came = run::<u64>(&guard, "INCR visits").await;
    }
    assert_not_run(came, Loss::Expired);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_after_the_end_of_the_lease_however_long_it_takes_to_connect() {
    let server = server();
    let proxy = Proxy::to(server.port());
    let locks = Locks::connect(url(proxy.port())).await.unwrap();
    let guard = locks.lock("printer").fixed_ttl(millis(1_000)).await.unwrap();
    server.cmd("CLIENT KILL TYPE normal");
    // One way takes as long as the rest of the lease, at the least.
    proxy.slow_all_but(proxy.connections(), millis(600));
    let begun = Instant::now();
    let mut came = run::<u64>(&guard, "INCR visits").await;
    if matches!(came, Err(Error::Unanswered { .. })) {
        came = run::<u64>(&guard, "INCR visits").await;
    }
    assert_not_run(came, Loss::Expired);
    assert!(begun.elapsed() < millis(5_000), "{:?}", begun.elapsed());
    assert_eq!(asked(&server), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_runs_it_once_at_the_most() {
    let mut server = server();
    let locks = locks_with(&server, Settings::default().response(RESPONSE)).await;
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    server.freeze();
    assert_unanswered(run::<u64>(&guard, "INCR visits").await);
    server.thaw();
    // The first was sent before.
    assert_eq!(run::<u64>(&guard, "INCR visits").await.unwrap(), 2);
}

fn moved(cluster: &Cluster) -> bool {
    let errors = |node: &Server| node.client().info_text("errorstats");
    cluster.nodes().iter().any(|node| errors(node).contains("errorstat_MOVED"))
}

async fn cluster_locks(cluster: &Cluster, settings: Settings) -> Locks {
    let target = Target::cluster([url(cluster.node(0).port())]);
    Locks::connect_with(target, settings).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_the_key_of_the_lock_says_where_and_the_data_are_in_its_slot() {
    let cluster = Cluster::of(3, 0);
    let locks = cluster_locks(&cluster, Settings::default().response(PATIENT)).await;
    for node in 0..3 {
        let slot = cluster.slot_of(node);
        let (name, data) = (slot.key("lock"), slot.key("visits"));
        let guard = locks.lock(&name).ttl(LONG).await.unwrap();
        assert_eq!(run::<u64>(&guard, &format!("INCR {data}")).await.unwrap(), 1);
        assert_eq!(held(cluster.node(node), &data).as_deref(), Some("1"));
        let elsewhere = cluster.slot_of((node + 1) % 3).key("visits");
        let came = run::<u64>(&guard, &format!("INCR {elsewhere}")).await;
        match came {
            Err(Error::Refused { reason }) => assert!(reason.starts_with("CROSSSLOT "), "{reason}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
    assert!(!moved(&cluster), "it went astray");
}

/// The lock goes first, so that for a while the data are where the lock is not any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_goes_along_when_the_slot_moves_and_is_run_once() {
    let cluster = Cluster::of(2, 0);
    let slot = cluster.slot_of(0);
    let (name, data) = (slot.key("lock"), slot.key("visits"));
    let locks = cluster_locks(&cluster, Settings::default().within(LONG).response(PATIENT)).await;
    let guard = locks.lock(&name).ttl(LONG).await.unwrap();
    let incr = format!("INCR {data}");
    assert_eq!(run::<u64>(&guard, &incr).await.unwrap(), 1);
    let slot_move = SlotMove { slot: slot.number, from: 0, to: 1 };
    slot_move.import(&cluster);
    slot_move.migrate(&cluster);
    let to = cluster.node(1).port().to_string();
    let moved = cluster.node(0).cmd(["MIGRATE", "127.0.0.1", &to, &name, "0", "10000"]);
    assert_eq!(moved, Value::Okay);
    // TRYAGAIN, as long as the keys are apart.
    {
        let line = command(&incr);
        let mut writing = pin!(guard.run_command::<u64>(&line));
        assert!(timeout(millis(500), &mut writing).await.is_err(), "they are apart");
        slot_move.move_keys(&cluster);
        // ASK, and MOVED later.
        assert_eq!(soon(writing).await.unwrap(), 2);
    }
    assert_eq!(run::<u64>(&guard, &incr).await.unwrap(), 3);
    slot_move.give(&cluster);
    assert_eq!(run::<u64>(&guard, &incr).await.unwrap(), 4);
    assert_eq!(held(cluster.node(1), &data).as_deref(), Some("4"));
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_waits_for_the_next_primary_and_is_run_there() {
    let mut sentinels = Sentinels::start();
    let urls = sentinels.ports().into_iter().map(url);
    let settings = Settings::default().ttl(LONG).within(LONG);
    let locks = Locks::connect_with(Target::sentinel(urls, "locks"), settings).await.unwrap();
    let guard = locks.lock("printer").await.unwrap();
    assert_eq!(run::<u64>(&guard, "INCR visits").await.unwrap(), 1);
    for replica in [1, 2] {
        wait_until_in_sync(sentinels.server(0), sentinels.server(replica));
    }
    sentinels.server_mut(0).kill();
    let mut came = timeout(LONG, run::<u64>(&guard, "INCR visits")).await.unwrap();
    if matches!(came, Err(Error::Unanswered { .. })) {
        came = timeout(LONG, run::<u64>(&guard, "INCR visits")).await.unwrap();
    }
    assert_eq!(came.unwrap(), 2);
    let primary = sentinels.wait_for_another_primary_than(0);
    assert_eq!(visits(sentinels.server(primary)).as_deref(), Some("2"));
}

/// The former primary is a replica by now, and answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_was_the_primary_sends_it_on() {
    let (former, next) = start_pair(Server::builder().tcp(), Server::builder().tcp());
    let sentinel = ScriptedSentinel::that_names(former.port());
    let target = Target::sentinel([url(sentinel.port())], "locks");
    let locks = Locks::connect_with(target, Settings::default()).await.unwrap();
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    wait_until_in_sync(&former, &next);
    next.cmd("REPLICAOF NO ONE");
    former.cmd(["REPLICAOF", "127.0.0.1", &next.port().to_string()]);
    sentinel.names(next.port());
    assert_eq!(run::<u64>(&guard, "INCR visits").await.unwrap(), 1);
    assert_eq!(visits(&next).as_deref(), Some("1"));
    assert_eq!(guard.loss(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_primary_that_has_never_heard_of_the_lock_runs_nothing() {
    let (former, next) = (server(), server());
    let sentinel = ScriptedSentinel::that_names(former.port());
    let target = Target::sentinel([url(sentinel.port())], "locks");
    let locks = Locks::connect_with(target, Settings::default()).await.unwrap();
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    sentinel.names(next.port());
    // The client looks again each second who is the primary.
    let refused = async {
        loop {
            match run::<u64>(&guard, "INCR visits").await {
                Ok(_) => sleep(millis(20)).await,
                came => return came,
            }
        }
    };
    assert_not_run(soon(refused).await, Loss::Taken);
    assert_eq!(visits(&next), None);
}
