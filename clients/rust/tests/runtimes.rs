//! One client on several runtimes at the same time, as in a static: none depends on another one.

use crate::scene::{
    LONG, both_kinds, client, eventually_free, held, lock, millis, poll_once, quorum, soon,
    standing, ttl_of, url, with_module, without_module,
};
use leasehold_client::{Error, Extended, Locks, Loss, Released, Settings};
use std::pin::pin;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(3);

#[test]
fn a_guard_is_renewed_on_when_the_runtime_that_was_there_first_ends() {
    for server in both_kinds() {
        let locks = client(&server);
        let (ready, is_ready) = mpsc::channel();
        let (end, is_to_end) = mpsc::channel::<()>();
        let theirs = locks.clone();
        let first = thread::spawn(move || {
            let runtime = standing();
            let guard = lock(&runtime, theirs.lock("scanner").ttl(millis(600)));
            ready.send(()).unwrap();
            is_to_end.recv().unwrap();
            drop(runtime);
            assert_eq!(guard.loss(), Some(Loss::Expired), "nobody renews it");
        });
        is_ready.recv().unwrap();
        let ours = standing();
        let guard = lock(&ours, locks.lock("printer").ttl(millis(600)));
        end.send(()).unwrap();
        first.join().unwrap();
        ours.block_on(async {
            assert_eq!(timeout(millis(2_000), guard.lost()).await.ok(), None);
            assert!(held(&server, "printer").unwrap().ends_with(guard.owner()));
            assert_eq!(soon(guard.release()).await.unwrap(), Released::Released);
        });
    }
}

