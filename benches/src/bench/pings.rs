//! How long one who uses no locks waits for a reply while others keep the server busy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use testkit::{Server, encoded};

/// Seconds until the reply to each `PING` that was sent, one after another, while `work` was done.
pub(super) fn while_doing<T>(server: &Server, work: impl FnOnce() -> T) -> (T, Vec<f64>) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let pinging = scope.spawn(|| until(server, &over));
        let done = work();
        over.store(true, Ordering::Relaxed);
        (done, pinging.join().unwrap())
    })
}

/// The longest of them.
pub(super) fn longest(pings: &[f64]) -> f64 {
    pings.iter().copied().fold(0.0, f64::max)
}

fn until(server: &Server, over: &AtomicBool) -> Vec<f64> {
    let (mut line, ping) = (server.line_client(), encoded("PING"));
    let mut pings = Vec::new();
    // At least one, however little is done.
    loop {
        let sent = Instant::now();
        assert_eq!(line.ask(&ping), b"+PONG");
        pings.push(sent.elapsed().as_secs_f64());
        if over.load(Ordering::Relaxed) {
            return pings;
        }
    }
}
