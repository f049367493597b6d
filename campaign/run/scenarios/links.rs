//! Scenario `links`: the links of some clients are cut, both ways or one, while others go on.

use crate::clients::PATIENCE;
use crate::runner::{Plan, Totals};
use std::thread;
use std::time::Duration;
use testkit::{Proxy, Server, Way};

/// The server does not notice. A lock that was granted to a client that never hears of it stays held to the end of the
/// lease, and the queues keep their order. So only what the clients themselves cannot know is excused.
pub(crate) fn links(seed: u64, length: Duration) -> Totals {
    let server = Server::builder().tcp().start();
    let link = Proxy::to(server.port());
    // A client with a slow link cannot tell when its grant was made. It can still tell that there was one.
    let plan = Plan { idle_micros: 0, aside: Some(server.port()), ..Plan::at(link.port()) };
    plan.run((seed, length), |faults, seed, _| {
        let mut moment = |most| Duration::from_millis(seed.below(most) as u64);
        thread::sleep(moment(100));
        // Sometimes longer than the patience of clients.
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
