//! Scenario `quarantine`: a server that keeps no data is killed, or its replica takes over, and grants nothing until every
//! lease that may have been forgotten has ended.

use crate::claims::Excuse;
use crate::runner::{Plan, Totals, now};
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Server, eventually, wait_until_in_sync, wait_until_it_is};

/// As long as the longest lease that clients ask for.
const QUARANTINE: Duration = Duration::from_millis(1_000);

/// A holder may lose its lock, but no lock has two holders.
pub(crate) fn quarantine(seed: u64, length: Duration) -> Totals {
    let rest = format!("quarantine-ms {}", QUARANTINE.as_millis());
    let setup = || Server::builder().tcp().module_args(&rest);
    let mut server = setup().start();
    // There is a quarantine after the first start too.
    let mut client = server.client();
    eventually("the first quarantine is over", || match client.acquire("first", "one", 1) {
        Some(_) => Ok(()),
        None => Err(()),
    });
    let mut replica = setup().replica_of(&server).start();
    // An owner would be told of a grant that it released, if the release was lost.
    let plan = Plan { owners_stay: false, ..Plan::at(server.port()) };
    plan.run((seed, length), |faults, seed, shared| {
        // Sometimes it is killed again before it grants anything.
        let at_work = *seed.pick(&[300, 1_500]);
        thread::sleep(Duration::from_millis(500 + seed.below(at_work) as u64));
        let down = Duration::from_millis(seed.below(50) as u64);
        let takes_over = seed.below(2) == 0;
        let what = if takes_over {
            wait_until_in_sync(&server, &replica);
            "kill -9 of the primary, its replica takes over"
        } else {
            "kill -9, and start without data"
        };
        faults.forgets(what, QUARANTINE, || {
            server.kill();
            thread::sleep(down);
            let begun = Instant::now();
            if takes_over {
                replica.cmd("REPLICAOF NO ONE");
                wait_until_it_is(&replica, "master");
                shared.goes_to(&replica, usize::from(shared.server.load(SeqCst) ^ 1));
                let follower = setup().replica_of(&replica).start();
                server = std::mem::replace(&mut replica, follower);
            } else {
                server.start_again();
                // It may have been a replica when it was first started.
                server.cmd("REPLICAOF NO ONE");
            }
            if let Some(after) = granted_too_early(&server, begun) {
                let what = format!("granted {after:?} after {what}, and rests for {QUARANTINE:?}");
                shared.claims.add("L1", Excuse::None, now(), what);
            }
        });
    })
}

/// Tries a lock for a while. Returns how long after the start it was granted, if that is too early.
fn granted_too_early(server: &Server, begun: Instant) -> Option<Duration> {
    let mut client = server.client();
    let mut tries = 0..20;
    let granted = tries.any(|_| {
        thread::sleep(Duration::from_millis(2));
        client.acquire("nobody-else-wants-it", "one", 1).is_some()
    });
    let after = begun.elapsed();
    (granted && after < QUARANTINE).then_some(after)
}
