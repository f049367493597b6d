//! Clients whose links are cut, both ways or one, while others go on.

use super::lossless;
use crate::clients::PATIENCE;
use crate::runner::{Probing, Totals, WHEN_QUIET, run_rounds_probed};
use std::thread;
use std::time::Duration;
use testkit::{Proxy, Server, Way};

/// The server does not know, and goes on: what it grants to somebody who never hears of it is held all the same, to the end
/// of the lease, and the order of its queues stays. So nothing is excused but what the clients themselves cannot know.
pub(crate) fn links(seed: u64, length: Duration) -> Totals {
    let server = Server::builder().tcp().start();
    let link = Proxy::to(server.port());
    let rules = lossless();
    // Who is told late what was granted at once cannot say when that was. That somebody is told something, it still can.
    let probing = Probing { idle_micros: 0, aside: Some(server.port()), ..WHEN_QUIET };
    let place = (link.port(), 10, "l");
    run_rounds_probed(place, &rules, &probing, (seed, length), |faults, seed, _| {
        let mut moment = |most| Duration::from_millis(seed.below(most) as u64);
        thread::sleep(moment(100));
        // Longer than clients have patience, now and then.
        let short = moment(8) > Duration::ZERO;
        let lasts = if short { moment(300) } else { PATIENCE + moment(500) };
        link.cut_only_one_in(*seed.pick(&[1, 2, 3, 6]));
        let (what, way) = match seed.below(5) {
            0 => ("links are cut", None),
            1 => ("requests are lost", Some(Way::ToServer)),
            2 | 3 => ("replies are lost", Some(Way::FromServer)),
            _ => {
                let delay = Duration::from_micros(seed.below(8_000) as u64);
                faults.note("links are slow", || link.slow(delay));
                thread::sleep(lasts);
                return link.slow(Duration::ZERO);
            }
        };
        faults.cuts(what, || {
            match way {
                None => link.cut(),
                Some(way) => link.cut_one_way(way),
            }
            thread::sleep(lasts);
        });
        faults.note("links are healed", || link.heal());
    })
}
