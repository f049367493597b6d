//! Waiting by tickets: on two connections, whatever happens to them.

mod refused;

use crate::scene::{
    LONG, WAYS, by, eventually, eventually_waiting, held, locks, locks_with, millis, server, soon,
    standing, url, waiters, with_module,
};
use leasehold_client::{Locks, Options, Released, Settings, Target};
use std::time::Instant;
use testkit::{
    Cluster, Proxy, Seed, Server, bulk_text, figure, lacks_notify, server_name, short_or_long,
};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Somebody else has these locks.
fn taken(server: &Server, count: usize) {
    let script =
        "for i = 0, ARGV[1] - 1 do redis.call('SET', 'printer:' .. i, 'x', 'PX', 600000) end";
    server.cmd(["EVAL", script, "0", count.to_string().as_str()]);
}

/// How many connections there are, by what they are for.
fn connections(server: &Server, purpose: &str) -> usize {
    let list = bulk_text(&server.cmd(["CLIENT", "LIST"]));
    list.lines().filter(|line| line.contains(&format!(" name=leasehold:{purpose}"))).count()
}

/// How many requests for locks the server has had.
fn asked(server: &Server) -> usize {
    let stats = bulk_text(&server.cmd(["INFO", "commandstats"]));
    let line = stats.lines().find(|line| line.starts_with("cmdstat_lock.acquire:"));
    line.map_or(0, |line| line.split(['=', ',']).nth(1).unwrap().parse().unwrap())
}

fn tickets(server: &Server) -> usize {
    let count = server.client().info_field("leasehold", "leasehold_tickets");
    count.map_or(0, |count| count.parse().unwrap())
}

async fn eventually_tickets(server: &Server, count: usize) {
    eventually("there are so many tickets", || match tickets(server) {
        seen if seen == count => Ok(()),
        seen => Err(seen),
    })
    .await;
}

