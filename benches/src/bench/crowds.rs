//! What many who wait cost a server whose clients do nothing, and how late they make the next grant.

use super::Effort;
use super::named::{END_OF_LEASE, Scene};
use super::pings::while_doing;
use super::report::Report;
use super::statistics::quantile;
use super::table::Table;
use super::tickets::{self, contend};
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::Server;
use testkit::crowd::Crowd;

/// How many more locks each connection waits for.
const ALSO: usize = 128;

pub(crate) fn run(effort: Effort, report: &mut Report) {
    let mut table = Table::new(&["What others do", "measured"]);
    let mut measure = |what: &str, server: &Server| {
        let idle = idle(effort, server);
        let mut row = |what: &str, figure: f64, unit: &str, most: Option<f64>| {
            table.row(vec![what.to_owned(), format!("{figure:.2} {unit}")]);
            if let Some(most) = most {
                report.target((what, ""), &format!("≤ {most} {unit}"), (figure, 2));
            }
        };
        row(&format!("{what}: processor"), idle.processor * 1e2, "%", Some(5.0));
        let [most, latest] = [0.95, 1.0].map(|share| quantile(&idle.late, share) * 1e3);
        let ended = format!("{what}: from the end of a lease to the next grant");
        row(&format!("{ended}, 19 of 20"), most, "ms", None);
        row(&format!("{ended}, the longest"), latest, "ms", Some(5.0));
        let pings = quantile(&idle.pings, 0.99) * 1e3;
        row(&format!("{what}: 99 of 100 PINGs"), pings, "ms", None);
    };
    measure("nobody waits", &Server::start());

    let count = effort.pick(1_000, 100_000, 1_000_000);
    let server = tickets::server();
    contend(&server, count);
    measure(&format!("{count} tickets, each for another lock"), &server);
    drop(server);

    let count = effort.pick(20, 2_000, 4_000);
    let server = Server::builder().module_args("max-waiters 1000000").start();
    let _waiters = wait_for_many(&server, count);
    measure(&format!("{count} connections that wait for {} locks each", ALSO + 1), &server);
    report.table("crowds", &table);
}

/// A server whose clients do nothing.
struct Idle {
    /// The share of a core.
    processor: f64,
    /// Seconds from the end of each of some leases to the next one's grant, in order.
    late: Vec<f64>,
    /// Seconds, in order.
    pings: Vec<f64>,
}

fn idle(effort: Effort, server: &Server) -> Idle {
    let (settling, length) = effort.pick((20, 20), (3_000, 3_000), (3_000, 10_000));
    sleep(Duration::from_millis(settling));
    let (begun, before) = (Instant::now(), server.processor_time());
    sleep(Duration::from_millis(length));
    let used = server.processor_time() - before;
    let processor = used.as_secs_f64() / begun.elapsed().as_secs_f64();
    let mut scene = Scene::on(server);
    let hand_offs = 0..effort.pick(2, 40, 200);
    let mut late: Vec<_> = hand_offs.map(|_| scene.hand_off(END_OF_LEASE)).collect();
    let ((), mut pings) = while_doing(server, || sleep(Duration::from_millis(length / 3)));
    [&mut late, &mut pings].into_iter().for_each(|times| times.sort_by(f64::total_cmp));
    Idle { processor, late, pings }
}

/// One lock is held that all want, and the others are free.
fn wait_for_many(server: &Server, count: usize) -> Crowd {
    let mut client = server.client();
    client.grant("wanted", "holder", 86_400_000);
    let mut crowd = Crowd::of(server, count);
    for member in 0..count {
        let others: String = (0..ALSO).map(|number| format!(" {member}:{number}")).collect();
        let ask = format!("LOCK.ACQUIRE wanted w{member} 600000 BLOCK 0 ALSO {ALSO}{others}");
        crowd.send(member, ask);
    }
    client.wait_until_waiters(count as u64);
    crowd
}
