//! Commands that the server runs only while the lock is held.

use crate::scene::{
    LONG, held, locks_with, millis, quorum, server, soon, ttl_of, url, with_module, without_module,
};
use leasehold_client::{Error, Guard, Locks, Loss, Options, Released, Settings, blocking};
use redis::{Cmd, FromRedisValue, Value};
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use testkit::{Server, bulk, bulk_text, lacks};
use tokio::time::{sleep, timeout};

/// How long clients wait for answers here, where they are to come: longer than a busy machine takes.
pub(crate) const PATIENT: Duration = millis(15_000);

/// The words of a command, separated by spaces.
pub(crate) fn command(line: &str) -> Cmd {
    let mut words = line.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    command.arg(words.collect::<Vec<_>>()).take()
}

pub(crate) async fn run<T: FromRedisValue>(guard: &Guard, line: &str) -> Result<T, Error> {
    soon(guard.run_command(&command(line))).await
}

/// How often the server was sent a guarded command.
pub(crate) fn asked(server: &Server) -> u64 {
    server.client().executed().get("lock.guard").copied().unwrap_or_default()
}

#[track_caller]
pub(crate) fn assert_not_run<T>(came: Result<T, Error>, why: Loss) {
    match came {
        Err(Error::NotRun { loss, .. }) => assert_eq!(loss, why),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was run"),
    }
}

#[track_caller]
fn assert_refused<T>(came: Result<T, Error>, because: &str) {
    match came {
        Err(Error::Refused { reason }) => assert_eq!(reason, because),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was run"),
    }
}

/// A client that waits for answers for as long as a busy machine may take.
async fn locks(server: &Server) -> Locks {
    locks_with(server, Settings::default().response(PATIENT)).await
}

