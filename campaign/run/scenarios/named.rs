//! Scenario `named`: commands name many contended locks all the time, and free none of them.

use super::guarded::shows_something;
use crate::claims::Claims;
use crate::connection::{asked, is_gone};
use crate::probes::{Probe, handed_on_unseen};
use crate::runner::Totals;
use redis::Value;
use std::time::{Duration, Instant};
use testkit::contended::Contended;
use testkit::traffic::Traffic;
use testkit::{Client, Seed, Server};

/// More than the module looks at in one turn.
const LOCKS: usize = 1_500;

/// How long each kind of traffic lasts.
const ROUND: Duration = Duration::from_secs(2);

const PASSWORD: &str = "secret";

/// Who names the locks.
#[derive(Clone, Copy)]
enum Who {
    /// Clients that poll them with `SET NX`.
    Older,
    /// Clients that only read them.
    Readers,
    /// A user without any permission.
    Forbidden,
    /// Clients that have not logged in.
    Strangers,
}

const ALL: [Who; 4] = [Who::Older, Who::Readers, Who::Forbidden, Who::Strangers];

/// Another lock that becomes free is still handed on at once.
pub(crate) fn named(seed: u64, length: Duration) -> Totals {
    let mut seed = Seed::of(seed);
    let server = Server::builder().tcp().start();
    let contended = Contended::hold(&server, "lock:", LOCKS);
    let mut client = server.client();
    client.cmd(format!("ACL SETUSER nobody on >{PASSWORD}"));
    let mut totals = Totals::default();
    let (begin, asked_before) = (Instant::now(), asked());
    let (mut rounds, mut conversations) = (0, 0);
    while begin.elapsed() < length && totals.wrong.is_empty() {
        let claims = Claims::default();
        rounds += 1;
        let name = format!("t{rounds}");
        let Ok(mut probe) = Probe::connect(&claims, server.port(), 0, seed.fork(), &name) else {
            if is_gone(server.port()) {
                totals.wrong.push("L6: the server has ended by itself".to_owned());
            }
            continue;
        };
        let who = ALL[rounds % ALL.len()];
        let traffic = traffic(who, &server, &contended, &mut client, &mut seed);
        let until = begin.elapsed() + ROUND;
        while begin.elapsed() < until && probe.converse(handed_on_unseen).is_ok() {
            conversations += 1;
        }
        totals.operations += traffic.answered();
        totals.faults += 1;
        drop(traffic);
        client.cmd(["CONFIG", "SET", "requirepass", ""]);
        totals.wrong.extend(claims.take_unexcused(&[], 0, &[]));
    }
    totals.operations += asked() - asked_before;
    totals.grants = 2 * conversations;
    totals.waited = conversations;
    totals.micros = begin.elapsed().as_micros();
    shows_something(&mut totals, conversations);
    totals
}

fn traffic(
    who: Who,
    server: &Server,
    contended: &Contended,
    client: &mut Client,
    seed: &mut Seed,
) -> Traffic {
    match who {
        Who::Older => Traffic::on(server, 50, "", contended.polls(seed)),
        Who::Readers => {
            let reads = contended.batches(seed, |name| format!("PTTL {name}"));
            Traffic::on(server, 50, "", reads)
        }
        Who::Forbidden => {
            let greeting = format!("AUTH nobody {PASSWORD}");
            Traffic::on(server, 3, &greeting, contended.named_at_once())
        }
        Who::Strangers => {
            // The probe connected before and need not log in.
            let set = client.cmd(["CONFIG", "SET", "requirepass", PASSWORD]);
            assert_eq!(set, Value::Okay);
            Traffic::on(server, 4, "", contended.named_in_short())
        }
    }
}