#[test]
fn two_runtimes_use_one_client_in_two_threads() {
    for server in both_kinds() {
        let locks = client(&server);
        let threads = ["a", "b"].map(|name| {
            let locks = locks.clone();
            thread::spawn(move || {
                for run in 0..5 {
                    standing().block_on(async {
                        let ours = locks.lock(name).ttl(LONG).await.unwrap();
                        for _ in 0..10 {
                            let shared = soon(locks.lock("shared").ttl(LONG)).await.unwrap();
                            assert_eq!((shared.loss(), ours.loss()), (None, None), "{run}");
                            assert_eq!(shared.release().await.unwrap(), Released::Released);
                        }
                        assert_eq!(ours.release().await.unwrap(), Released::Released);
                    });
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

#[test]
fn a_runtime_that_nobody_drives_keeps_no_other_from_locking_and_releasing() {
    for server in both_kinds() {
        let (locks, idle, ours) = (client(&server), standing(), standing());
        let theirs = lock(&idle, locks.lock("printer").ttl(LONG));
        let begun = Instant::now();
        ours.block_on(async {
            let guard = soon(locks.lock("scanner").ttl(LONG)).await.unwrap();
            assert!(soon(locks.try_lock("printer")).await.unwrap().is_none());
            assert_eq!(soon(guard.release()).await.unwrap(), Released::Released);
            // A guard may be moved from one to the other.
            assert_eq!(soon(theirs.release()).await.unwrap(), Released::Released);
        });
        assert!(begun.elapsed() < millis(2_000), "{:?}", begun.elapsed());
        assert_eq!((held(&server, "printer"), held(&server, "scanner")), (None, None));
    }
}

#[test]
fn a_guard_that_is_dropped_outside_of_any_runtime_is_released_by_that_of_its_request() {
    for server in both_kinds() {
        let locks = client(&server);
        let (idle, driven) =
            (standing(), Builder::new_multi_thread().enable_all().build().unwrap());
        let _theirs = lock(&idle, locks.lock("scanner").ttl(LONG));
        drop(lock(&driven, locks.lock("printer").ttl(LONG)));
        driven.block_on(eventually_free(&server, "printer"));
    }
}

#[test]
fn the_loss_of_a_guard_is_seen_although_nobody_drives_its_runtime() {
    for server in both_kinds() {
        let (locks, idle, ours) = (client(&server), standing(), standing());
        let guards = ["a", "b"].map(|name| lock(&idle, locks.lock(name).ttl(millis(500))));
        let [awaited, watched] = &guards;
        ours.block_on(async {
            let cancelled = watched.cancellation();
            assert_eq!(soon(awaited.lost()).await, Loss::Expired);
            soon(cancelled.cancelled()).await;
            assert_eq!(watched.loss(), Some(Loss::Expired));
        });
    }
}

#[test]
fn a_guard_that_shares_its_grant_with_another_runtime_outlives_it() {
    for server in both_kinds() {
        let (locks, first, ours) = (client(&server), standing(), standing());
        let alice = || locks.lock("printer").owner("alice").ttl(millis(600));
        let (theirs, guard) = (lock(&first, alice()), lock(&ours, alice()));
        assert_eq!(theirs.fence(), guard.fence());
        drop(first);
        ours.block_on(async {
            assert_eq!(timeout(millis(2_000), guard.lost()).await.ok(), None);
            drop(theirs);
            assert_eq!(soon(guard.release()).await.unwrap(), Released::Released);
        });
        assert_eq!(held(&server, "printer"), None);
    }
}

#[test]
fn a_request_does_not_stand_behind_one_that_nobody_drives() {
    for server in both_kinds() {
        let (locks, idle, ours) = (client(&server), standing(), standing());
        let holder = client(&server);
        ours.block_on(async {
            let guard = soon(holder.lock("printer").ttl(LONG)).await.unwrap();
            let first = idle.spawn(locks.lock("printer").ttl(millis(500)).into_future());
            // Long enough for it to ask, and to wait.
            thread::scope(|scope| {
                let drive = async { timeout(millis(200), std::future::pending::<()>()).await };
                scope.spawn(|| idle.block_on(drive)).join().unwrap().unwrap_err();
            });
            let next = tokio::spawn(locks.lock("printer").ttl(LONG).into_future());
            assert_eq!(soon(guard.release()).await.unwrap(), Released::Released);
            // The server may grant it to the first one, which does not renew it.
            let next = soon(next).await.unwrap().unwrap();
            assert_eq!(next.loss(), None);
            first.abort();
        });
    }
}

#[test]
fn a_request_does_not_stand_behind_a_release_that_nobody_drives() {
    for mut server in both_kinds() {
        let (locks, idle, ours) = (client(&server), standing(), standing());
        let alice = || locks.lock("printer").owner("alice").ttl(LONG);
        let guard = lock(&ours, alice());
        server.freeze();
        idle.block_on(async {
            assert!(timeout(millis(50), guard.release()).await.is_err());
        });
        server.thaw();
        let next = lock(&ours, alice());
        ours.block_on(async {
            assert_eq!(soon(next.release()).await.unwrap(), Released::Released);
        });
    }
}

#[test]
fn a_request_is_told_if_another_one_of_its_owner_stands_still() {
    for server in both_kinds() {
        let settings = Settings::default().unreachable_after(millis(1_000));
        let locks = Locks::with_settings(url(server.port()), settings).unwrap();
        let (idle, ours, holder) = (standing(), standing(), client(&server));
        let guard = lock(&ours, holder.lock("printer").ttl(LONG));
        let alice = || locks.lock("printer").owner("alice").ttl(LONG).into_future();
        let first = idle.spawn(alice());
        idle.block_on(async { tokio::time::sleep(millis(200)).await });
        ours.block_on(async {
            let told = soon(alice()).await.unwrap_err();
            assert!(matches!(told, Error::Unreachable { .. }), "{told}");
            assert!(told.to_string().contains("a runtime that nobody drives"), "{told}");
        });
        // As long as somebody drives it, the others wait.
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let driven = thread::spawn(move || {
            idle.block_on(async {
                while is_done.try_recv().is_err() {
                    tokio::time::sleep(millis(10)).await;
                }
                first.abort();
            });
        });
        ours.block_on(async {
            assert!(timeout(millis(3_000), alice()).await.is_err());
            done.send(()).unwrap();
            assert_eq!(soon(guard.release()).await.unwrap(), Released::Released);
        });
        driven.join().unwrap();
    }
}

/// It loses its turn, and nothing else stands behind it.
#[test]
fn whoever_waits_for_its_turn_on_a_runtime_that_nobody_drives_holds_up_nobody() {
    for server in both_kinds() {
        let (locks, idle, ours, holder) =
            (client(&server), standing(), standing(), client(&server));
        let alice = || locks.lock("printer").owner("alice").ttl(LONG).into_future();
        let guard = lock(&ours, holder.lock("printer").ttl(LONG));
        let mut first = Box::pin(alice());
        ours.block_on(poll_once(first.as_mut()));
        let mut second = Box::pin(alice());
        idle.block_on(poll_once(second.as_mut()));
        ours.block_on(async {
            drop(guard);
            let guard = soon(first).await.unwrap();
            assert_eq!(soon(guard.release()).await.unwrap(), Released::Released);
            let guard = soon(alice()).await.unwrap();
            assert_eq!(soon(guard.release()).await.unwrap(), Released::Released);
        });
        assert_eq!(held(&server, "printer"), None);
        // Driven again, it has its turn.
        let guard = idle.block_on(async { soon(second).await.unwrap() });
        assert!(held(&server, "printer").unwrap().ends_with("alice"));
        idle.block_on(async { assert!(guard.release().await.unwrap().in_time()) });
    }
}

#[test]
fn whoever_closes_a_client_releases_what_runtimes_hold_that_nobody_drives() {
    for server in both_kinds() {
        let (locks, idle, ours) = (client(&server), standing(), standing());
        let other = client(&server);
        let guard = lock(&idle, locks.lock("held").ttl(LONG));
        let busy = lock(&ours, other.lock("busy").ttl(LONG));
        idle.block_on(async {
            let dropped = soon(locks.lock("dropped").ttl(LONG)).await.unwrap();
            let waiting = tokio::spawn(locks.lock("busy").ttl(LONG).into_future());
            assert!(timeout(millis(200), waiting).await.is_err());
            // Its release is not begun before the runtime stands still.
            drop(dropped);
        });
        let begun = Instant::now();
        let left = ours.block_on(locks.close(LIMIT));
        assert!(begun.elapsed() < LIMIT + millis(500), "{:?}", begun.elapsed());
        assert_eq!(left, Vec::<String>::new());
        assert_eq!((held(&server, "held"), held(&server, "dropped")), (None, None));
        assert_eq!(guard.loss(), Some(Loss::Closed));
        idle.block_on(async {
            assert!(matches!(soon(guard.release()).await, Err(Error::Closed)));
        });
        ours.block_on(async {
            assert_eq!(soon(busy.release()).await.unwrap(), Released::Released);
        });
    }
}

#[test]
fn an_extension_that_nobody_drives_keeps_no_other_runtime_from_extending_and_renewing() {
    for server in both_kinds() {
        let (locks, idle, ours) = (client(&server), standing(), standing());
        let alice = || locks.lock("printer").owner("alice").ttl(millis(900));
        let (theirs, guard) = (lock(&idle, alice()), lock(&ours, alice()));
        let mut begun = pin!(theirs.extend(millis(900)));
        idle.block_on(poll_once(begun.as_mut()));
        ours.block_on(async {
            assert_eq!(timeout(millis(2_500), guard.lost()).await.ok(), None);
            let extended = timeout(millis(600), guard.extend(millis(900))).await.unwrap();
            assert_eq!(extended.unwrap(), Extended::Extended);
        });
        // Nobody has read its answer in time, which costs the guards nothing.
        let _ = idle.block_on(begun);
        assert_eq!(guard.loss(), None);
    }
}

#[test]
fn a_renewal_that_nobody_drives_keeps_no_other_runtime_from_renewing() {
    for mut server in both_kinds() {
        let (locks, idle) = (client(&server), standing());
        let driven = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let alice = || locks.lock("printer").owner("alice").ttl(millis(3_000));
        let (theirs, guard) = (lock(&idle, alice()), lock(&driven, alice()));
        let drive = |time| idle.block_on(async { tokio::time::sleep(time).await });
        // Both runtimes are renewing it when one of them stands still.
        drive(millis(700));
        server.freeze();
        drive(millis(500));
        server.thaw();
        driven.block_on(async {
            assert_eq!(timeout(millis(5_000), guard.lost()).await.ok(), None);
        });
        assert!(ttl_of(&server, "printer") > 0);
        assert_eq!(theirs.fence(), guard.fence());
    }
}

#[test]
fn whoever_closes_a_quorum_releases_what_runtimes_hold_that_nobody_drives() {
    for setup in [with_module, without_module] {
        let servers = [setup().start(), setup().start(), setup().start()];
        let (idle, ours) = (standing(), standing());
        let quorum = idle.block_on(quorum(&servers));
        let lock = |name: &str| quorum.lock(name).ttl(LONG);
        let guards = idle.block_on(async {
            let guard = soon(lock("held")).await.unwrap();
            assert!(soon(lock("kept")).await.unwrap().keep() > LONG / 2);
            let least = soon(lock("least").hold_at_least(LONG / 2)).await.unwrap();
            [guard, least]
        });
        let begun = Instant::now();
        let left = ours.block_on(quorum.close(LIMIT));
        assert!(begun.elapsed() < LIMIT + millis(500), "{:?}", begun.elapsed());
        assert_eq!(left, Vec::<String>::new());
        for server in &servers {
            assert_eq!(held(server, "held"), None);
            assert!(ttl_of(server, "kept") > 30_000, "it is to stay");
            assert!((1..=30_001).contains(&ttl_of(server, "least")), "it is to stay for so long");
        }
        for guard in guards {
            assert_eq!((guard.loss(), guard.valid_for()), (Some(Loss::Closed), Duration::ZERO));
            assert!(matches!(idle.block_on(guard.release()), Err(Error::Closed)));
        }
    }
}
