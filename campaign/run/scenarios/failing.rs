//! Scenarios `restarts`, `losing` and `replica`: servers that die.

use super::millis;
use crate::runner::{Plan, Totals};
use crate::shares::Shares;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;
use testkit::{Proxy, Seed, Server, Setup, Way, wait_until_in_sync, wait_until_it_is};

pub(crate) fn restarts(seed: u64, length: Duration) -> Totals {
    let setup = Server::builder().tcp().config("appendonly", "yes").config("appendfsync", "always");
    let mut server = setup.start();
    Plan::at(server.port()).run((seed, length), |faults, seed, _| {
        thread::sleep(millis(50 + seed.below(300)));
        if seed.below(4) == 0 {
            faults.still("frozen for a while", || {
                server.freeze();
                thread::sleep(millis(seed.below(400)));
                server.thaw();
            });
        } else {
            faults.still("kill -9, and start", || {
                server.kill();
                thread::sleep(millis(seed.below(50)));
                server.start_again();
            });
        }
    })
}

pub(crate) fn losing(seed: u64, length: Duration) -> Totals {
    let setup = Server::builder().tcp();
    let kept = Seed::of(seed).below(2) == 0;
    let setup = if kept {
        setup.config("appendonly", "yes").config("appendfsync", "everysec")
    } else {
        setup
    };
    let mut server = setup.start();
    Plan::at(server.port()).run((seed, length), |faults, seed, _| {
        thread::sleep(millis(50 + seed.below(300)));
        faults.lossy("kill -9, and start without all of it", millis(2_000), || {
            server.kill();
            server.start_again();
        });
    })
}

/// Clients use the primary. When it dies its replica takes over, and a new replica follows that one.
pub(crate) fn replica(shares: Shares, seed: u64, length: Duration) -> Totals {
    let plain = || -> Setup { Server::builder().tcp() };
    let mut primary = plain().start();
    let mut link = Proxy::to(primary.port());
    let mut replica = plain().replica_through(link.port()).start();
    wait_until_in_sync(&primary, &replica);
    let plan = Plan { shares, ..Plan::at(primary.port()) };
    plan.run((seed, length), |faults, seed, shared| {
        thread::sleep(millis(30 + seed.below(150)));
        match seed.below(6) {
            0 => {
                faults.note("the link to the replica is cut", || link.cut());
                thread::sleep(millis(seed.below(200)));
                faults.note("it is healed", || link.heal());
            }
            1 => {
                faults.note("the link is cut one way", || link.cut_one_way(Way::FromServer));
                thread::sleep(millis(seed.below(200)));
                faults.note("it is healed", || link.heal());
            }
            2 => faults.still("the primary is frozen for a while", || {
                primary.freeze();
                thread::sleep(millis(seed.below(300)));
                primary.thaw();
            }),
            3 => faults.note("the link is slow", || link.slow(millis(seed.below(10)))).0,
            // Grants that the replica has not received are lost. If the link was cut, these may be a second old.
            _ => faults.lossy(
                "kill -9 of the primary, its replica takes over",
                millis(1_500),
                || {
                    primary.kill();
                    replica.cmd("REPLICAOF NO ONE");
                    wait_until_it_is(&replica, "master");
                    shared.port.store(replica.port(), SeqCst);
                    shared.server.fetch_add(1, SeqCst);
                    link = Proxy::to(replica.port());
                    let follower = plain().replica_through(link.port()).start();
                    wait_until_in_sync(&replica, &follower);
                    primary = std::mem::replace(&mut replica, follower);
                },
            ),
        }
    })
}
