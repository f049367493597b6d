//! Many tasks that wait at once: how many connections they take, how much memory, and what others notice of them.

use crate::scene::{
    Kind, LONG, NOTHING, Way, behind, connections, cut_all, eventually, eventually_free,
    eventually_waiting, is_held_by, locks, locks_with, millis, server, soon, with_module,
};
use leasehold_client::{Error, Guard, Locks, Released, Renew, Settings};
use std::time::{Duration, Instant};
use testkit::{Proxy, Seed, Server, bulk_text, figure, lacks_notify};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const CROWD: usize = 1_000;

/// So many locks that somebody has.
fn taken(server: &Server, count: usize) {
    let script =
        "for i = 0, ARGV[1] - 1 do redis.call('SET', 'printer:' .. i, 'x', 'PX', 600000) end";
    server.cmd(["EVAL", script, "0", count.to_string().as_str()]);
}

fn free(server: &Server, number: usize) {
    server.cmd(["DEL", format!("printer:{number}").as_str()]);
}

fn wait(locks: &Locks, number: usize) -> JoinHandle<Result<Guard, Error>> {
    tokio::spawn(locks.lock(format!("printer:{number}")).ttl(LONG).into_future())
}

fn count_of(server: &Server, field: &str) -> usize {
    let count = server.client().info_field("leasehold", field);
    count.map_or(0, |count| count.parse().unwrap())
}

async fn eventually_many(server: &Server, field: &str, count: usize) {
    eventually("there are so many", || match count_of(server, field) {
        seen if seen == count => Ok(()),
        seen => Err((field.to_owned(), seen)),
    })
    .await;
}

/// How often a lock was asked for.
fn asked(server: &Server) -> u64 {
    let executed = server.client().executed();
    ["lock.acquire", "evalsha", "eval"].iter().filter_map(|name| executed.get(*name)).sum()
}

/// How many errors the server has answered with.
fn errors(server: &Server) -> u64 {
    server.client().info_number("stats", "total_error_replies")
}

/// Of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}

/// Their locks are freed one after the other, in any order, and in that order the tasks are served: whatever the state of the
/// connections was before.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_tasks_wait_for_ten_thousand_locks_on_one_connection() {
    const TASKS: usize = 10_000;
    if lacks_notify() {
        return;
    }
    let mut seed = Seed::announced();
    let mut server = with_module().aof().start();
    taken(&server, TASKS);
    let before = resident();
    let locks = locks(&server);
    let (tells, mut served) = unbounded_channel();
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for number in 0..TASKS {
        let (request, tells) = (locks.lock(format!("printer:{number}")), tells.clone());
        tasks.push(tokio::spawn(async move {
            let guard = request.await.unwrap();
            tells.send(number).unwrap();
            let held = format!("{guard:?}");
            assert_eq!(guard.release().await.unwrap(), Released::InTime, "{held}");
        }));
        if tasks.len().is_multiple_of(500) {
            eventually_many(&server, "leasehold_tickets", tasks.len()).await;
        }
    }
    let each = resident().saturating_sub(before) / TASKS;
    figure(&format!(
        "client: {TASKS} tasks have tickets after {} ms, on {} connections, {each} bytes each",
        begun.elapsed().as_millis(),
        connections(&server),
    ));
    assert_eq!(connections(&server), 1);
    let mut left: Vec<_> = (0..TASKS).collect();
    let mut order =
        std::iter::from_fn(|| (!left.is_empty()).then(|| left.swap_remove(seed.below(left.len()))));
    let mut serve = async |server: &Server, count: usize| {
        let (begun, mut client) = (Instant::now(), server.client());
        for number in order.by_ref().take(count) {
            client.cmd(["DEL", format!("printer:{number}").as_str()]);
            assert_eq!(soon(served.recv()).await, Some(number));
        }
        begun.elapsed() / u32::try_from(count).unwrap()
    };
    let each = serve(&server, TASKS / 4).await;
    figure(&format!(
        "client: of {TASKS} tickets one after the other is served in {} us",
        each.as_micros()
    ));
    cut_all(&server);
    serve(&server, TASKS / 4).await;
    assert_eq!(connections(&server), 1);
    server.kill();
    server.start_again();
    eventually_many(&server, "leasehold_tickets", TASKS / 2).await;
    serve(&server, TASKS / 2).await;
    assert_eq!(connections(&server), 1);
    for task in tasks {
        soon(task).await.unwrap();
    }
    assert_eq!(soon(locks.close(LONG)).await, NOTHING);
    assert_eq!(count_of(&server, "leasehold_tickets"), 0);
}

