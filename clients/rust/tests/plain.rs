//! Servers without the module, and groups of which only some have it.

use crate::scene::{
    LONG, eventually_waiting, held, locks, millis, server, soon, url, without_module,
};
use leasehold_client::{Dialect, Extended, Locks, Quorum, Released};
use redis::Value;
use testkit::{Server, bulk_text, is_older_than, is_valkey_since};
use tokio::time::timeout;

/// How often the server was sent a script.
fn scripts(server: &Server) -> u64 {
    let stats = bulk_text(&server.cmd("INFO commandstats"));
    let calls = |name: &str| {
        let line =
            stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.map_or(0, |line| line.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    calls("eval") + calls("evalsha")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_finds_out_whether_the_server_has_the_module() {
    assert_eq!(locks(&server()).await.dialect(), Dialect::Native);
    assert_eq!(locks(&without_module().start()).await.dialect(), Dialect::Plain);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_can_compare_by_itself_needs_no_script() {
    let server = without_module().start();
    let locks = locks(&server).await;
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    let before = scripts(&server);
    assert_eq!(guard.extend(LONG).await.unwrap(), Extended::Extended);
    let extended = scripts(&server) - before;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let released = scripts(&server) - before - extended;
    let redis_compares = !is_older_than((8, 4));
    let sets = redis_compares || is_valkey_since((8, 1));
    let deletes = redis_compares || is_valkey_since((9, 0));
    assert_eq!((extended == 0, released == 0), (sets, deletes));
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_the_server_forgot_are_sent_again() {
    let server = without_module().start();
    let locks = locks(&server).await;
    for _ in 0..2 {
        let guard = locks.lock("printer").ttl(LONG).await.unwrap();
        assert_eq!(guard.extend(LONG).await.unwrap(), Extended::Extended);
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        server.cmd("SCRIPT FLUSH");
    }
}

/// Whoever watches the errors of a server is to see none where nothing is wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_server_counts_no_errors_however_locks_are_asked_for() {
    let mut servers: Vec<_> = (0..3).map(|_| without_module().start()).collect();
    let quorum = Quorum::connect(servers.iter().map(|server| url(server.port()))).await.unwrap();
    let locks = locks(&servers[0]).await;
    let tasks = (0..20).map(|number| {
        let (locks, quorum) = (locks.clone(), quorum.clone());
        tokio::spawn(async move {
            let guard = soon(locks.lock("printer").ttl(LONG)).await.unwrap();
            assert_eq!(guard.extend(LONG).await.unwrap(), Extended::Extended);
            assert_eq!(guard.release().await.unwrap(), Released::Released);
            let alice = || locks.lock(number.to_string()).owner("alice").ttl(LONG);
            let (outer, inner) = (alice().await.unwrap(), alice().await.unwrap());
            assert!(locks.try_lock(&number.to_string()).await.unwrap().is_none());
            let waiting = locks.lock(number.to_string()).ttl(LONG).into_future();
            assert!(timeout(millis(50), waiting).await.is_err());
            drop((outer, inner));
            drop(locks.lock_all(["a", "b", "c"]).ttl(LONG).await.unwrap());
            let most = soon(quorum.lock("most").ttl(LONG)).await.unwrap();
            assert_eq!(most.extend(LONG).await.unwrap(), Extended::Extended);
            assert_eq!(most.release().await.unwrap(), Released::Released);
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    locks.settle().await;
    quorum.settle().await;
    for server in &mut servers {
        let errors = server.client().info_text("errorstats");
        assert!(!errors.contains("errorstat_"), "{errors}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fences_grow_also_when_the_clock_of_the_server_does_not() {
    let server = without_module().start();
    let locks = locks(&server).await;
    let ahead = locks.lock("printer").ttl(LONG).await.unwrap().fence() + 3_600_000_000;
    locks.settle().await;
    // As if the clock had been an hour ahead at the last grant.
    server.cmd(format!("SET {{printer}}:fence {ahead}"));
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    assert_eq!(guard.fence(), ahead + 1);
    drop(guard);
    locks.settle().await;
    assert_eq!(locks.lock("printer").ttl(LONG).await.unwrap().fence(), ahead + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_remembered_of_a_lock_is_forgotten_after_a_day() {
    let server = without_module().start();
    let locks = locks(&server).await;
    drop(locks.lock("printer").ttl(LONG).await.unwrap());
    locks.settle().await;
    let Value::Int(left) = server.cmd(["PTTL", "{printer}:fence"]) else { panic!("no number") };
    assert!((86_000_000..=86_400_000).contains(&left), "{left}");
    assert_eq!(server.cmd("DBSIZE"), Value::Int(1));
}

/// Loads the module into a server that runs.
fn load(server: &Server) {
    let module = testkit::module::path().to_str().unwrap();
    assert_eq!(server.cmd(["MODULE", "LOAD", module]), Value::Okay);
}

/// Neither passes by the queue of the module, nor has a fence that a later one is smaller than.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_notices_with_its_next_request_that_the_module_was_loaded() {
    if is_older_than((7, 0)) {
        return;
    }
    let server = without_module().start();
    let early = locks(&server).await;
    let kept = early.lock("kept").ttl(LONG).await.unwrap();
    drop(early.lock("printer").ttl(LONG).await.unwrap());
    early.settle().await;
    load(&server);
    let first = early.lock("printer").ttl(LONG).await.unwrap();
    assert_eq!(early.dialect(), Dialect::Native);
    let later = locks(&server).await;
    let waiting = tokio::spawn(later.lock("printer").ttl(LONG).into_future());
    eventually_waiting(&server, "printer", 1).await;
    let fence = first.fence();
    assert_eq!(first.release().await.unwrap(), Released::Released);
    let second = soon(waiting).await.unwrap().unwrap();
    assert!(second.fence() > fence, "{} after {fence}", second.fence());
    let third = tokio::spawn(early.lock("printer").ttl(LONG).into_future());
    eventually_waiting(&server, "printer", 1).await;
    drop(second);
    drop(soon(third).await.unwrap());
    assert_eq!(kept.release().await.unwrap(), Released::Released);
}

/// Whoever asks for nothing else would be refused for as long as the connection lasts.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_is_refused_no_more_than_once_when_the_module_was_loaded() {
    let server = without_module().start();
    let locks = locks(&server).await;
    assert!(locks.read("page").try_now().await.is_err());
    load(&server);
    let first = locks.read("page").try_now().await;
    let readers = [first.ok().flatten(), locks.read("page").try_now().await.unwrap()];
    assert!(readers[1].is_some());
}

/// Those of a user who may run scripts, and none of the commands of the module, speak the other dialect when it was
/// loaded.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_use_the_module_and_clients_that_do_not_keep_each_other_out() {
    let server = without_module().start();
    server.cmd("ACL SETUSER old on nopass ~* &* +@all");
    let plain = Locks::connect(format!("redis://old:x@127.0.0.1:{}", server.port())).await.unwrap();
    load(&server);
    server.cmd("ACL SETUSER old -lock.acquire");
    let native = locks(&server).await;
    assert_eq!((plain.dialect(), native.dialect()), (Dialect::Plain, Dialect::Native));
    for (first, second) in [(&plain, &native), (&native, &plain)] {
        let guard = first.lock("printer").ttl(LONG).await.unwrap();
        assert!(second.try_lock("printer").await.unwrap().is_none());
        // The same owner holds the same grant, whichever way it asks.
        let again = second.lock("printer").owner(guard.owner()).ttl(LONG).await.unwrap();
        assert_eq!(again.fence(), guard.fence());
        assert_eq!(again.release().await.unwrap(), Released::Released);
        assert_eq!(guard.release().await.unwrap(), Released::Late);
        let request = second.lock("printer").ttl(LONG);
        let guard = first.lock("printer").ttl(LONG).await.unwrap();
        let fence = guard.fence();
        let waiter = tokio::spawn(async move { request.await.unwrap().fence() });
        tokio::time::sleep(millis(50)).await;
        assert!(!waiter.is_finished());
        drop(guard);
        let next = soon(waiter).await.unwrap();
        // Both kinds at once on one server: fences of one kind are ahead of those of the other by the margin.
        assert!(next > fence || next.abs_diff(fence) < 6_000_000, "{next}, {fence}");
        second.settle().await;
        assert_eq!(held(&server, "printer"), None);
    }
    assert_eq!((plain.dialect(), native.dialect()), (Dialect::Plain, Dialect::Native));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_lock_with_set_nx_are_kept_out_and_keep_out() {
    let server = without_module().start();
    let locks = locks(&server).await;
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    let old = || server.cmd("SET printer 4711:old-client NX PX 60000");
    assert_eq!(old(), Value::Nil);
    drop(guard);
    locks.settle().await;
    assert_eq!(old(), Value::Okay);
    assert!(locks.try_lock("printer").await.unwrap().is_none());
    let theirs = locks.lock("printer").owner("4711:old-client").ttl(LONG).await.unwrap();
    assert_eq!(theirs.fence(), 0);
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    assert_eq!(held(&server, "printer"), None);
}
