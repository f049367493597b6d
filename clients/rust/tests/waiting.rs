//! Waiting for a lock that somebody else has.

use crate::scene::{
    Kind, LONG, WAYS, by, eventually, eventually_free, eventually_waiting, held, locks, locks_with,
    millis, poll_once, server, soon, url, waiters, without_module,
};
use leasehold_client::{Error, Guard, Locks, Quorum, Released, Settings, Waiting};
use redis::Value;
use std::pin::pin;
use std::time::{Duration, Instant};
use testkit::{Proxy, Seed, Server, bulk_text, figure, lacks_notify, short_or_long};
use tokio::task::JoinHandle;
use tokio::time::sleep;

type Waiter = JoinHandle<Result<(Guard, Instant), Error>>;

/// Waits in a task of its own; returns when the request is in the queue.
async fn waits(server: &Server, locks: &Locks, ttl: Duration) -> Waiter {
    let before = waiters(server, "printer");
    let request = locks.lock("printer").ttl(ttl);
    let waiter = tokio::spawn(async move { request.await.map(|guard| (guard, Instant::now())) });
    eventually_waiting(server, "printer", before + 1).await;
    waiter
}

async fn taken(server: &Server) -> Guard {
    locks(server).await.lock("printer").ttl(LONG).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_goes_to_whoever_has_waited_longest_also_when_requests_are_looked_after() {
    for way in WAYS {
        let server = server();
        let guard = taken(&server).await;
        // Each is looked after many times while it waits.
        let mut queue = Vec::new();
        for _ in 0..4 {
            let locks = locks_with(&server, by(way).slice(millis(100))).await;
            queue.push(waits(&server, &locks, LONG).await);
        }
        sleep(millis(1_000)).await;
        assert_eq!(waiters(&server, "printer"), 4);
        let mut holder = guard;
        for waiter in queue {
            let fence = holder.fence();
            assert_eq!(holder.release().await.unwrap(), Released::Released);
            holder = soon(waiter).await.unwrap().unwrap().0;
            assert!(holder.fence() > fence);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_is_granted_the_lock_without_polling() {
    for way in WAYS {
        let server = server();
        let guard = taken(&server).await;
        let waiter = waits(&server, &locks_with(&server, by(way)).await, LONG).await;
        sleep(millis(300)).await;
        let released = Instant::now();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        let (_next, granted) = soon(waiter).await.unwrap().unwrap();
        let took = granted - released;
        assert!(took < millis(250), "{took:?}");
        let micros = took.as_micros();
        figure(&format!("client: a hand-off from guard to guard takes {micros} us, {way:?}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn patience_ends_in_an_error_and_leaves_no_one_in_the_queue() {
    for way in WAYS {
        for slice in [millis(5_000), millis(100)] {
            let server = server();
            let _guard = taken(&server).await;
            let locks = locks_with(&server, by(way).slice(slice)).await;
            let begun = Instant::now();
            let error = locks.lock("printer").wait(millis(500)).await.unwrap_err();
            assert!(
                matches!(error, Error::Busy { ref name, waited }
                if name == "printer" && waited >= millis(500)),
                "{error}"
            );
            assert!(begun.elapsed() < millis(1_400), "{:?}", begun.elapsed());
            assert_eq!(waiters(&server, "printer"), 0);
        }
    }
}

/// The last try has as long for its answer as any other, whatever is left of the wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_ends_is_busy_also_where_the_server_is_far() {
    const ROUND_TRIP: Duration = millis(6);
    for kind in Kind::BOTH {
        let server = kind.setup().start();
        let near = locks(&server).await;
        let names: Vec<_> = (0..100_u64).map(|number| format!("printer:{number}")).collect();
        let mut held = Vec::new();
        for name in &names {
            held.push(near.lock(name).ttl(LONG).await.unwrap());
        }
        let proxy = Proxy::to(server.port());
        proxy.slow(ROUND_TRIP / 2);
        for way in WAYS {
            let patient = by(way).response(millis(5_000));
            let far = Locks::connect_with(url(proxy.port()), patient).await.unwrap();
            let quorum = Quorum::connect([url(proxy.port())]).await.unwrap();
            let quorum = quorum.server_limit(millis(5_000));
            let waits = names.iter().zip(1..).map(|(name, patience)| {
                let (one, most) = (far.lock(name), quorum.lock(name));
                let (one, most) = (one.wait(millis(patience)), most.wait(millis(patience)));
                tokio::spawn(async move { [one.await.map(drop), most.await.map(drop)] })
            });
            for wait in waits.collect::<Vec<_>>() {
                for came in soon(wait).await.unwrap() {
                    assert!(matches!(came, Err(Error::Busy { .. })), "{kind}, {way:?}: {came:?}");
                }
            }
        }
        drop(held);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_wait_do_not_hinder_those_who_ask_for_another_lock() {
    for way in WAYS {
        let server = server();
        let guard = taken(&server).await;
        let locks = locks_with(&server, by(way)).await;
        let first = waits(&server, &locks, LONG).await;
        let others = (0..9).map(|_| {
            let request = locks.lock("printer");
            tokio::spawn(async move { drop(request.await.unwrap()) })
        });
        let others: Vec<_> = others.collect();
        let begun = Instant::now();
        for _ in 0..20 {
            let other = locks.try_lock("scanner").await.unwrap().expect("it is free");
            assert_eq!(other.release().await.unwrap(), Released::Released);
        }
        assert!(begun.elapsed() < millis(1_000), "{:?}", begun.elapsed());
        drop(guard);
        drop(soon(first).await.unwrap().unwrap());
        for waiter in others {
            soon(waiter).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_was_waited_for_is_counted_from_the_grant() {
    for way in WAYS {
        let server = server();
        let guard = taken(&server).await;
        let waiter = waits(&server, &locks_with(&server, by(way)).await, millis(1_000)).await;
        // Longer than the ttl that was asked for.
        sleep(millis(1_500)).await;
        let released = Instant::now();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        let (next, _) = soon(waiter).await.unwrap().unwrap();
        assert!(next.valid_for() > millis(500), "{:?}", next.valid_for());
        assert!(next.valid_for() < millis(1_000));
        sleep(millis(1_500)).await;
        assert_eq!(next.loss(), None, "it is renewed, {:?} later", released.elapsed());
    }
}

/// The grant is made, and the answer never arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_has_died_without_a_word_costs_no_more_than_a_slice() {
    for way in WAYS {
        let server = server();
        let proxy = Proxy::to(server.port());
        let guard = taken(&server).await;
        let settings = by(way).slice(millis(600)).response(millis(300));
        let unlucky = Locks::connect_with(url(proxy.port()), settings).await.unwrap();
        let first = waits(&server, &unlucky, LONG).await;
        let second = waits(&server, &locks_with(&server, by(way)).await, LONG).await;
        proxy.deafen();
        let released = Instant::now();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        let (first, granted) = soon(first).await.unwrap().unwrap();
        assert!(granted - released < millis(3_000), "{:?}", granted - released);
        let fence = first.fence();
        assert_eq!(waiters(&server, "printer"), 1, "the second one waits, the first one no more");
        assert_eq!(first.release().await.unwrap(), Released::Released);
        assert!(soon(second).await.unwrap().unwrap().0.fence() > fence);
    }
}

/// The connection dies while the lock is still held, and the place in the queue is kept.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_lost_a_connection_keeps_the_place_in_the_queue() {
    for way in WAYS {
        let server = server();
        let proxy = Proxy::to(server.port());
        let guard = taken(&server).await;
        let settings = by(way).slice(millis(300)).response(millis(300));
        let unlucky = Locks::connect_with(url(proxy.port()), settings).await.unwrap();
        let first = waits(&server, &unlucky, LONG).await;
        let second = waits(&server, &locks_with(&server, by(way)).await, LONG).await;
        proxy.deafen();
        let before = proxy.connections();
        eventually("it has asked again", || match proxy.connections() - before {
            0 => Err(()),
            _ => Ok(()),
        })
        .await;
        eventually_waiting(&server, "printer", 2).await;
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        let first = soon(first).await.unwrap().unwrap().0;
        assert!(!second.is_finished());
        drop(first);
        drop(soon(second).await.unwrap().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_stops_waiting_leaves_the_queue() {
    for way in WAYS {
        let server = server();
        let guard = taken(&server).await;
        let waiter = waits(&server, &locks_with(&server, by(way)).await, LONG).await;
        waiter.abort();
        eventually_waiting(&server, "printer", 0).await;
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        assert_eq!(held(&server, "printer"), None);
    }
}

/// Requests are dropped at any moment around the hand-off: heard or not, nobody holds the lock afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_dropped_leaves_no_lock_behind() {
    for way in WAYS {
        let mut seed = Seed::announced();
        for server in [server(), without_module().start()] {
            let locks = locks_with(&server, by(way)).await;
            let cycles = short_or_long(40, 500);
            let mut granted = 0;
            for _ in 0..cycles {
                let guard = locks.lock("printer").ttl(LONG).await.unwrap();
                let request = locks.lock("printer").ttl(LONG);
                let waiter = tokio::spawn(async move { request.await.map(drop) });
                rest(&mut seed, 3_000);
                drop(guard);
                rest(&mut seed, 1_000);
                waiter.abort();
                granted += i32::from(waiter.await.is_ok());
                locks.settle().await;
                eventually_free(&server, "printer").await;
            }
            assert!(granted < cycles, "none of them was dropped in time");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_goes_on_waiting_when_the_server_is_gone_for_a_while() {
    for way in WAYS {
        let mut server = server();
        let guard = taken(&server).await;
        let waiter = waits(&server, &locks_with(&server, by(way)).await, LONG).await;
        server.kill();
        sleep(millis(300)).await;
        // Its data is lost, and so the lock is free.
        server.start_again();
        let next = soon(waiter).await.unwrap().unwrap().0;
        assert!(next.fence() > guard.fence());
    }
}

/// The server reads what was sent meanwhile in any order, and requests of one owner replace each other.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_goes_on_waiting_when_the_server_hangs_for_a_while() {
    for way in WAYS {
        let mut server = server();
        let guard = taken(&server).await;
        let settings = by(way).slice(millis(100)).response(millis(200));
        let mut queue = Vec::new();
        for _ in 0..8 {
            let patient = locks_with(&server, settings.clone()).await;
            queue.push(waits(&server, &patient, LONG).await);
        }
        for _ in 0..3 {
            server.freeze();
            sleep(millis(350)).await;
            server.thaw();
            sleep(millis(150)).await;
        }
        eventually_waiting(&server, "printer", 8).await;
        assert_eq!(queue.iter().filter(|waiter| waiter.is_finished()).count(), 0);
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        // In any order: a place may be lost with a connection that was given up.
        let granted =
            queue.into_iter().map(|waiter| async { drop(soon(waiter).await.unwrap().unwrap()) });
        soon(futures_util::future::join_all(granted)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_a_server_that_stays_away_is_told_so() {
    for way in WAYS {
        let mut server = server();
        let _guard = taken(&server).await;
        let locks = locks_with(&server, by(way)).await;
        let request = locks.lock("printer").wait(millis(800));
        let waiter = tokio::spawn(async move { request.await });
        eventually_waiting(&server, "printer", 1).await;
        server.kill();
        let error = soon(waiter).await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_finds_the_queue_full_asks_again_until_patience_ends() {
    for way in WAYS {
        let server = crate::scene::with_module().module_args("max-waiters 1 max-tickets 1");
        let server = server.start();
        let guard = taken(&server).await;
        let client = locks_with(&server, by(way)).await;
        let first = waits(&server, &locks_with(&server, by(way)).await, LONG).await;
        let refused = client.lock("printer").wait(millis(300)).await.unwrap_err();
        assert!(refused.to_string().contains("QUEUEFULL"), "{refused}");
        let request = client.lock("printer");
        let second = tokio::spawn(async move { request.await });
        sleep(millis(100)).await;
        assert!(!second.is_finished());
        drop(guard);
        drop(soon(first).await.unwrap().unwrap());
        assert!(soon(second).await.unwrap().is_ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_module_whoever_waits_polls() {
    for way in WAYS {
        let server = without_module().start();
        let guard = taken(&server).await;
        let client = locks_with(&server, by(way)).await;
        let refused = client.lock("printer").wait(millis(200)).await.unwrap_err();
        assert!(matches!(refused, Error::Busy { .. }), "{refused}");
        let request = client.lock("printer").ttl(LONG);
        let waiter = tokio::spawn(async move { request.await });
        sleep(millis(300)).await;
        assert!(!waiter.is_finished());
        let fence = guard.fence();
        drop(guard);
        assert!(soon(waiter).await.unwrap().unwrap().fence() > fence);
    }
}

/// Neither side tells the other: the server has closed the connection, and the client does not hear of it.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_was_lost_by_the_server_asks_again() {
    let server = server();
    let proxy = Proxy::to(server.port());
    let guard = taken(&server).await;
    let settings = by(Waiting::Connections).slice(millis(300)).response(millis(300));
    let unlucky = Locks::connect_with(url(proxy.port()), settings).await.unwrap();
    let waiter = waits(&server, &unlucky, LONG).await;
    proxy.deafen();
    let list = bulk_text(&server.cmd(["CLIENT", "LIST"]));
    let line = list.lines().find(|line| line.contains("name=leasehold:waiting")).unwrap();
    let id = line.split(' ').find_map(|field| field.strip_prefix("id=")).unwrap();
    assert_eq!(server.cmd(["CLIENT", "KILL", "ID", id]), Value::Int(1));
    assert_eq!(waiters(&server, "printer"), 0);
    eventually_waiting(&server, "printer", 1).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    drop(soon(waiter).await.unwrap().unwrap());
}

/// The others go on: this thread is the test's own. Timers of the runtime are not fine enough.
fn rest(seed: &mut Seed, longest_micros: usize) {
    std::thread::sleep(Duration::from_micros(seed.below(longest_micros) as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_that_is_dropped_leaves_no_lock_behind() {
    let mut seed = Seed::announced();
    let server = server();
    let locks = locks(&server).await;
    for _ in 0..short_or_long(40, 500) {
        let theirs = locks.clone();
        let asked = tokio::spawn(async move { theirs.try_lock("printer").await.map(drop) });
        rest(&mut seed, 400);
        asked.abort();
        let _ = asked.await;
        locks.settle().await;
        eventually_free(&server, "printer").await;
    }
}

/// Those who may use locks and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_use_little_more_than_locks_waits_like_others() {
    let server = server();
    let made =
        server.cmd("ACL SETUSER worker on >secret ~* +lock.acquire +lock.release +lock.extend");
    assert_eq!(made, Value::Okay);
    let url = format!("redis://worker:secret@127.0.0.1:{}", server.port());
    let settings = Settings::default().slice(millis(100));
    let locks = Locks::connect_with(url, settings).await.unwrap();
    let guard = locks.lock("printer").ttl(LONG).await.unwrap();
    let waiter = tokio::spawn(locks.lock("printer").ttl(LONG).into_future());
    eventually_waiting(&server, "printer", 1).await;
    sleep(millis(500)).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    drop(soon(waiter).await.unwrap().unwrap());
}

/// A connection that is opened by a task which is then busy with something else.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_first_and_then_does_something_else_keeps_nobody_from_connecting() {
    let server = server();
    let link = Proxy::to(server.port());
    link.slow(millis(100));
    let locks = Locks::new(url(link.port())).unwrap();
    let mut first = Box::pin(locks.lock("printer").into_future());
    // It begins to connect, and is not looked at again.
    assert!(tokio::time::timeout(millis(10), &mut first).await.is_err());
    drop(soon(locks.lock("scanner")).await.unwrap());
    drop(soon(first).await.unwrap());
}

/// A future that was begun, and is not driven while its task awaits something else, as in a loop over many.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_nobody_drives_holds_up_nobody_of_its_process() {
    for way in WAYS {
        let server = server();
        let (locks, other) = (locks_with(&server, by(way)).await, locks(&server).await);
        let held = other.lock("printer").ttl(LONG).await.unwrap();
        let mut left = pin!(locks.lock("printer").ttl(millis(500)).into_future());
        while waiters(&server, "printer") == 0 {
            poll_once(left.as_mut()).await;
            sleep(millis(5)).await;
        }
        assert_eq!(held.release().await.unwrap(), Released::Released);
        for _ in 0..2 {
            assert_eq!(soon(locks.lock("printer").ttl(LONG)).await.unwrap().name(), "printer");
        }
        locks.settle().await;
    }
}

/// The same of as many as may ask for a place at a time, for other locks.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_nobody_drives_hold_up_none_for_other_locks() {
    if lacks_notify() {
        return;
    }
    let server = server();
    let proxy = Proxy::to(server.port());
    // Longer than it takes to begin all of them.
    let settings = Settings::default().response(millis(3_000));
    let client = Locks::connect_with(url(proxy.port()), settings).await.unwrap();
    let other = locks(&server).await;
    let mut held = Vec::new();
    for number in 0..300 {
        held.push(other.lock(format!("x{number}")).ttl(LONG).await.unwrap());
    }
    let wanted = other.lock("wanted").ttl(LONG).await.unwrap();
    // From now on it asks for places at once.
    assert!(client.lock("x0").wait(millis(200)).await.is_err());
    proxy.hold();
    let asks = |number| Box::pin(client.lock(format!("x{number}")).ttl(LONG).into_future());
    let mut left: Vec<_> = (0..300).map(asks).collect();
    for _ in 0..3 {
        for some in left.chunks_mut(20) {
            for request in some {
                poll_once(request.as_mut()).await;
            }
            // What they ask is sent meanwhile: there is room for no more than fifty.
            sleep(millis(2)).await;
        }
    }
    proxy.deliver();
    eventually_waiting(&server, "x255", 1).await;
    // All of them have their answers, and nobody looks at them.
    let waiting = tokio::spawn(client.lock("wanted").ttl(LONG).into_future());
    eventually_waiting(&server, "wanted", 1).await;
    assert_eq!(wanted.release().await.unwrap(), Released::Released);
    assert_eq!(soon(waiting).await.unwrap().unwrap().name(), "wanted");
    drop((left, held));
}
