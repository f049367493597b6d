//! Holds that end with their connection: how soon the next one has the lock, and what bindings cost everybody else.

use super::contenders::Lock;
use super::load::{Load, OKAY, ONE, Pattern, Reply, Shape, Work, compare, of_one};
use super::memory::settled;
use super::pings::{longest, while_doing};
use super::report::Report;
use super::statistics::{Spread, quantile};
use super::table::Table;
use super::tickets::send;
use super::{Effort, cores};
use std::time::Instant;
use testkit::{Server, encoded, eventually, int};

const SHAPE: Shape = Shape { connections: 1, depth: 64 };

/// Longer than any measurement, in milliseconds.
const LONG: u64 = 86_400_000;

/// What is asked pipelined, with `{}` for a number, and the replies that it must get.
const TRAFFIC: [(&str, &[Pattern]); 3] = [
    ("SET", &[("SET k{} v", &[OKAY])]),
    ("GET", &[("GET k{}", &[Reply::Exactly(b"$1"), Reply::Exactly(b"v")])]),
    (
        "LOCK.ACQUIRE, LOCK.RELEASE",
        &[("LOCK.ACQUIRE l{} owner 60000", &[Reply::Number]), ("LOCK.RELEASE l{} owner", &[ONE])],
    ),
];

pub(crate) fn run(effort: Effort, report: &mut Report) {
    let count = effort.pick(1_000, 100_000, 100_000);
    let mut table = Table::new(&["Holds that end with their connection", "measured"]);
    let mut row = |what: &str, figure: String| table.row(vec![what.to_owned(), figure]);

    let mut after = until_granted(effort);
    after.sort_by(f64::total_cmp);
    let [half, most, longest] = [0.5, 0.99, 1.0].map(|share| quantile(&after, share) * 1e3);
    row("from the close to the next one's grant, half of them", format!("{half:.3} ms"));
    row("from the close to the next one's grant, 99 % of them", format!("{most:.3} ms"));
    row("from the close to the next one's grant, the longest", format!("{longest:.3} ms"));

    let Many { bytes, costs } = many(effort, count);
    row("memory of a binding", format!("{bytes:.0} bytes"));
    for ((name, ..), cost) in TRAFFIC.iter().zip(&costs) {
        row(&format!("{name}: {count} bindings, against none"), format!("{} ×", cost.shown(3)));
    }

    let Ended { took, ping } = end_at_once(effort, count);
    row("until all locks of one connection are free", format!("{took:.1} ms"));
    row("the longest PING meanwhile", format!("{ping:.1} ms"));
    report.table("ephemeral", &table);

    let next = "from the end of a connection to the next one's grant, the longest";
    report.target((next, ""), "≤ 2 ms", (longest, 3));
    let dearest = costs.into_iter().max_by(|one, other| one.median.total_cmp(&other.median));
    let median = dearest.unwrap().median;
    let what = format!("a command with {count} bindings");
    // As many digits as the limit has.
    let (measured, met) = (format!("{median:.3} ×"), (median * 100.0).round() <= 100.0);
    report.target_as((&what, "with none"), "≤ 1.00 × the time", measured, met);
    let what = format!("the longest PING while {count} bindings end");
    report.target((&what, ""), "≤ 50 ms", (ping, 1));
}

/// Seconds from the moment at which a connection is closed until the one that waits for its lock has read the grant.
fn until_granted(effort: Effort) -> Vec<f64> {
    let server = Server::start();
    let mut bob = server.line_client();
    let waits = encoded(format!("LOCK.ACQUIRE k bob {LONG} BLOCK 0"));
    let mut observer = server.client();
    let rounds = 0..effort.pick(20, 500, 2_000);
    let measured = rounds.map(|_| {
        let mut alice = server.line_client();
        send(&mut alice, &[format!("LOCK.ACQUIRE k alice {LONG} EPHEMERAL 0")], Reply::Number);
        bob.send(&waits);
        observer.wait_until_waiters(1);
        let begun = Instant::now();
        drop(alice);
        Reply::Number.check(bob.line());
        let took = begun.elapsed().as_secs_f64();
        send(&mut bob, &["LOCK.RELEASE k bob".to_owned()], ONE);
        took
    });
    measured.collect()
}

struct Many {
    /// For each binding, beside its lock.
    bytes: f64,
    /// The time of each traffic, where it is 1 with as many locks of which none is bound.
    costs: Vec<Spread>,
}

/// As many locks on each of two servers. On one of them all are bound.
fn many(effort: Effort, count: usize) -> Many {
    let servers = [Server::start(), Server::start()];
    let [_, bound] = &servers;
    let mut holders = servers.each_ref().map(Server::line_client);
    for holder in &mut holders {
        send(holder, &requests(count, ""), Reply::Number);
    }
    let mut client = bound.client();
    // What the module needs for the first one is not counted.
    send(&mut holders[1], &[format!("LOCK.ACQUIRE k alice {LONG} EPHEMERAL 0")], Reply::Number);
    let before = settled(effort, &mut client);
    send(&mut holders[1], &requests(count, " EPHEMERAL 0"), Reply::Number);
    let bytes = (settled(effort, &mut client) - before) / count as f64;
    assert_eq!(client.counter("bindings"), count as u64 + 1);

    let _apart = cores::leave_the_last();
    servers.iter().for_each(cores::give_the_last_to);
    let numbers: Vec<usize> = (0..effort.pick(64, 6_400, 6_400)).collect();
    let works = TRAFFIC.map(|(_, commands)| {
        Work::of(SHAPE, &numbers, |number| {
            commands.iter().map(|one| of_one(*one, number)).collect()
        })
    });
    let mut loads = servers.each_ref().map(|server| Load::on(server, SHAPE));
    let turns = [0, 1].map(|load| (load, works.iter().collect()));
    let samples = compare(effort.pick(1, 20, 60), &mut loads, &turns);
    let both = samples[0].iter().zip(&samples[1]);
    Many { bytes, costs: both.map(|(unbound, bound)| bound.against(unbound)).collect() }
}

/// The locks of one connection.
fn requests(count: usize, option: &str) -> Vec<String> {
    let request = |lock: Lock| format!("LOCK.ACQUIRE {} {} {LONG}{option}", lock.key, lock.owner);
    (0..count).map(Lock::numbered).map(request).collect()
}

/// In milliseconds. The median and the longest of some rounds.
struct Ended {
    took: f64,
    ping: f64,
}

/// A connection is closed to which so many locks are bound.
fn end_at_once(effort: Effort, count: usize) -> Ended {
    let server = Server::start();
    let mut observer = server.client();
    let rounds = 0..effort.pick(1, 1, 3);
    let (took, pings): (Vec<_>, Vec<_>) = rounds
        .map(|_| {
            let mut holder = server.line_client();
            send(&mut holder, &requests(count, " EPHEMERAL 0"), Reply::Number);
            assert_eq!(observer.counter("bindings"), count as u64);
            let (took, pings) = while_doing(&server, || {
                let begun = Instant::now();
                drop(holder);
                eventually("all are free", || match observer.cmd("DBSIZE") {
                    size if size == int(0) => Ok(()),
                    size => Err(size),
                });
                begun.elapsed().as_secs_f64()
            });
            (took * 1e3, longest(&pings) * 1e3)
        })
        .unzip();
    Ended { took: Spread::of(took).median, ping: longest(&pings) }
}
