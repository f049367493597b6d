//! Scenario `quarantine`: a server keeps no data, and grants nothing until every lease that it may
//! have forgotten has ended.

use super::{lossless, millis};
use crate::claims::Excuse;
use crate::runner::{Totals, now, run_rounds};
use redis::Value;
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Clock, Server, eventually, is_older_than};

/// As long as the longest lease that clients ask for.
const QUARANTINE: Duration = Duration::from_millis(1_000);

/// How far the clock is set during a quarantine: more than the quarantine, and less than the
/// margin, so that fences still grow.
const STEP: Duration = Duration::from_secs(3);

/// What happens during a quarantine. None of it ends the quarantine.
#[derive(Clone, Copy)]
enum Meanwhile {
    Nothing,
    /// The clock is set.
    Back,
    Forward,
    /// A command that would end it fails for another reason.
    FailedSetting,
}

const ALL: [Meanwhile; 4] =
    [Meanwhile::Nothing, Meanwhile::Back, Meanwhile::Forward, Meanwhile::FailedSetting];

/// A holder may lose its lock, but no lock has two holders.
pub(crate) fn quarantine(seed: u64, length: Duration) -> Totals {
    let rest = format!("quarantine-ms {}", QUARANTINE.as_millis());
    let mut clock = Clock::new();
    let mut server = Server::builder().tcp().clock(&clock).module_args(&rest).start();
    // There is a quarantine after the first start too.
    let mut client = server.client();
    eventually("the first quarantine is over", || match client.acquire("first", "one", 1) {
        Some(_) => Ok(()),
        None => Err(()),
    });
    let rules = lossless();
    let mut put_right: fn(&mut Clock) = |_| ();
    run_rounds((server.port(), 10, "l"), &rules, (seed, length), |faults, seed, shared| {
        // Sometimes the server is killed again before it grants anything.
        let at_work = *seed.pick(&[300, 1_500]);
        thread::sleep(Duration::from_millis(500 + seed.below(at_work) as u64));
        let down = Duration::from_millis(seed.below(50) as u64);
        let (meanwhile, moment) = (*seed.pick(&ALL), millis(seed.below(300)));
        let what = match meanwhile {
            Meanwhile::Nothing => "kill -9, and start without data",
            Meanwhile::Back => "the same, and the clock is set back",
            Meanwhile::Forward => "the same, and the clock is set forward",
            Meanwhile::FailedSetting => "the same, and CONFIG SET leasehold.quarantine-ms 0 fails",
        };
        faults.forgets(what, QUARANTINE, || {
            server.kill();
            thread::sleep(down);
            // Each start is at the right time, because fences grow by that.
            put_right(&mut clock);
            let begun = Instant::now();
            server.start_again();
            put_right = |_| ();
            if !matches!(meanwhile, Meanwhile::Nothing) {
                thread::sleep(moment);
            }
            match meanwhile {
                Meanwhile::Nothing => {}
                Meanwhile::Back => {
                    clock.step_back(STEP);
                    put_right = |clock| clock.step_forward(STEP);
                }
                Meanwhile::Forward => {
                    clock.step_forward(STEP);
                    put_right = |clock| clock.step_back(STEP);
                }
                Meanwhile::FailedSetting => fail_to_end_it(&server),
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

fn fail_to_end_it(server: &Server) {
    // Before 7.0 modules have no settings, and CONFIG SET takes only one.
    if !is_older_than((7, 0)) {
        let both = "CONFIG SET leasehold.quarantine-ms 0 maxmemory-policy bogus";
        let refused = server.cmd(both);
        assert!(matches!(refused, Value::ServerError(_)), "{both}: {refused:?}");
    }
}
