//! Many contended locks that are named all the time, by commands that free none of them.

use super::guarded::shows_something;
use crate::claims::Claims;
use crate::connection::{asked, is_gone};
use crate::fight::Fought;
use crate::tellers::{Teller, handed_on_unseen};
use redis::Value;
use std::time::{Duration, Instant};
use testkit::contended::Contended;
use testkit::traffic::Traffic;
use testkit::{Client, Seed, Server};

/// More than the server looks at in one turn.
const LOCKS: usize = 1_500;

/// How long there is traffic of one kind.
const ROUND: Duration = Duration::from_secs(2);

const PASSWORD: &str = "secret";

/// Who names the locks.
#[derive(Clone, Copy)]
enum Who {
    /// Clients that poll them, as older ones do.
    Older,
    /// Clients that only read them.
    Readers,
    /// A user without any permission.
    Forbidden,
    /// Clients that have not logged in.
    Strangers,
}

const ALL: [Who; 4] = [Who::Older, Who::Readers, Who::Forbidden, Who::Strangers];

/// Another lock that becomes free is handed on at once all the same.
pub(crate) fn named(seed: u64, length: Duration) -> Fought {
    let mut seed = Seed::of(seed);
    let server = Server::builder().tcp().start();
    let contended = Contended::hold(&server, "lock:", LOCKS);
    let mut client = server.client();
    client.cmd(format!("ACL SETUSER nobody on >{PASSWORD}"));
    let mut fought = Fought::default();
    let (begin, asked_before) = (Instant::now(), asked());
    let (mut rounds, mut conversations) = (0, 0);
    while begin.elapsed() < length && fought.wrong.is_empty() {
        let claims = Claims::default();
        rounds += 1;
        let name = format!("t{rounds}");
        let Ok(mut teller) = Teller::connect(&claims, server.port(), 0, seed.fork(), &name) else {
            if is_gone(server.port()) {
                fought.wrong.push("L6: the server has ended by itself".to_owned());
            }
            continue;
        };
        let who = ALL[rounds % ALL.len()];
        let traffic = traffic(who, &server, &contended, &mut client, &mut seed);
        let until = begin.elapsed() + ROUND;
        while begin.elapsed() < until && teller.converse(handed_on_unseen).is_ok() {
            conversations += 1;
        }
        fought.operations += traffic.answered();
        fought.faults += 1;
        drop(traffic);
        client.cmd(["CONFIG", "SET", "requirepass", ""]);
        fought.wrong.extend(claims.take_unexcused(&[], 0, &[]));
    }
    fought.operations += asked() - asked_before;
    fought.grants = 2 * conversations;
    fought.waited = conversations;
    fought.micros = begin.elapsed().as_micros();
    shows_something(&mut fought, conversations);
    fought
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
            // The teller has come before and need not log in.
            let set = client.cmd(["CONFIG", "SET", "requirepass", PASSWORD]);
            assert_eq!(set, Value::Okay);
            Traffic::on(server, 4, "", contended.named_in_short())
        }
    }
}
