//! A server that keeps nothing, and grants nothing until whatever it may have forgotten is over.

use super::lossless;
use crate::fight::{Fought, fight};
use crate::support::{Server, eventually};
use std::thread;
use std::time::Duration;

/// As long as the longest lease that clients ask for.
const QUARANTINE: Duration = Duration::from_millis(1_000);

/// Holders may be refused what was theirs; but there are no two of them.
pub(crate) fn quarantine(seed: u64, length: Duration) -> Fought {
    let rest = format!("quarantine-ms {}", QUARANTINE.as_millis());
    let mut server = Server::builder().tcp().module_args(&rest).start();
    // After the first start, too.
    let mut client = server.client();
    eventually("the first quarantine is over", || match client.acquire("first", "one", 1) {
        Some(_) => Ok(()),
        None => Err(()),
    });
    let rules = lossless();
    fight((server.port(), 10, "l"), &rules, seed, length, |faults, seed, _| {
        // Now and then it is killed again before it grants anything.
        let at_work = *seed.pick(&[300, 1_500]);
        thread::sleep(Duration::from_millis(500 + seed.below(at_work) as u64));
        let down = Duration::from_millis(seed.below(50) as u64);
        faults.forgets("kill -9, and start without data", QUARANTINE, || {
            server.kill();
            thread::sleep(down);
            server.start_again();
        });
    })
}