fn cut_all(server: &Server) {
    for kind in ["normal", "pubsub"] {
        server.cmd(["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
}

async fn first_of<T>(mut waiting: JoinHandle<T>) -> T {
    soon(&mut waiting).await.unwrap()
}

/// Their locks are freed one after the other, in any order, and in that order the tasks are served: whatever the state of the
/// connections was before.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_tasks_wait_for_ten_thousand_locks_on_two_connections() {
    const TASKS: usize = 10_000;
    if lacks_notify() {
        return;
    }
    let mut seed = Seed::announced();
    let mut server = with_module().aof().config("appendfsync", "no").start();
    taken(&server, TASKS);
    let before = resident();
    let locks = locks(&server).await;
    let (tells, mut served) = unbounded_channel();
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for number in 0..TASKS {
        let (request, tells) = (locks.lock(format!("printer:{number}")), tells.clone());
        tasks.push(tokio::spawn(async move {
            let guard = request.await.unwrap();
            tells.send(number).unwrap();
            assert!(guard.release().await.unwrap().in_time());
        }));
        if tasks.len().is_multiple_of(500) {
            eventually_tickets(&server, tasks.len()).await;
        }
    }
    let each = resident().saturating_sub(before) / TASKS;
    figure(&format!(
        "client: {TASKS} tasks have tickets after {} ms, on {} connections, {each} bytes each",
        begun.elapsed().as_millis(),
        connections(&server, ""),
    ));
    assert_eq!(connections(&server, ""), 2);
    let mut free: Vec<_> = (0..TASKS).collect();
    let mut order =
        std::iter::from_fn(|| (!free.is_empty()).then(|| free.swap_remove(seed.below(free.len()))));
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
    assert_eq!(connections(&server, ""), 2);
    server.kill();
    server.start_again();
    eventually("they wait again", || match tickets(&server) {
        seen if seen == TASKS / 2 => Ok(()),
        seen => Err(seen),
    })
    .await;
    serve(&server, TASKS / 2).await;
    assert_eq!(connections(&server, ""), 2);
    for task in tasks {
        soon(task).await.unwrap();
    }
    assert_eq!(tickets(&server), 0);
}

/// Of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
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
    let clients = [locks(&server).await, locks(&server).await];
    let mut queues = Vec::new();
    for (place, locks) in clients.iter().enumerate() {
        let wait = |number| tokio::spawn(locks.lock(format!("printer:{number}")).into_future());
        queues.push((0..LOCKS).map(wait).collect::<Vec<_>>());
        eventually_tickets(&server, (place + 1) * LOCKS).await;
    }
    let [first, second]: [Vec<_>; 2] = queues.try_into().unwrap();
    cut_all(&server);
    for (number, (first, second)) in first.into_iter().zip(second).enumerate() {
        server.cmd(["DEL", format!("printer:{number}").as_str()]);
        let guard = first_of(first).await.unwrap();
        assert!(!second.is_finished());
        let fence = guard.fence();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        assert!(first_of(second).await.unwrap().fence() > fence);
    }
    assert_eq!(connections(&server, ""), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_asks_more_often_than_it_takes_to_keep_the_place() {
    const TASKS: usize = 1_000;
    if lacks_notify() {
        return;
    }
    let server = server();
    taken(&server, TASKS);
    let locks = locks_with(&server, Settings::default().slice(millis(1_000))).await;
    let wait = |number| tokio::spawn(locks.lock(format!("printer:{number}")).into_future());
    let tasks: Vec<_> = (0..TASKS).map(wait).collect();
    eventually_tickets(&server, TASKS).await;
    let (before, begun) = (asked(&server), Instant::now());
    sleep(millis(4_000)).await;
    let (times, slices) = (asked(&server) - before, begun.elapsed().as_secs_f64());
    let each = times as f64 / slices / TASKS as f64;
    figure(&format!("client: a ticket is asked for {each:.2} times in each slice"));
    assert!((0.6..1.45).contains(&each), "{each}");
    assert_eq!(tickets(&server), TASKS, "they keep their places");
    tasks.iter().for_each(JoinHandle::abort);
    eventually_tickets(&server, 0).await;
}

/// The grant is told of while nobody listens.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_lost_with_its_connection_costs_half_a_second() {
    let server = server();
    taken(&server, 1);
    let locks = locks(&server).await;
    let waiter = tokio::spawn(locks.lock("printer:0").into_future());
    eventually_waiting(&server, "printer:0", 1).await;
    let begun = Instant::now();
    server.cmd(["CLIENT", "KILL", "TYPE", "pubsub"]);
    server.cmd("DEL printer:0");
    let guard = first_of(waiter).await.unwrap();
    assert!(begun.elapsed() < millis(2_500), "{:?}", begun.elapsed());
    assert!(guard.valid_for() > millis(20_000), "{:?}", guard.valid_for());
}

/// It dies without a word, on either side.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_has_died_costs_a_slice_and_is_replaced() {
    if lacks_notify() {
        return;
    }
    let server = server();
    taken(&server, 2);
    let link = Proxy::to(server.port());
    let settings = Settings::default().slice(millis(500)).response(millis(300));
    let locks = Locks::connect_with(url(link.port()), settings).await.unwrap();
    let waiting = |number| tokio::spawn(locks.lock(format!("printer:{number}")).into_future());
    let [first, second] = [0, 1].map(waiting);
    eventually_tickets(&server, 2).await;
    let before = link.connections();
    link.deafen();
    // The one for requests is found to be dead, too.
    server.cmd("DEL printer:0");
    let begun = Instant::now();
    drop(first_of(first).await.unwrap());
    assert!(begun.elapsed() < millis(3_000), "{:?}", begun.elapsed());
    eventually("both are replaced", || match link.connections() - before {
        2.. => Ok(()),
        seen => Err(seen),
    })
    .await;
    sleep(millis(1_000)).await;
    server.cmd("DEL printer:1");
    let begun = Instant::now();
    drop(first_of(second).await.unwrap());
    assert!(begun.elapsed() < millis(250), "{:?}", begun.elapsed());
}

/// Whatever is told on the second connection never arrives, and neither side sees that.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_says_nothing_costs_a_slice() {
    let server = server();
    taken(&server, 1);
    let link = Proxy::to(server.port());
    link.slow_all_but(1, LONG);
    let settings = Settings::default().slice(millis(500)).response(millis(300));
    let locks = Locks::connect_with(url(link.port()), settings).await.unwrap();
    let waiter = tokio::spawn(locks.lock("printer:0").into_future());
    eventually_waiting(&server, "printer:0", 1).await;
    sleep(millis(1_000)).await;
    assert_eq!(waiters(&server, "printer:0"), 1);
    server.cmd("DEL printer:0");
    let begun = Instant::now();
    drop(first_of(waiter).await.unwrap());
    // It asks every two seconds at least.
    assert!(begun.elapsed() < millis(3_500), "{:?}", begun.elapsed());
}