/// Two programs that wait for the same locks, one behind the other.
#[tokio::test(flavor = "multi_thread")]
async fn places_are_kept_through_a_cut_connection() {
    const LOCKS: usize = 50;
    if lacks_notify() {
        return;
    }
    let server = server();
    taken(&server, LOCKS);
    let clients = [locks(&server), locks(&server)];
    let mut queues = Vec::new();
    for (place, locks) in clients.iter().enumerate() {
        queues.push((0..LOCKS).map(|number| wait(locks, number)).collect::<Vec<_>>());
        eventually_many(&server, "leasehold_tickets", (place + 1) * LOCKS).await;
    }
    let [first, second]: [Vec<_>; 2] = queues.try_into().unwrap();
    cut_all(&server);
    for (number, (first, second)) in first.into_iter().zip(second).enumerate() {
        free(&server, number);
        let guard = soon(first).await.unwrap().unwrap();
        assert!(!second.is_finished());
        let fence = guard.fence();
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        assert!(soon(second).await.unwrap().unwrap().fence() > fence);
    }
    assert_eq!(connections(&server), 2);
}

/// Then the server tells of grants on another connection.
#[tokio::test(flavor = "multi_thread")]
async fn where_the_protocol_cannot_be_chosen_waits_take_two_connections() {
    if lacks_notify() {
        return;
    }
    let server = with_module().config("rename-command", "HELLO \"\"").start();
    let locks = locks(&server);
    let taken = locks.lock("printer").await.unwrap();
    let waiting = tokio::spawn(locks.lock("printer").into_future());
    eventually_waiting(&server, "printer", 1).await;
    let kind =
        |kind: &str| bulk_text(&server.cmd(["CLIENT", "LIST", "TYPE", kind])).lines().count();
    eventually("it listens", || if kind("pubsub") == 1 { Ok(()) } else { Err("nobody listens") })
        .await;
    assert_eq!(connections(&server), 2);
    assert_eq!(taken.release().await.unwrap(), Released::InTime);
    let guard = soon(waiting).await.unwrap().unwrap();
    assert!(is_held_by(&server, "printer", &guard));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_asks_more_often_than_it_takes_to_keep_the_place() {
    if lacks_notify() {
        return;
    }
    let server = server();
    taken(&server, CROWD);
    let every = millis(1_000);
    let locks = locks_with(&server, Settings { check_every: every, ..Settings::default() });
    let tasks: Vec<_> = (0..CROWD).map(|number| wait(&locks, number)).collect();
    eventually_many(&server, "leasehold_tickets", CROWD).await;
    let (before, begun) = (asked(&server), Instant::now());
    tokio::time::sleep(3 * every).await;
    let each = (asked(&server) - before) as f64 / begun.elapsed().as_secs_f64() / CROWD as f64;
    figure(&format!("client: who waits asks {each:.2} times in each check_every"));
    assert!((0.4..1.4).contains(&each), "{each}");
    assert_eq!(count_of(&server, "leasehold_tickets"), CROWD);
    tasks.iter().for_each(JoinHandle::abort);
    eventually_many(&server, "leasehold_tickets", 0).await;
}

/// Each task takes its lock and gives it back at once.
async fn all_served(tasks: Vec<JoinHandle<Result<Guard, Error>>>) {
    for task in tasks {
        drop(soon(task).await.unwrap().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_tasks_that_want_one_lock_need_one_connection_and_cause_no_error() {
    for kind in Kind::BOTH {
        if kind == Kind::With && lacks_notify() {
            continue;
        }
        let server = kind.setup().start();
        let locks = locks(&server);
        let guard = locks.lock("printer").ttl(LONG).await.unwrap();
        // Without a queue each takes a poll, of which there are fewer and fewer.
        let crowd = if kind == Kind::With { CROWD } else { CROWD / 10 };
        let before = asked(&server);
        let served = |_| {
            let request = locks.lock("printer").ttl(LONG);
            tokio::spawn(async move { request.await?.release().await })
        };
        let tasks: Vec<_> = (0..crowd).map(served).collect();
        eventually("all have asked", || match asked(&server) - before {
            seen if seen >= crowd as u64 => Ok(()),
            seen => Err(seen),
        })
        .await;
        let begun = Instant::now();
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        let mut most = 0;
        for task in tasks {
            assert_eq!(soon(task).await.unwrap().unwrap(), Released::InTime);
            most = most.max(connections(&server));
        }
        let took = begun.elapsed().as_millis();
        kind.measured(&format!("ms in which {crowd} tasks take one lock in turn"), took);
        assert!(most <= 2, "{most}");
        // What the server does not know it is asked for once, and not by each.
        let errors = errors(&server);
        assert!(errors < 10, "{errors}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_wait_on_connections_are_no_more_than_may_and_all_are_served() {
    let server = server();
    for number in 0..CROWD {
        server.client().grant(format!("printer:{number}"), "somebody", 600_000);
    }
    let settings = Settings { wait_connections: 40, ..Settings::default() };
    let locks = Way::Connections.locks(&server, server.port(), settings);
    let tasks: Vec<_> = (0..CROWD).map(|number| wait(&locks, number)).collect();
    eventually_many(&server, "leasehold_waiters", 40).await;
    assert!(connections(&server) <= 43, "{}", connections(&server));
    // Also the locks of those who find no room to wait become free.
    for number in (0..CROWD).rev() {
        free(&server, number);
    }
    all_served(tasks).await;
    assert_eq!(soon(locks.close(LONG)).await, NOTHING);
}

/// So many lose the connections on which they wait, all at once.
#[tokio::test(flavor = "multi_thread")]
async fn those_who_lose_their_connections_at_once_come_back_without_a_storm() {
    const CROWD: usize = 300;
    let server = server();
    taken(&server, CROWD);
    let settings = || Settings { wait_connections: CROWD, ..Settings::default() };
    for (way, field) in
        [(Way::Tickets, "leasehold_tickets"), (Way::Connections, "leasehold_waiters")]
    {
        if way == Way::Tickets && lacks_notify() {
            continue;
        }
        let locks = way.locks(&server, server.port(), settings());
        let tasks: Vec<_> = (0..CROWD).map(|number| wait(&locks, number)).collect();
        eventually_many(&server, field, CROWD).await;
        let before = server.client().info_number("stats", "total_connections_received");
        let asked_before = asked(&server);
        cut_all(&server);
        eventually_many(&server, field, CROWD).await;
        for number in 0..10 {
            free(&server, number);
        }
        let (served, others): (Vec<_>, Vec<_>) =
            tasks.into_iter().enumerate().partition(|(number, _)| *number < 10);
        all_served(served.into_iter().map(|(_, task)| task).collect()).await;
        let after = server.client().info_number("stats", "total_connections_received");
        let most = if way == Way::Tickets { 100 } else { 2 * CROWD as u64 + 100 };
        assert!(after - before < most, "{way:?}: {}", after - before);
        assert!(asked(&server) - asked_before < 6 * CROWD as u64, "{way:?}");
        others.iter().for_each(|(_, task)| task.abort());
        eventually_many(&server, field, 0).await;
        taken(&server, 10);
    }
}

/// Whoever waits hears of a grant in the last milliseconds of what it may count on: it has a whole lease, or none.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_is_heard_of_late_is_no_longer_than_the_server_has_it() {
    let server = server();
    let link = Proxy::to(server.port());
    let locks = behind(&link, Settings { check_every: millis(300), ..Settings::default() });
    for delay in [50, 200, 400, 600] {
        let guard = locks.lock("printer").ttl(LONG).await.unwrap();
        let request = locks.lock("printer").ttl(millis(700)).renew(Renew::Never);
        let waiting = tokio::spawn(request.into_future());
        crate::scene::eventually_waiting(&server, "printer", 1).await;
        link.slow_subscriptions(millis(delay));
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        let granted = soon(waiting).await.unwrap().unwrap();
        let (left, holds) = (granted.valid_for(), is_held_by(&server, "printer", &granted));
        assert!(left.is_zero() || holds, "{delay}: it counts on {left:?}");
        soon(granted.lost()).await;
        link.slow_subscriptions(Duration::ZERO);
        drop(granted);
        eventually_free(&server, "printer").await;
    }
}

#[test]
fn threads_wait_on_one_connection_too() {
    const THREADS: usize = 50;
    if lacks_notify() {
        return;
    }
    let server = server();
    taken(&server, THREADS);
    let client = crate::scene::client(server.port());
    let locks = leasehold_client::blocking::Locks::new(client).unwrap();
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let locks = locks.clone();
            std::thread::spawn(move || {
                let guard = locks.wait(locks.lock(format!("printer:{number}"))).unwrap();
                assert_eq!(locks.wait(guard.release()).unwrap(), Released::InTime);
            })
        })
        .collect();
    locks.wait(eventually_many(&server, "leasehold_tickets", THREADS));
    assert_eq!(connections(&server), 1);
    for number in (0..THREADS).rev() {
        free(&server, number);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let list = bulk_text(&server.cmd("CLIENT LIST"));
    assert!(list.contains(" name=leasehold "), "{list}");
}

/// The same owner may wait for several locks, and twice for one.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_is_told_of_the_lock_that_it_was_granted_each_time_that_it_waits_for_it() {
    let server = server();
    let (ours, theirs) =
        (locks_with(&server, Settings { ttl: LONG, ..Settings::default() }), locks(&server));
    let taken = theirs.all(["a", "b"]).await.unwrap();
    let _other = theirs.lock("c").await.unwrap();
    let wait = |name: &str| tokio::spawn(ours.lock(name).owner("me").into_future());
    let a = [wait("a"), wait("a")];
    eventually_waiting(&server, "a", 1).await;
    let b = wait("b");
    eventually_waiting(&server, "b", 1).await;
    let c = wait("c");
    eventually_waiting(&server, "c", 1).await;
    assert_eq!(taken.release().await.unwrap(), Released::InTime);
    let mut guards = Vec::new();
    for waiting in a.into_iter().chain([b]) {
        guards.push(soon(waiting).await.unwrap().unwrap());
    }
    for (guard, name) in guards.iter().zip(["a", "a", "b"]) {
        assert!(guard.name() == name && is_held_by(&server, name, guard), "{guard:?}");
    }
    assert!(!c.is_finished());
}

/// The owner was granted the lock and has released it, and is told of that when it waits for it once more.
#[tokio::test(flavor = "multi_thread")]
async fn the_message_of_an_earlier_grant_of_the_same_owner_grants_nothing() {
    if lacks_notify() {
        return;
    }
    let server = server();
    let theirs = locks(&server);
    // Around the moment when the subscription is heard to be open.
    for pause in [1_000, 1_300, 1_500] {
        let proxy = Proxy::to(server.port());
        proxy.slow_subscriptions(millis(800));
        let ours = behind(&proxy, Settings::default());
        let taken = theirs.lock("printer").await.unwrap();
        let waiting = tokio::spawn(ours.lock("printer").owner("me").into_future());
        eventually_waiting(&server, "printer", 1).await;
        sleep(millis(pause)).await;
        assert_eq!(taken.release().await.unwrap(), Released::InTime);
        let guard = soon(waiting).await.unwrap().unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        let taken = theirs.lock("printer").try_now().await.unwrap().unwrap();
        let again = ours.lock("printer").owner("me").wait(millis(1_500)).await;
        assert!(matches!(again, Err(Error::Busy { .. })), "{pause}: {again:?}");
        assert!(is_held_by(&server, "printer", &taken));
        assert_eq!(taken.release().await.unwrap(), Released::InTime);
    }
}

/// Each of them has less time for an answer than the link takes, and the line answers all the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_slow_is_not_given_up_while_it_answers_others() {
    if lacks_notify() {
        return;
    }
    let server = server();
    let proxy = Proxy::to(server.port());
    let locks = behind(&proxy, Settings::default());
    let _taken = self::locks(&server).lock("printer").ttl(LONG).await.unwrap();
    proxy.slow(millis(40));
    let wait = || locks.lock("printer").ttl(millis(60)).wait(millis(1_500));
    let waits: Vec<_> = (0..100).map(|_| tokio::spawn(wait().into_future())).collect();
    for waiting in waits {
        assert!(soon(waiting).await.unwrap().is_err());
    }
    assert!(proxy.connections() < 4, "{}", proxy.connections());
    // Less than servers can wait for is no wait.
    proxy.slow(Duration::ZERO);
    assert!(locks.lock("free").wait(Duration::from_nanos(1)).await.is_ok());
}
