//! Scenario `storm`: faults that a lock survives, at the same time. Links are cut, and before they
//! are healed the server is killed or frozen, its clock is set forward, or keys are deleted.

use super::alone::touch;
use super::millis;
use super::short::{STEPS, forward};
use crate::runner::{Faults, Plan, Totals, now};
use leasehold_campaign::Span;
use std::thread;
use std::time::Duration;
use testkit::{Clock, Proxy, Seed, Server, Way};

/// Every write is forced to disk, so nothing is lost.
struct Storm {
    server: Server,
    clock: Clock,
    link: Proxy,
}

pub(crate) fn storm(seed: u64, length: Duration) -> Totals {
    let clock = Clock::new();
    let setup = Server::builder().tcp().config("appendonly", "yes").config("appendfsync", "always");
    let server = setup.clock(&clock).start();
    let link = Proxy::to(server.port());
    let mut storm = Storm { server, clock, link };
    // As in `links`.
    let aside = Some(storm.server.port());
    let plan = Plan { idle_micros: 0, aside, ..Plan::at(storm.link.port()) };
    plan.run((seed, length), |faults, seed, _| {
        thread::sleep(millis(seed.below(40)));
        let cut = match seed.below(8) {
            0 => None,
            1 => Some(Way::ToServer),
            2 => Some(Way::FromServer),
            _ => return storm.blow(faults, seed),
        };
        storm.link.cut_only_one_in(*seed.pick(&[1, 2, 6]));
        let from = now();
        faults.note("links are cut", || match cut {
            None => storm.link.cut(),
            Some(way) => storm.link.cut_one_way(way),
        });
        for _ in 0..seed.below(6) {
            storm.blow(faults, seed);
        }
        faults.note("they are healed", || storm.link.heal());
        faults.cut_off(Span { from, to: now() });
    })
}

impl Storm {
    fn blow(&mut self, faults: &mut Faults, seed: &mut Seed) {
        let moment = millis(seed.below(100));
        match seed.below(16) {
            0 => faults.still("frozen for a while", || {
                self.server.freeze();
                thread::sleep(moment);
                self.server.thaw();
            }),
            1 => faults.still("kill -9, and start", || {
                self.server.kill();
                thread::sleep(moment / 4);
                self.server.start_again();
            }),
            // The clock is not set back here: see `clock`.
            2 => {
                let step = Duration::from_secs(*seed.pick(&STEPS));
                forward(faults, &mut self.clock, step, &mut self.server.client());
            }
            3 => {
                let delay = Duration::from_micros(seed.below(5_000) as u64);
                faults.note("links are slow", || self.link.slow(delay));
                thread::sleep(moment);
                self.link.slow(Duration::ZERO);
            }
            _ => {
                thread::sleep(moment / 10);
                touch(faults, seed, &mut self.server.client(), 10);
            }
        }
    }
}