async fn scene() -> (Server, Locks, Guard) {
    let server = server();
    let locks = locks(&server).await;
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
    assert_eq!(held(&server, "visits").as_deref(), Some("17"));
    assert_eq!(run::<Value>(&guard, "MGET page nothing").await.unwrap(), {
        Value::Array(vec![bulk("news"), Value::Nil])
    });
    let bytes = redis::cmd("SET").arg(b"\0k\r\n").arg(&[0_u8, 255, 13, 10]).take();
    guard.run_command::<()>(&bytes).await.unwrap();
    assert_eq!(server.cmd([&b"GET"[..], b"\0k\r\n"]), Value::BulkString(vec![0, 255, 13, 10]));
    assert_eq!(asked(&server), 6);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_of_either_protocol_are_decoded() {
    if lacks((7, 0), "replies to modules in RESP3") {
        return;
    }
    let server = server();
    for protocol in ["resp2", "resp3"] {
        let address = format!("{}?protocol={protocol}", url(server.port()));
        let settings = Settings::default().response(PATIENT);
        let locks = Locks::connect_with(address, settings).await.unwrap();
        let guard = locks.lock("printer").ttl(LONG).await.unwrap();
        run::<()>(&guard, "HSET map name value").await.unwrap();
        let map = run::<HashMap<String, String>>(&guard, "HGETALL map").await.unwrap();
        assert_eq!(map, HashMap::from([("name".to_owned(), "value".to_owned())]));
        run::<()>(&guard, "SADD set a b").await.unwrap();
        let set = run::<HashSet<String>>(&guard, "SMEMBERS set").await.unwrap();
        assert_eq!(set, HashSet::from(["a".to_owned(), "b".to_owned()]));
        run::<()>(&guard, "ZADD zset 1.5 member").await.unwrap();
        let score = run::<Value>(&guard, "ZSCORE zset member").await.unwrap();
        let is_double = matches!(score, Value::Double(1.5));
        assert_eq!(is_double, protocol == "resp3", "{score:?}");
        assert!((f64::from_redis_value(score).unwrap() - 1.5).abs() < f64::EPSILON);
        let whole = run::<Value>(&guard, "HGETALL map").await.unwrap();
        assert_eq!(matches!(whole, Value::Map(_)), protocol == "resp3", "{whole:?}");
        assert!(guard.release().await.unwrap().in_time());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_words_and_large_replies_come_whole() {
    let (_server, _locks, guard) = scene().await;
    let large = vec![b'x'; 16 << 20];
    let write = redis::cmd("SET").arg("page").arg(&large).take();
    soon(guard.run_command::<()>(&write)).await.unwrap();
    assert!(run::<Vec<u8>>(&guard, "GET page").await.unwrap() == large);
    assert_eq!(guard.loss(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_lock_is_taken_runs_nothing_and_is_lost_at_once() {
    for taken in ["DEL printer", "SET printer somebody-else"] {
        let (server, _locks, guard) = scene().await;
        let over = guard.cancellation();
        server.cmd(taken);
        assert_eq!(guard.loss(), None, "nobody has told it");
        let came = run::<()>(&guard, "SET page news").await;
        let said = came.as_ref().unwrap_err().to_string();
        assert!(said.starts_with("nothing was run because the lock printer was lost"), "{said}");
        assert_not_run(came, Loss::Taken);
        assert_eq!(held(&server, "page"), None);
        // Renewals would tell after twenty seconds.
        assert_eq!(timeout(millis(5_000), guard.lost()).await, Ok(Loss::Taken));
        timeout(millis(5_000), over.cancelled()).await.unwrap();
        // From now on nobody is asked.
        assert_eq!(asked(&server), 1);
        assert_not_run(run::<()>(&guard, "SET page news").await, Loss::Taken);
        assert_eq!(asked(&server), 1);
        assert_eq!(guard.release().await.unwrap(), Released::Late);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_is_known_to_be_lost_asks_nobody() {
    let (server, locks, closed) = scene().await;
    let over = locks.lock("scanner").fixed_ttl(millis(100)).await.unwrap();
    let late = locks.lock("modem").fixed_ttl(millis(100)).await.unwrap();
    assert_eq!(soon(over.lost()).await, Loss::Expired);
    assert_not_run(run::<()>(&over, "SET page news").await, Loss::Expired);
    // Nobody has looked at this one.
    while !late.valid_for().is_zero() {
        sleep(millis(10)).await;
    }
    assert_not_run(run::<()>(&late, "SET page news").await, Loss::Expired);
    assert!(locks.close(LONG).await.is_empty());
    assert_not_run(run::<()>(&closed, "SET page news").await, Loss::Closed);
    assert_eq!((asked(&server), held(&server, "page")), (0, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_says_of_a_command_is_told_in_its_words_and_the_lock_is_held() {
    let (server, locks, guard) = scene().await;
    run::<()>(&guard, "SET page news").await.unwrap();
    let dialect = locks.dialect();
    let connections = || bulk_text(&server.cmd("CLIENT LIST")).matches(":requests ").count();
    assert_eq!(connections(), 1);
    let connected =
        |server: &Server| server.client().info_number("stats", "total_connections_received");
    let before = connected(&server);
    for (line, error) in [
        ("LPUSH page x", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("NOSUCH page", "ERR unknown command to guard"),
        ("GET", "ERR wrong number of arguments for the command to guard"),
        ("MULTI", "ERR LOCK.GUARD does not run commands of transactions, use it inside MULTI"),
        ("INCR page", "ERR value is not an integer or out of range"),
    ] {
        assert_refused(run::<()>(&guard, line).await, error);
    }
    let nothing = soon(guard.run_command::<()>(&Cmd::new())).await;
    assert!(matches!(nothing, Err(Error::Refused { .. })), "{nothing:?}");
    // None of that is taken for an older module, or for the end of a connection.
    assert_eq!((locks.dialect(), guard.loss()), (dialect, None));
    assert_eq!(run::<String>(&guard, "GET page").await.unwrap(), "news");
    // Each look at it is one.
    assert_eq!((connected(&server) - before, connections()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_of_another_type_says_that_the_command_was_run() {
    let (server, _locks, guard) = scene().await;
    let came = run::<u64>(&guard, "SET page news").await.unwrap_err();
    assert!(matches!(came, Error::UnexpectedReply { .. }), "{came:?}");
    assert!(came.to_string().starts_with("the command was run"), "{came}");
    assert_eq!(held(&server, "page").as_deref(), Some("news"));
    assert_eq!(guard.loss(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_guard_is_told_so() {
    let server = server();
    server.cmd("ACL SETUSER worker on >secret ~* &* +@all -lock.guard");
    let address = format!("redis://worker:secret@127.0.0.1:{}", server.port());
    let guard = Locks::connect(address).await.unwrap().lock("printer").ttl(LONG).await.unwrap();
    match run::<()>(&guard, "SET page news").await {
        Err(Error::Refused { reason }) => assert!(reason.starts_with("NOPERM "), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(guard.loss(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_module_runs_nothing_and_the_error_says_what_it_needs() {
    let server = without_module().start();
    let guard = locks(&server).await.lock("printer").ttl(LONG).await.unwrap();
    let needs = "a guarded command needs the module, which this server does not have";
    assert_refused(run::<()>(&guard, "SET page news").await, needs);
    assert_eq!(held(&server, "page"), None);
    let errors = server.client().info_text("errorstats");
    assert!(!errors.contains("errorstat_"), "it was asked: {errors}");
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// Before a server, so that its module seems not to have the command. Connections end with their clients.
fn older_module(server: &Server) -> u16 {
    let (listener, to) = (TcpListener::bind(("127.0.0.1", 0)).unwrap(), server.port());
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) =
                (client.unwrap(), TcpStream::connect(("127.0.0.1", to)).unwrap());
            let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || pass(client, server, "LOCK.GUARD", "LOCK.GARDE"));
            thread::spawn(move || pass(back.0, back.1, "LOCK.GARDE", "LOCK.GUARD"));
        }
    });
    port
}

/// The words come whole, because they are short.
fn pass(mut from: TcpStream, mut to: TcpStream, word: &str, other: &str) {
    let mut bytes = [0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let mut passed = bytes[..count].to_vec();
        let found = passed.windows(word.len()).position(|it| it == word.as_bytes());
        if let Some(at) = found {
            passed[at..at + word.len()].copy_from_slice(other.as_bytes());
        }
        if to.write_all(&passed).is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_module_runs_nothing_and_the_error_says_what_it_needs() {
    let server = server();
    let locks = Locks::connect(url(older_module(&server))).await.unwrap();
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    let (dialect, before) = (locks.dialect(), guard.fence());
    let needs = "a guarded command needs a newer module than this server has";
    for _ in 0..2 {
        assert_refused(run::<()>(&guard, "SET page news").await, needs);
    }
    assert_eq!((held(&server, "page"), asked(&server)), (None, 0));
    // The rest of it goes on as before.
    assert_eq!((locks.dialect(), guard.loss()), (dialect, None));
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert!(locks.lock("printer").ttl(LONG).await.unwrap().fence() > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_has_the_prefix_and_the_database_of_the_client_and_the_keys_are_as_written() {
    let server = server();
    let address = format!("{}/3", url(server.port()));
    let settings = Settings::default().prefix("lock:table:");
    let locks = Locks::connect_with(address, settings).await.unwrap();
    let guard = locks.lock("7").ttl(LONG).await.unwrap();
    run::<()>(&guard, "SET page news").await.unwrap();
    let mut client = server.client();
    client.cmd("SELECT 3");
    assert_eq!(client.cmd("GET page"), bulk("news"));
    assert_eq!(client.cmd("EXISTS lock:table:7"), Value::Int(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_wait_comes_back_at_once() {
    let (server, _locks, guard) = scene().await;
    assert_eq!(run::<Value>(&guard, "BLPOP nothing 0").await.unwrap(), Value::Nil);
    assert_eq!(server.client().counter("waiters"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_permits_guard_as_any_hold_and_each_by_its_own() {
    let server = server();
    let locks = locks(&server).await;
    let (one, two) = (locks.read("prices").ttl(LONG), locks.read("prices").ttl(LONG));
    let (one, two) = (one.await.unwrap(), two.await.unwrap());
    for reader in [&one, &two] {
        run::<()>(reader, "INCR visits").await.unwrap();
    }
    server.cmd(["LOCK.RELEASE", "prices", one.owner()]);
    assert_not_run(run::<()>(&one, "INCR visits").await, Loss::Taken);
    assert_eq!(run::<u64>(&two, "INCR visits").await.unwrap(), 3);
    assert_eq!((one.loss(), two.loss()), (Some(Loss::Taken), None));
    let permit = locks.semaphore("seats", 2).ttl(LONG).await.unwrap();
    assert_eq!(run::<u64>(&permit, "INCR visits").await.unwrap(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn guards_that_share_a_hold_are_lost_together() {
    let (server, locks, _guard) = scene().await;
    let alice = || locks.lock("scanner").owner("alice").ttl(LONG);
    let (outer, inner) = (alice().await.unwrap(), alice().await.unwrap());
    run::<()>(&inner, "INCR visits").await.unwrap();
    // What one of them leaves to its lease guards on until that ends.
    let kept = alice().await.unwrap();
    kept.keep();
    assert_eq!(run::<u64>(&outer, "INCR visits").await.unwrap(), 2);
    server.cmd("DEL scanner");
    assert_not_run(run::<()>(&outer, "INCR visits").await, Loss::Taken);
    assert_eq!(inner.loss(), Some(Loss::Taken));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_kept_guards_again_when_its_owner_has_a_guard_again() {
    let (server, locks, _guard) = scene().await;
    let alice = || locks.lock("scanner").owner("alice").fixed_ttl(LONG);
    let first = alice().await.unwrap();
    let fence = first.fence();
    first.keep();
    locks.settle().await;
    assert!(ttl_of(&server, "scanner") > 0);
    let again = alice().await.unwrap();
    assert_eq!(again.fence(), fence);
    assert_eq!(run::<u64>(&again, "INCR visits").await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_of_several_locks_guards_by_the_one_that_is_named() {
    let server = server();
    let locks = locks(&server).await;
    // By one request, with one fence; and one after the other, because the owner is chosen.
    for options in [Options::new(), Options::new().owner("worker-7")] {
        let all = locks.lock_all(["a", "b"]).options(options.ttl(LONG)).await.unwrap();
        let incr = command("INCR visits");
        for name in ["a", "b"] {
            soon(all.run_command::<u64>(name, &incr)).await.unwrap();
        }
        let unknown = all.run_command::<u64>("c", &incr).await.unwrap_err();
        assert!(matches!(unknown, Error::Setting { ref name, .. } if name == "name"), "{unknown}");
        server.cmd("DEL b");
        let before = asked(&server);
        // The server looks at the one that is named.
        soon(all.run_command::<u64>("a", &incr)).await.unwrap();
        let came = soon(all.run_command::<u64>("b", &incr)).await;
        assert!(matches!(&came, Err(Error::NotRun { name, .. }) if name == "b"), "{came:?}");
        // That one of them is lost is known now.
        let came = soon(all.run_command::<u64>("a", &incr)).await;
        assert!(matches!(&came, Err(Error::NotRun { name, .. }) if name == "b"), "{came:?}");
        assert_eq!(asked(&server) - before, 2);
        assert_eq!(all.release().await.unwrap(), Released::Late);
    }
    assert_eq!(held(&server, "visits").as_deref(), Some("6"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_ended_with_its_connection_guards_nothing() {
    let (server, locks, _guard) = scene().await;
    let guard = locks.lock("scanner").ttl(LONG).ephemeral(millis(0)).await.unwrap();
    assert_eq!(run::<u64>(&guard, "INCR visits").await.unwrap(), 1);
    server.cmd("CLIENT KILL TYPE normal");
    let mut came = run::<u64>(&guard, "INCR visits").await;
    if matches!(came, Err(Error::Unanswered { .. })) {
        // It was on its way before the end of the connection was seen.
        came = run::<u64>(&guard, "INCR visits").await;
    }
    assert!(matches!(came, Err(Error::NotRun { .. })), "{came:?}");
    assert_eq!(held(&server, "visits").as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_leader_acts() {
    let (server, locks, _guard) = scene().await;
    let election = |candidate| locks.election("scheduler", candidate);
    let first = election("anna").campaign().await.unwrap();
    run::<()>(&first, "RPUSH acts anna").await.unwrap();
    // Somebody has forced another election.
    server.cmd("DEL scheduler");
    let second = soon(election("ben").campaign()).await.unwrap();
    run::<()>(&second, "RPUSH acts ben").await.unwrap();
    assert_not_run(run::<()>(&first, "RPUSH acts anna").await, Loss::Taken);
    let acts = server.cmd("LRANGE acts 0 -1");
    assert_eq!(acts, Value::Array(vec![bulk("anna"), bulk("ben")]));
    assert!(second.resign().await.unwrap().in_time());
}

/// On each server alone a guard of a quorum is a hold as any other, and most of them are to decide.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_holds_a_lock_on_most_servers_guards_on_each_for_itself() {
    let servers: Vec<_> = (0..3).map(|_| with_module().start()).collect();
    let guard = soon(quorum(&servers).await.lock("printer").ttl(LONG)).await.unwrap();
    let fence = guard.fence().to_string();
    for server in &servers {
        let words = ["LOCK.GUARD", "printer", guard.owner(), &fence, "INCR", "visits"];
        assert_eq!(server.cmd(words), Value::Int(1));
    }
}

#[test]
fn a_program_without_a_runtime_runs_commands_too() {
    let server = server();
    let locks = blocking::Locks::new(url(server.port())).unwrap();
    let guard = locks.lock("printer", Options::new().ttl(LONG)).unwrap();
    assert_eq!(guard.run_command::<u64>(&command("INCR visits")).unwrap(), 1);
    let list = guard.run_command::<u64>(&command("LPUSH visits x")).unwrap_err();
    assert!(matches!(&list, Error::Refused { reason } if reason.starts_with("WRONGTYPE ")));
    let other = guard.run_command::<u64>(&command("SET page news")).unwrap_err();
    assert!(matches!(other, Error::UnexpectedReply { .. }), "{other:?}");
    server.cmd("DEL printer");
    assert_not_run(guard.run_command::<u64>(&command("INCR visits")), Loss::Taken);
    assert_eq!(guard.loss(), Some(Loss::Taken));
    assert_eq!(guard.release().unwrap(), Released::Late);
    assert_eq!(held(&server, "visits").as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_write_behind_one_fence() {
    let server = server();
    let locks = locks(&server).await;
    let guard = Arc::new(locks.lock("printer").ttl(LONG).await.unwrap());
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let guard = Arc::clone(&guard);
            tokio::spawn(async move { run::<u64>(&guard, "INCR visits").await.unwrap() })
        })
        .collect();
    let mut seen = HashSet::new();
    for task in tasks {
        assert!(seen.insert(soon(task).await.unwrap()));
    }
    assert_eq!(seen.len(), 200);
}