/// So many milliseconds after the grant its lock goes on to the next one, and just then the first one looks.
#[test]
fn a_claim_in_the_last_milliseconds_is_a_whole_lease_or_none() {
    const LOCKS: usize = 60;
    if lacks_notify() {
        return;
    }
    let server = server();
    taken(&server, LOCKS);
    let (runtime, others) = (standing(), standing());
    let settings = Settings::default().slice(millis(100));
    let names: Vec<_> = (0..LOCKS).map(|number| format!("printer:{number}")).collect();
    let wait = |runtime: &tokio::runtime::Runtime, settings: &Settings, count| {
        let locks = Locks::with_settings(url(server.port()), settings.clone()).unwrap();
        runtime.block_on(async {
            let wait = |name| tokio::spawn(locks.lock(name).into_future());
            let waiting: Vec<_> = names.iter().map(wait).collect();
            eventually_tickets(&server, count).await;
            (locks, waiting)
        })
    };
    let (ours, first) = wait(&runtime, &settings, LOCKS);
    let (_theirs, second) = wait(&others, &Settings::default(), 2 * LOCKS);
    // Nobody drives the first ones, whose places and grants last a second from now on. Those behind them stand still, too.
    for name in &names {
        server.cmd(["DEL", name.as_str()]);
        std::thread::sleep(millis(2));
    }
    std::thread::sleep(millis(1_000 - LOCKS as u64 / 2 * 2 - 10));
    runtime.block_on(async { sleep(millis(300)).await });
    let mut claimed = 0;
    for (name, waiter) in names.iter().zip(first) {
        if !waiter.is_finished() {
            waiter.abort();
            continue;
        }
        claimed += 1;
        let guard = runtime.block_on(waiter).unwrap().unwrap();
        let value = held(&server, name).unwrap();
        assert!(value.contains(guard.owner()) && value.contains(&guard.fence().to_string()));
        assert!(guard.loss().is_none() && guard.valid_for() > millis(20_000), "{guard:?}");
    }
    figure(&format!("client: of {LOCKS} claims around the end of a grant {claimed} were in time"));
    assert!(claimed > 0, "none was in time");
    runtime.block_on(async { ours.settle().await });
    // Those behind them have the lock now, whether it was released or not claimed in time.
    others.block_on(async {
        for waiter in second {
            drop(first_of(waiter).await.unwrap());
        }
    });
}

