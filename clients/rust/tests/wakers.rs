//! Whoever is told that something has ended may use the client at once.

use crate::scene::{LONG, millis, server, url};
use leasehold_client::{Guard, Locks};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// A waker that drops a guard.
struct Dropping(Mutex<Option<Guard>>);

impl Wake for Dropping {
    fn wake(self: Arc<Self>) {
        let guard = self.0.lock().unwrap().take();
        drop(guard);
    }
}

fn dropping(guard: Guard) -> Waker {
    Waker::from(Arc::new(Dropping(Mutex::new(Some(guard)))))
}

/// Polls it once with this waker.
fn wait_with(waker: &Waker, expected: std::pin::Pin<&mut impl Future>) {
    assert!(expected.poll(&mut Context::from_waker(waker)).is_pending());
}

/// Two guards, and whatever is done with them on a thread of its own.
fn with_two_guards(act: impl FnOnce(&Runtime, &Locks, Guard, Guard) + Send + 'static) {
    let server = server();
    let (done, is_done) = mpsc::channel();
    let locks = Locks::new(url(server.port())).unwrap();
    thread::spawn(move || {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let lock = |name: &str| runtime.block_on(locks.lock(name).ttl(LONG).into_future());
        let (one, other) = (lock("one").unwrap(), lock("other").unwrap());
        act(&runtime, &locks, one, other);
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(20)).expect("it hangs");
}

#[test]
fn a_guard_may_be_dropped_by_whoever_is_told_that_another_one_is_gone() {
    with_two_guards(|_, _, one, other| {
        let over = one.cancellation();
        let mut gone = pin!(over.cancelled());
        wait_with(&dropping(other), gone.as_mut());
        drop(one);
    });
}

#[test]
fn a_guard_may_be_dropped_by_whoever_is_told_that_the_client_is_closed() {
    with_two_guards(|runtime, locks, one, other| {
        let over = one.cancellation();
        let mut gone = pin!(over.cancelled());
        wait_with(&dropping(other), gone.as_mut());
        assert!(runtime.block_on(locks.close(millis(5_000))).is_empty());
    });
}

#[test]
fn a_guard_may_be_dropped_by_whoever_is_told_that_all_is_released() {
    with_two_guards(|runtime, locks, one, other| {
        let entered = runtime.enter();
        drop(one);
        let mut settled = Box::pin(locks.settle());
        let waker = dropping(other);
        // Polled once: it is released already otherwise.
        let _ = settled.as_mut().poll(&mut Context::from_waker(&waker));
        drop(entered);
        let (locks, deadline) = (locks.clone(), millis(5_000));
        assert!(runtime.block_on(locks.close(deadline)).is_empty());
    });
}
