//! Many tasks that wait at once: how many connections they take, and what others notice of them.

use crate::scene::{
    Kind, LONG, WAYS, by, eventually, eventually_free, eventually_waiting, held, locks_with,
    millis, server, soon, url, with_module,
};
use leasehold_client::{Error, Locks, Released, Settings, Waiting};
use redis::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Client, Proxy, Server, bulk_text, lacks, lacks_notify};
use tokio::task::JoinHandle;
use tokio::time::sleep;

const CROWD: usize = 1_000;

fn info(server: &Server, section: &str) -> String {
    bulk_text(&server.cmd(["INFO", section]))
}

fn number(text: &str, field: &str) -> usize {
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap().trim().parse().unwrap()
}

/// How many connections of clients of this crate there are, by what they are for.
fn connections(server: &Server, purpose: &str) -> usize {
    let list = bulk_text(&server.cmd(["CLIENT", "LIST"]));
    list.lines().filter(|line| line.contains(&format!(" name=leasehold:{purpose}"))).count()
}

/// Errors that the server has answered with, by their codes.
fn errors(server: &Server) -> Vec<String> {
    let stats = info(server, "errorstats");
    stats.lines().filter(|line| line.starts_with("errorstat_")).map(str::to_owned).collect()
}

/// Somebody else has this lock.
fn taken(server: &Server, key: &str) {
    server.cmd(["SET", key, "somebody", "PX", "600000"]);
}

/// Those who want a lock that is taken have asked for it by now, so many times.
async fn eventually_asked(server: &Server, times: usize) {
    let calls = || {
        let stats = info(server, "commandstats");
        let asked = |line: &&str| {
            ["lock.acquire", "evalsha", "eval"]
                .iter()
                .any(|name| line.starts_with(&format!("cmdstat_{name}:")))
        };
        let calls = stats.lines().filter(asked).filter_map(|line| line.split(['=', ',']).nth(1));
        calls.map(|calls| calls.parse::<usize>().unwrap()).sum::<usize>()
    };
    eventually("they have asked", || match calls() {
        seen if seen >= times => Ok(()),
        seen => Err(seen),
    })
    .await;
}

