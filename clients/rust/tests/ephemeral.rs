//! Holds that end with their connection.

use crate::scene::{
    LONG, WAYS, by, eventually, eventually_free, eventually_waiting, held, locks, locks_with,
    millis, server, soon, ttl_of, url, with_module, without_module,
};
use leasehold_client::{Dialect, Error, Guard, Locks, Loss, Options, Released, Settings, Target};
use redis::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::{Proxy, Sentinels, Server, bulk_text, figure, wait_until_in_sync};
use tokio::time::sleep;

/// Where a program of its own, which this file is too, finds the server.
const SERVER: &str = "LEASEHOLD_TEST_EPHEMERAL";

/// The connections of this purpose, by their ids.
fn connections(server: &Server, purpose: &str) -> Vec<String> {
    let list = bulk_text(&server.cmd(["CLIENT", "LIST"]));
    let those = list.lines().filter(|line| line.contains(&format!(" name=leasehold:{purpose} ")));
    let id =
        |line: &str| line.split(' ').find_map(|field| field.strip_prefix("id=")).map(str::to_owned);
    those.filter_map(id).collect()
}

fn kill(server: &Server, purpose: &str) {
    for id in connections(server, purpose) {
        assert_eq!(server.cmd(["CLIENT", "KILL", "ID", id.as_str()]), Value::Int(1));
    }
}

async fn eventually_connected_anew(server: &Server, before: &[String]) {
    eventually("there is another connection", || {
        let seen = connections(server, "requests");
        if seen.iter().any(|id| !before.contains(id)) { Ok(()) } else { Err(seen) }
    })
    .await;
}

async fn ephemeral(locks: &Locks, grace: Duration) -> Guard {
    soon(locks.lock("printer").ttl(LONG).ephemeral(grace)).await.unwrap()
}

/// A program that holds a lock until it is killed.
#[tokio::test]
async fn a_program_that_holds_a_lock() {
    let Ok(url) = std::env::var(SERVER) else { return };
    let locks = Locks::new(url).unwrap();
    let _guard = ephemeral(&locks, Duration::ZERO).await;
    println!("it is held");
    sleep(LONG).await;
}

