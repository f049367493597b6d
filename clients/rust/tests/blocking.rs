//! Programs that have no runtime.

use crate::scene::{LONG, both_kinds, held, millis, server, url, waiters};
use leasehold_client::blocking::{Guard, Locks};
use leasehold_client::{Error, Extended, Loss, Options, Released, Settings};
use std::thread;
use std::time::Duration;
use testkit::{Server, eventually};

fn locks(server: &Server) -> Locks {
    Locks::new(url(server.port())).unwrap()
}

fn lock(locks: &Locks, name: &str) -> Guard {
    locks.lock(name, Options::new().wait(LONG)).unwrap()
}

#[test]
fn threads_take_a_lock_one_after_the_other() {
    for server in both_kinds() {
        let (ours, theirs) = (locks(&server), locks(&server));
        let first = lock(&ours, "printer");
        assert!(theirs.try_lock("printer").unwrap().is_none());
        let busy = theirs.lock("printer", Options::new().wait(millis(30)));
        assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
        let fence = first.fence();
        let next = thread::spawn({
            let theirs = theirs.clone();
            move || lock(&theirs, "printer")
        });
        assert_eq!(first.release().unwrap(), Released::Released);
        let next = next.join().unwrap();
        assert!(next.fence() > fence);
        assert!(held(&server, "printer").unwrap().ends_with(next.owner()));
        assert_eq!(next.release().unwrap(), Released::Released);
    }
}

#[test]
fn a_lease_is_renewed_while_the_program_does_something_else() {
    for server in both_kinds() {
        let locks = locks(&server);
        let ttl = millis(300);
        let guard = locks.lock("printer", Options::new().ttl(ttl)).unwrap();
        thread::sleep(3 * ttl);
        assert_eq!(guard.loss(), None);
        assert!(guard.valid_for() > Duration::ZERO);
        assert_eq!(guard.extend(LONG).unwrap(), Extended::Extended);
        assert!(guard.valid_for() > LONG / 2);
        assert_eq!(guard.release().unwrap(), Released::Released);
        assert_eq!(held(&server, "printer"), None);
    }
}

#[test]
fn a_guard_says_that_its_lock_is_lost() {
    for server in both_kinds() {
        let locks = locks(&server);
        let guard = locks.lock("printer", Options::new().ttl(millis(300))).unwrap();
        server.cmd("DEL printer");
        eventually("it is lost", || guard.loss().ok_or("not yet"));
        assert_eq!((guard.loss(), guard.valid_for()), (Some(Loss::Taken), Duration::ZERO));
        assert_eq!(guard.extend(LONG).unwrap(), Extended::Lost);
        assert_eq!(guard.release().unwrap(), Released::Late);
    }
}

#[test]
fn work_under_a_lock_gives_its_result_and_the_lock_back() {
    let server = server();
    let locks = locks(&server);
    let pages = locks.with_lock("printer", Options::new(), |guard| {
        assert!(held(&server, "printer").unwrap().ends_with(guard.owner()));
        17
    });
    assert_eq!((pages.unwrap(), held(&server, "printer")), (17, None));
    let guard = lock(&locks, "printer");
    let short = Options::new().wait(millis(30));
    let refused = locks.with_lock("printer", short, |_| panic!("the work was begun"));
    assert!(matches!(refused, Err(Error::Busy { .. })));
    let info = locks.info("printer").unwrap().unwrap();
    assert_eq!((info.holder.as_str(), info.fence), (guard.owner(), guard.fence()));
    assert_eq!(guard.release().unwrap(), Released::Released);
    assert!(locks.info("printer").unwrap().is_none());
}

#[test]
fn a_client_that_is_closed_leaves_no_lock_and_ends_waits() {
    for server in both_kinds() {
        let locks = locks(&server);
        drop(lock(&locks, "dropped"));
        let guard = lock(&locks, "held");
        let waiting = thread::spawn({
            let locks = locks.clone();
            move || locks.lock("held", Options::new().wait(LONG))
        });
        if locks.info("held").unwrap().unwrap().waiters.is_some() {
            eventually("it waits", || Some(waiters(&server, "held")).filter(|n| *n == 1).ok_or(0));
        }
        assert_eq!(locks.close(LONG), Vec::<String>::new());
        assert!(matches!(waiting.join().unwrap(), Err(Error::Closed)));
        assert_eq!((guard.loss(), held(&server, "held")), (Some(Loss::Closed), None));
        assert_eq!(held(&server, "dropped"), None);
        assert!(matches!(locks.try_lock("printer"), Err(Error::Closed)));
    }
}

/// Where tokio's own functions that wait would panic.
#[tokio::test]
async fn a_task_of_a_runtime_may_wait_too_and_drop_the_client() {
    let server = server();
    let within = Settings::default().within(millis(500));
    let locks = Locks::with_settings(url(server.port()), within).unwrap();
    let guard = lock(&locks, "printer");
    assert_eq!(guard.release().unwrap(), Released::Released);
    let kept = lock(&locks, "kept").keep();
    assert!(kept > Duration::ZERO && held(&server, "kept").is_some());
    drop(locks);
}