/// Looks all the time how many connections there are, and keeps the largest number.
struct Count {
    most: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl Count {
    fn of(server: &Arc<Server>) -> Self {
        let (most, over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, ended, server) = (Arc::clone(&most), Arc::clone(&over), Arc::clone(server));
        std::thread::spawn(move || {
            while !ended.load(SeqCst) {
                counted.fetch_max(connections(&server, ""), SeqCst);
            }
        });
        Self { most, over }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
    }
}

/// Each task takes its lock and gives it back at once.
fn crowd(locks: &Locks, name: impl Fn(usize) -> String) -> Vec<JoinHandle<Result<(), Error>>> {
    let task = |number| {
        let request = locks.lock(name(number)).ttl(LONG);
        tokio::spawn(async move { request.await?.release().await.map(drop) })
    };
    (0..CROWD).map(task).collect()
}

async fn all_served(tasks: Vec<JoinHandle<Result<(), Error>>>) {
    for task in tasks {
        soon(task).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_tasks_that_want_one_lock_need_two_connections_and_cause_no_error() {
    for kind in Kind::BOTH {
        if kind == Kind::With && lacks_notify() {
            continue;
        }
        let server = Arc::new(kind.setup().start());
        let locks = locks_with(&server, Settings::default().slice(millis(100))).await;
        let guard = locks.lock("printer").ttl(LONG).await.unwrap();
        let count = Count::of(&server);
        let tasks = crowd(&locks, |_| "printer".to_owned());
        eventually_asked(&server, 2).await;
        // They are looked after some times.
        sleep(millis(1_000)).await;
        let begun = Instant::now();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        all_served(tasks).await;
        kind.measured("ms in which 1,000 tasks take one lock in turn", begun.elapsed().as_millis());
        let most = count.most.load(SeqCst);
        kind.measured("connections of 1,000 tasks that want one lock", most);
        kind.measured("errors of 1,000 tasks that want one lock", errors(&server).len());
        assert!(most <= 2, "{most}");
        assert_eq!(errors(&server), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_tasks_that_want_a_thousand_locks_need_no_more_connections_than_may_wait() {
    for (kind, way) in Kind::BOTH.into_iter().flat_map(|kind| WAYS.map(|way| (kind, way))) {
        if (kind, way) == (Kind::With, Waiting::Tickets) && lacks_notify() {
            continue;
        }
        let server = Arc::new(kind.setup().start());
        let name = |number: usize| format!("printer:{number}");
        (0..CROWD).for_each(|number| taken(&server, &name(number)));
        let locks = locks_with(&server, by(way)).await;
        let count = Count::of(&server);
        let tasks = crowd(&locks, name);
        eventually_asked(&server, CROWD).await;
        let is_crowd = (kind, way) == (Kind::With, Waiting::Connections);
        if is_crowd {
            eventually("as many wait as may", || match connections(&server, "waiting") {
                64 => Ok(()),
                other => Err(other),
            })
            .await;
        }
        sleep(millis(300)).await;
        let begun = Instant::now();
        for number in (0..CROWD).rev() {
            server.cmd(["DEL", name(number).as_str()]);
        }
        all_served(tasks).await;
        let took = begun.elapsed().as_millis();
        kind.measured(&format!("ms in which 1,000 tasks take 1,000 locks by {way:?}"), took);
        let most = count.most.load(SeqCst);
        let what = format!("connections of 1,000 tasks that want 1,000 locks by {way:?}");
        kind.measured(&what, most);
        let what = format!("errors of 1,000 tasks that want 1,000 locks by {way:?}");
        kind.measured(&what, errors(&server).len());
        let expected = if is_crowd { 65..=66 } else { 1..=2 };
        assert!(expected.contains(&most), "{most}");
        assert_eq!(errors(&server), [""; 0]);
    }
}

/// The lock of whoever came too late to wait in the server becomes free.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_finds_no_room_to_wait_has_a_lock_that_becomes_free() {
    let server = server();
    for name in ["printer", "scanner"] {
        server.client().grant(name, "somebody", 600_000);
    }
    let settings = by(Waiting::Connections).wait_connections(1);
    let locks = locks_with(&server, settings).await;
    let first = tokio::spawn(locks.lock("printer").into_future());
    eventually_waiting(&server, "printer", 1).await;
    let second = tokio::spawn(locks.lock("scanner").into_future());
    let third = locks.lock("scanner").wait(millis(200)).await;
    assert!(matches!(third, Err(Error::Busy { .. })), "{third:?}");
    server.cmd(["DEL", "scanner"]);
    drop(soon(second).await.unwrap().unwrap());
    assert!(!first.is_finished());
    server.cmd(["DEL", "printer"]);
    drop(soon(first).await.unwrap().unwrap());
}

/// Somebody who has nothing to do with locks: whether the server takes this client.
fn is_let_in(port: u16) -> bool {
    let mut stranger = Client::over_tcp(("127.0.0.1", port)).unwrap();
    stranger.try_cmd("PING").is_ok_and(|reply| reply == Value::SimpleString("PONG".to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_wait_never_shut_others_out() {
    let server = Arc::new(with_module().config("maxclients", "60").start());
    let name = |number: usize| format!("printer:{number}");
    for number in 0..CROWD {
        server.client().grant(name(number), "somebody", 600_000);
    }
    let settings = by(Waiting::Connections).wait_connections(CROWD);
    let locks = locks_with(&server, settings).await;
    let (over, refused) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let stranger = std::thread::spawn({
        let (over, refused, port) = (Arc::clone(&over), Arc::clone(&refused), server.port());
        move || {
            while !over.load(SeqCst) {
                refused.fetch_add(usize::from(!is_let_in(port)), SeqCst);
                std::thread::sleep(millis(5));
            }
        }
    });
    let tasks = crowd(&locks, name);
    eventually("some wait", || match connections(&server, "waiting") {
        30.. => Ok(()),
        other => Err(other),
    })
    .await;
    sleep(millis(1_000)).await;
    for number in 0..CROWD {
        server.cmd(["DEL", name(number).as_str()]);
    }
    all_served(tasks).await;
    over.store(true, SeqCst);
    stranger.join().unwrap();
    assert_eq!(refused.load(SeqCst), 0);
    assert_eq!(number(&info(&server, "stats"), "rejected_connections"), 0);
}

/// So many lose the connections on which they wait, all at once: how many came back within 20 ms at the most, and within
/// what time all of them did.
async fn come_back(kind: Kind, crowd: usize) -> (usize, Duration) {
    let server = kind.setup().start();
    let name = |number: usize| format!("printer:{number}");
    (0..crowd).for_each(|number| taken(&server, &name(number)));
    let settings = by(Waiting::Connections).wait_connections(crowd);
    let locks = locks_with(&server, settings).await;
    let waiters: Vec<_> =
        (0..crowd).map(|number| tokio::spawn(locks.lock(name(number)).into_future())).collect();
    // Without the module they ask again and again, over the connection that all share.
    let (purpose, count) = match kind {
        Kind::With => ("waiting", crowd),
        Kind::Without => ("requests", 1),
    };
    let all_wait = || match connections(&server, purpose) {
        waiting if waiting == count => Ok(()),
        other => Err(other),
    };
    eventually_asked(&server, crowd).await;
    eventually("all of them wait", all_wait).await;
    // On one connection, for each is counted.
    let mut observer = server.client();
    let come = |observer: &mut Client| {
        let stats = bulk_text(&observer.cmd("INFO stats"));
        (Instant::now(), number(&stats, "total_connections_received"))
    };
    let mut seen = vec![come(&mut observer)];
    observer.cmd("CLIENT KILL TYPE normal SKIPME yes");
    let is_over = |seen: &[(Instant, usize)]| match kind {
        Kind::With => seen.last().unwrap().1 >= seen[0].1 + crowd,
        // More would have come by then.
        Kind::Without => seen[0].0.elapsed() > millis(1_000),
    };
    while !is_over(&seen) {
        assert!(seen[0].0.elapsed() < Duration::from_secs(20), "{:?}", seen.last());
        seen.push(come(&mut observer));
    }
    let most = seen.iter().enumerate().map(|(first, (begun, before))| {
        let within = seen[first..].iter().take_while(|(at, _)| *at - *begun <= millis(20));
        within.last().unwrap().1 - before
    });
    eventually("all of them wait again", all_wait).await;
    waiters.iter().for_each(JoinHandle::abort);
    (most.max().unwrap(), seen.last().unwrap().0 - seen[0].0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_who_lose_their_connections_at_once_do_not_come_back_at_once() {
    for kind in Kind::BOTH {
        let (mut most, mut took) = come_back(kind, CROWD).await;
        // After a moment in which a busy machine stood still, those who were due in it come together.
        for _ in 0..3 {
            if most > 100 {
                let (again, it_took) = come_back(kind, CROWD).await;
                (most, took) = if again < most { (again, it_took) } else { (most, took) };
            }
        }
        kind.measured("reconnects of 1,000 waiters within any 20 ms", most);
        if kind == Kind::With {
            kind.measured("ms in which 1,000 waiters reconnect", took.as_millis());
        }
        assert!((1..=100).contains(&most), "{most} in 20 ms");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_lose_their_connections_spread_over_half_a_second() {
    let (_, took) = come_back(Kind::With, 60).await;
    assert!((300..2_000).contains(&took.as_millis()), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_have_names_that_say_what_they_are_for() {
    let server = server();
    let settings = Settings::default().connection_name("billing");
    let named = locks_with(&server, settings).await;
    let _guard = named.lock("printer").await.unwrap();
    let list = || bulk_text(&server.cmd(["CLIENT", "LIST"]));
    assert!(list().contains(" name=billing:requests "), "{}", list());
    let waiter = tokio::spawn(named.lock("printer").into_future());
    eventually_waiting(&server, "printer", 1).await;
    assert!(list().contains(" name=billing:grants "), "{}", list());
    let connected = by(Waiting::Connections).connection_name("billing");
    let connected = locks_with(&server, connected).await;
    let second = tokio::spawn(connected.lock("printer").into_future());
    eventually_waiting(&server, "printer", 2).await;
    assert!(list().contains(" name=billing:waiting "), "{}", list());
    second.abort();
    if !lacks((7, 2), "CLIENT SETINFO") {
        assert!(list().contains(" lib-name=leasehold-client "), "{}", list());
    }
    waiter.abort();
    let unnamed = Settings::default().connection_name("");
    drop(locks_with(&server, unnamed).await.try_lock("scanner").await);
    let bad = Locks::with_settings(url(1), Settings::default().connection_name("a b"));
    assert!(matches!(bad, Err(Error::Setting { name, .. }) if name == "connection_name"));
    // The only mistake is to have asked for tickets with NOTIFY where there are none.
    let expected = usize::from(lacks_notify());
    assert_eq!(errors(&server).len(), expected, "{:?}", errors(&server));
}

/// The request is on its way when it is dropped, and what is sent on other connections overtakes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_request_leaves_no_lock_behind_on_a_connection_that_is_slow() {
    for kind in Kind::BOTH {
        let ways: &[_] = match kind {
            Kind::With => &WAYS,
            Kind::Without => &[Waiting::Connections],
        };
        for way in ways.iter().copied() {
            for (delay, owner) in [(250, Some("worker-7")), (800, None)] {
                let took = dropped_on_a_slow_connection(kind, way, delay, owner).await;
                let what =
                    format!("ms until a request that is {delay} ms away is taken back by {way:?}");
                kind.measured(&what, took.as_millis());
            }
        }
    }
}

async fn dropped_on_a_slow_connection(
    kind: Kind,
    way: Waiting,
    delay: u64,
    owner: Option<&str>,
) -> Duration {
    let server = kind.setup().start();
    // The shared connection is the first one: without the module it is the only one, and tickets are asked for on it.
    let is_parked = (kind, way) == (Kind::With, Waiting::Connections);
    let fast = if is_parked { 1 } else { 0 };
    let link = Proxy::to(server.port());
    link.slow_all_but(fast, millis(delay));
    let settings = by(way).response(millis(5_000));
    let locks = Locks::connect_with(url(link.port()), settings).await.unwrap();
    taken(&server, "printer");
    let mut request = locks.lock("printer").ttl(LONG);
    if let Some(owner) = owner {
        request = request.owner(owner);
    }
    let waiter = tokio::spawn(request.into_future());
    if is_parked {
        eventually("the connection is open", || match connections(&server, "waiting") {
            1 => Ok(()),
            other => Err(other),
        })
        .await;
    } else {
        eventually_asked(&server, 1).await;
    }
    // What tells of the connection, or that the lock is taken, is on its way back, and then the
    // request on its way there.
    sleep(millis(delay + delay / 2)).await;
    server.cmd(["DEL", "printer"]);
    waiter.abort();
    let begun = Instant::now();
    assert!(waiter.await.is_err(), "it had the lock already");
    soon(locks.settle()).await;
    let took = begun.elapsed();
    assert_eq!(held(&server, "printer"), None, "{delay} ms");
    // On a connection that others share its release is asked for in up to three ways there and back.
    let most = if is_parked { 4 * delay } else { 8 * delay };
    assert!(took < millis(most), "{took:?}");
    // Nothing comes after.
    sleep(millis(2 * delay)).await;
    assert_eq!(held(&server, "printer"), None, "{delay} ms");
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_a_server_that_is_silent_is_told_in_the_end() {
    for kind in Kind::BOTH {
        let mut server = kind.setup().start();
        taken(&server, "printer");
        let settings = Settings::default()
            .slice(millis(100))
            .response(millis(200))
            .unreachable_after(millis(1_000));
        let locks = locks_with(&server, settings).await;
        let waiter = tokio::spawn(locks.lock("printer").into_future());
        match kind {
            Kind::With => eventually_waiting(&server, "printer", 1).await,
            Kind::Without => eventually_asked(&server, 2).await,
        }
        server.freeze();
        let begun = Instant::now();
        let error = soon(waiter).await.unwrap().unwrap_err();
        let took = begun.elapsed();
        kind.measured("ms until a waiter gives a silent server up, limit 1,000", took.as_millis());
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
        assert!(took < millis(3_000), "{took:?}");
        let error = soon(locks.lock("scanner").into_future()).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
        server.thaw();
        eventually_free(&server, "scanner").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_can_be_made_before_its_server_is_started() {
    for kind in Kind::BOTH {
        let mut server = kind.setup().start();
        server.kill();
        let locks = Locks::new(url(server.port())).unwrap();
        let waiter = tokio::spawn(locks.lock("printer").into_future());
        sleep(millis(200)).await;
        assert!(!waiter.is_finished());
        server.start_again();
        drop(soon(waiter).await.unwrap().unwrap());
        locks.settle().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_stand_behind_others_hear_of_a_silent_server_when_these_do() {
    for (kind, owner) in Kind::BOTH.into_iter().flat_map(|it| [(it, None), (it, Some("worker-7"))])
    {
        let mut server = kind.setup().start();
        let settings = Settings::default().unreachable_after(millis(1_000));
        let locks = locks_with(&server, settings).await;
        server.kill();
        let begun = Instant::now();
        let asked = (0..8).map(|_| {
            let request = locks.lock("printer");
            let request = match owner {
                Some(owner) => request.owner(owner),
                None => request,
            };
            tokio::spawn(request.into_future())
        });
        for request in asked.collect::<Vec<_>>() {
            let error = soon(request).await.unwrap().unwrap_err();
            assert!(matches!(error, Error::Unreachable { .. }), "{error}");
        }
        assert!(begun.elapsed() < millis(5_000), "{:?}", begun.elapsed());
    }
}

/// The end of a connection does not show that the release was executed which was sent last.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_connection_is_cut_as_it_is_dropped_leaves_no_lock_behind() {
    let server = server();
    let proxy = Proxy::to(server.port());
    server.client().grant("printer", "somebody", 600_000);
    let settings = Settings::default().response(millis(300));
    let locks = Locks::connect_with(url(proxy.port()), settings).await.unwrap();
    let waiter = tokio::spawn(locks.lock("printer").ttl(LONG).into_future());
    eventually_waiting(&server, "printer", 1).await;
    proxy.cut();
    server.cmd(["DEL", "printer"]);
    eventually("it is granted", || held(&server, "printer").ok_or(())).await;
    waiter.abort();
    let _ = waiter.await;
    proxy.heal();
    soon(locks.settle()).await;
    assert_eq!(held(&server, "printer"), None);
}