/// The next one in the queue need not wait for the place to run out.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_stops_waiting_leaves_at_once_whoever_chose_the_owner() {
    for owner in [None, Some("worker-7")] {
        let server = server();
        let (ours, theirs) = (locks(&server).await, locks(&server).await);
        let guard = ours.lock("printer").ttl(LONG).await.unwrap();
        let request = theirs.lock("printer");
        let request = match owner {
            Some(owner) => request.owner(owner),
            None => request,
        };
        let first = tokio::spawn(request.into_future());
        eventually_waiting(&server, "printer", 1).await;
        let second = tokio::spawn(ours.lock("printer").into_future());
        eventually_waiting(&server, "printer", 2).await;
        first.abort();
        let begun = Instant::now();
        eventually_waiting(&server, "printer", 1).await;
        assert!(begun.elapsed() < millis(500), "{:?}", begun.elapsed());
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        drop(first_of(second).await.unwrap());
        assert!(begun.elapsed() < millis(900), "{:?}", begun.elapsed());
        theirs.settle().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_is_served_in_time_where_a_connection_for_being_told_of_it_is_never_answered()
{
    let server = server();
    let proxy = Proxy::to(server.port());
    let theirs = Locks::connect(url(proxy.port())).await.unwrap();
    let guard = locks(&server).await.lock("printer").await.unwrap();
    // Their connection for requests is there.
    assert!(theirs.info("printer").await.unwrap().is_some());
    proxy.slow_all_but(proxy.connections(), LONG);
    let waiter = tokio::spawn(theirs.lock("printer").wait(millis(900)).into_future());
    eventually_waiting(&server, "printer", 1).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    drop(first_of(waiter).await.unwrap());
}

#[test]
fn threads_wait_on_two_connections_too() {
    const THREADS: usize = 50;
    if lacks_notify() {
        return;
    }
    let server = server();
    taken(&server, THREADS);
    let locks = leasehold_client::blocking::Locks::new(url(server.port())).unwrap();
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let locks = locks.clone();
            std::thread::spawn(move || {
                let options = Options::new().wait(LONG);
                let guard = locks.lock(format!("printer:{number}"), options).unwrap();
                assert_eq!(guard.release().unwrap(), Released::Released);
            })
        })
        .collect();
    testkit::eventually("they wait", || match tickets(&server) {
        THREADS => Ok(()),
        seen => Err(seen),
    });
    assert_eq!(connections(&server, ""), 2);
    cut_all(&server);
    for number in 0..THREADS {
        server.cmd(["DEL", format!("printer:{number}").as_str()]);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(connections(&server, ""), 2);
}

/// What is published at one node of a cluster is told at all of them, and this client listens where it asks.
#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_there_are_two_connections_to_each_node() {
    if lacks_notify() {
        return;
    }
    let cluster = Cluster::of(3, 0);
    let urls = cluster.nodes().iter().map(|node| url(node.port()));
    let target = Target::cluster(urls);
    let [ours, theirs] = [(); 2].map(|()| Locks::new(target.clone()).unwrap());
    let names: Vec<_> = (0..60).map(|number| format!("printer:{number}")).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(ours.lock(name).await.unwrap());
    }
    let waiting: Vec<_> =
        names.iter().map(|name| tokio::spawn(theirs.lock(name).into_future())).collect();
    let all = || cluster.nodes().iter().map(|node| tickets(node)).sum::<usize>();
    eventually("they wait", || if all() == names.len() { Ok(()) } else { Err(all()) }).await;
    for node in cluster.nodes() {
        assert_eq!(connections(node, "grants"), 1, "{}", bulk_text(&node.cmd(["CLIENT", "LIST"])));
        assert_eq!(connections(node, "requests"), 2, "one of each client");
    }
    let begun = Instant::now();
    for guard in guards {
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
    for waiter in waiting {
        drop(first_of(waiter).await.unwrap());
    }
    assert!(begun.elapsed() < millis(3_000), "{:?}", begun.elapsed());
}

/// Of which each has its turn in the queue of one lock.
#[tokio::test(flavor = "multi_thread")]
async fn workers_hand_a_lock_on_as_fast_by_tickets() {
    const WORKERS: u32 = 16;
    let rounds = u32::try_from(short_or_long(40, 400)).unwrap();
    for way in WAYS {
        let server = server();
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            let locks = locks_with(&server, by(way)).await;
            workers.push(tokio::spawn(async move {
                for _ in 0..rounds {
                    let guard = locks.lock("printer").await.unwrap();
                    assert_eq!(guard.release().await.unwrap(), Released::Released);
                }
            }));
        }
        let begun = Instant::now();
        for worker in workers {
            soon(worker).await.unwrap();
        }
        let each = begun.elapsed() / (WORKERS * rounds);
        figure(&format!(
            "client: a contended cycle of {WORKERS} clients takes {} us, {way:?}, {}",
            each.as_micros(),
            server_name(),
        ));
        assert!(each < millis(20), "{each:?}");
    }
}