fn program(server: &Server) -> Child {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["ephemeral::a_program_that_holds_a_lock", "--exact", "--nocapture"]);
    program.env(SERVER, url(server.port())).stdout(Stdio::piped());
    let mut program = program.spawn().unwrap();
    let lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line.contains("it is held")));
    program
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_program_is_killed_the_next_one_has_its_lock_at_once() {
    for way in WAYS {
        let server = server();
        let mut program = program(&server);
        let locks = locks_with(&server, by(way)).await;
        let next = tokio::spawn(locks.lock("printer").into_future());
        eventually_waiting(&server, "printer", 1).await;
        let killed = Instant::now();
        program.kill().unwrap();
        drop(soon(next).await.unwrap().unwrap());
        let took = killed.elapsed();
        assert!(program.wait().is_ok());
        figure(&format!(
            "client: the lock of a killed program goes on after {} us",
            took.as_micros()
        ));
        assert!(took < millis(500), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_waited_for_is_bound_too() {
    for way in WAYS {
        let server = server();
        let ours = locks(&server).await;
        let guard = ours.lock("printer").await.unwrap();
        let link = Proxy::to(server.port());
        let theirs = Locks::connect_with(url(link.port()), by(way)).await.unwrap();
        let waiting = theirs.lock("printer").ttl(LONG).ephemeral(millis(100));
        let waiting = tokio::spawn(waiting.into_future());
        eventually_waiting(&server, "printer", 1).await;
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        let guard = soon(waiting).await.unwrap().unwrap();
        // The connections that were for waiting have no part in it.
        kill(&server, "waiting");
        kill(&server, "grants");
        sleep(millis(300)).await;
        assert_eq!(guard.loss(), None);
        assert!(held(&server, "printer").unwrap().ends_with(guard.owner()));
        drop(link);
        eventually_free(&server, "printer").await;
        assert_eq!(soon(guard.lost()).await, Loss::Expired);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_outlives_its_connections_if_the_client_comes_back_within_the_grace() {
    let server = server();
    let link = Proxy::to(server.port());
    let locks = Locks::new(url(link.port())).unwrap();
    let grace = millis(2_000);
    let guard = ephemeral(&locks, grace).await;
    for _ in 0..3 {
        let before = connections(&server, "requests");
        kill(&server, "requests");
        eventually_connected_anew(&server, &before).await;
        // As long as before: also that is undone.
        eventually("it is bound again", || match guard.valid_for() {
            left if left > LONG / 2 => Ok(()),
            left => Err(left),
        })
        .await;
    }
    sleep(grace + millis(200)).await;
    assert_eq!(guard.loss(), None);
    let value = held(&server, "printer").unwrap();
    assert!(value.contains(&guard.fence().to_string()) && value.ends_with(guard.owner()));
    assert!(ttl_of(&server, "printer") > 30_000);
    // It is bound to the last connection.
    drop(link);
    let gone = Instant::now();
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
    eventually_free(&server, "printer").await;
    assert!((1_500..6_000).contains(&gone.elapsed().as_millis()), "{:?}", gone.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_is_lost_and_says_so_if_the_grace_is_shorter_than_it_takes_to_come_back() {
    for grace in [Duration::ZERO, millis(300)] {
        let server = server();
        let link = Proxy::to(server.port());
        let ours = Locks::new(url(link.port())).unwrap();
        let guard = ephemeral(&ours, grace).await;
        let next = locks(&server).await;
        let next = tokio::spawn(next.lock("printer").into_future());
        eventually_waiting(&server, "printer", 1).await;
        let cut = Instant::now();
        // It connects, and gets no answer for half a second.
        link.slow_all_but(1, millis(250));
        kill(&server, "requests");
        assert_eq!(soon(guard.lost()).await, Loss::Expired);
        assert!(cut.elapsed() < grace + millis(300), "{:?}", cut.elapsed());
        assert_eq!(guard.valid_for(), Duration::ZERO);
        let next = soon(next).await.unwrap().unwrap();
        assert!(next.fence() > guard.fence());
        assert_eq!(guard.release().await.unwrap(), Released::Late);
        assert_eq!(next.release().await.unwrap(), Released::Released);
    }
}

/// The server closes the connection, and the client does not hear of that before the lock is somebody else's, or nobody's.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_lost_meanwhile_is_not_taken_once_more() {
    for (taken, owner) in [(true, None), (false, None), (false, Some("worker-7"))] {
        let server = server();
        let link = Proxy::to(server.port());
        let settings = Settings::default().response(millis(200));
        let ours = Locks::with_settings(url(link.port()), settings).unwrap();
        let request = ours.lock("printer").ttl(LONG).ephemeral(LONG);
        let guard = match owner {
            Some(owner) => request.owner(owner).await.unwrap(),
            None => request.await.unwrap(),
        };
        server.cmd("DEL printer");
        let other = locks(&server).await;
        let other = if taken { other.try_lock("printer").await.unwrap() } else { None };
        kill(&server, "requests");
        assert_eq!(soon(guard.lost()).await, Loss::Taken);
        match other {
            Some(other) => {
                assert!(held(&server, "printer").unwrap().ends_with(other.owner()));
                assert_eq!(other.release().await.unwrap(), Released::Released);
            }
            None => eventually_free(&server, "printer").await,
        }
        assert_eq!(guard.release().await.unwrap(), Released::Late);
        assert_eq!(soon(ours.close(LONG)).await, [""; 0]);
    }
}

/// A lease that is not renewed ends when it would have.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_no_longer_for_having_been_bound_again() {
    let server = server();
    let locks = locks(&server).await;
    let begun = Instant::now();
    let request = locks.lock("printer").fixed_ttl(millis(3_000)).ephemeral(millis(1_000));
    let guard = request.await.unwrap();
    sleep(millis(1_000)).await;
    let before = connections(&server, "requests");
    kill(&server, "requests");
    eventually_connected_anew(&server, &before).await;
    eventually("it is bound again", || match guard.valid_for() {
        left if left > millis(1_100) => Ok(()),
        left => Err(left),
    })
    .await;
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
    assert!((2_900..3_800).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    eventually_free(&server, "printer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_replicas_have_heard_of_is_bound_to_the_connection_for_requests() {
    let primary = server();
    let _replica = with_module().replica_of(&primary).start();
    let locks = locks(&primary).await;
    let request = || locks.lock("printer").replicas(1, LONG / 10).ephemeral(Duration::ZERO);
    let guard = eventually_granted(request).await;
    kill(&primary, "waiting");
    sleep(millis(200)).await;
    assert!(held(&primary, "printer").unwrap().ends_with(guard.owner()));
    kill(&primary, "requests");
    eventually_free(&primary, "printer").await;
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
}

async fn eventually_granted<R: IntoFuture<Output = Result<Guard, Error>>>(
    request: impl Fn() -> R,
) -> Guard {
    loop {
        match soon(request()).await {
            Ok(guard) => return guard,
            Err(Error::TooFewReplicas { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_module_refuses_and_nothing_is_written() {
    let server = without_module().start();
    let locks = locks(&server).await;
    assert_eq!(locks.dialect(), Dialect::Plain);
    for wait in [Duration::ZERO, LONG] {
        let asked = locks.lock("printer").wait(wait).ephemeral(millis(1_000)).into_future();
        let error = soon(asked).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert!(error.to_string().contains("needs the module"), "{error}");
    }
    assert_eq!(server.cmd("KEYS *"), Value::Array(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_contradicts_itself_is_refused() {
    let server = server();
    let locks = locks(&server).await;
    let least = locks.lock("printer").ephemeral(LONG).hold_at_least(millis(10)).await.unwrap_err();
    assert!(least.to_string().starts_with("ephemeral: "), "{least}");
    let longest = locks.lock("printer").ephemeral(Duration::MAX).await.unwrap_err();
    assert!(longest.to_string().starts_with("ephemeral: "), "{longest}");
    let outer = locks.lock("printer").owner("worker-7").ephemeral(LONG).await.unwrap();
    let other = locks.lock("printer").owner("worker-7").await.unwrap_err();
    assert!(other.to_string().starts_with("ephemeral: "), "{other}");
    let inner = locks.lock("printer").owner("worker-7").ephemeral(LONG).await.unwrap();
    assert_eq!(inner.release().await.unwrap(), Released::StillHeld);
    assert_eq!(outer.release().await.unwrap(), Released::Released);
}

#[test]
fn programs_that_have_no_runtime_hold_such_locks_too() {
    let server = server();
    let locks = leasehold_client::blocking::Locks::new(url(server.port())).unwrap();
    let options = Options::new().ttl(LONG).ephemeral(millis(1_000));
    let guard = locks.lock("printer", options).unwrap();
    kill(&server, "requests");
    std::thread::sleep(millis(1_300));
    assert!(guard.loss().is_none() && held(&server, "printer").unwrap().ends_with(guard.owner()));
    drop(locks);
    // The thread ends with the last guard, and the connection with it.
    assert!(guard.keep() > Duration::ZERO);
    testkit::eventually("it is free", || held(&server, "printer").map_or(Ok(()), Err));
}

/// A binding is known to one process alone, and nobody is told of it at a failover.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_is_bound_at_the_next_primary() {
    let mut sentinels = Sentinels::start();
    let urls = sentinels.ports().into_iter().map(url);
    let locks = Locks::connect(Target::sentinel(urls, "locks")).await.unwrap();
    let guard = ephemeral(&locks, LONG / 2).await;
    for replica in [1, 2] {
        wait_until_in_sync(sentinels.server(0), sentinels.server(replica));
    }
    sentinels.server_mut(0).kill();
    let primary = sentinels.wait_for_another_primary_than(0);
    let primary = sentinels.server(primary);
    let bindings = || primary.client().info_field("leasehold", "leasehold_bindings");
    eventually("it is bound", || match bindings() {
        Some(count) if count == "1" => Ok(()),
        seen => Err(seen),
    })
    .await;
    eventually("it counts on the whole lease", || match guard.valid_for() {
        left if left > LONG / 2 => Ok(()),
        left => Err(left),
    })
    .await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert_eq!(bindings().as_deref(), Some("0"));
}
