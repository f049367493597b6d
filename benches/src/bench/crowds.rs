//! What idle and hostile clients take from everybody else.

use super::contenders::{Batch, Lock, OKAY, Reply};
use super::ephemeral::requests;
use super::large::contend;
use super::load::{Load, Shape, Work, processor_time};
use super::named::{END_OF_LEASE, Scene};
use super::pings::{longest, while_doing};
use super::report::{Report, Target};
use super::statistics::{Spread, quantile};
use super::table::Table;
use super::tickets::{self, NIL, by_ticket, send};
use super::{Effort, cores};
use redis::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::crowd::Crowd;
use testkit::{Server, encoded, eventually, int};

/// How many more locks each connection waits for.
const ALSO: usize = 128;

/// In milliseconds.
const LONGEST_PING: f64 = 50.0;

/// Keys of one `MGET`.
const OF_AN_MGET: usize = 100;
/// Different keys. They are so few that the processor's caches have what the server looks at: the rest shows best.
const OTHERS: usize = 1_000;
const SHAPE: Shape = Shape { connections: 1, depth: 8 };

pub(crate) fn run(effort: Effort, report: &mut Report) {
    let mut rows = Rows { table: Table::new(&["What others do", "measured"]), report };
    rows.idle("nobody waits", &idle(effort, &Server::start()));

    let count = effort.pick(1_000, 100_000, 1_000_000);
    let server = tickets::server();
    contend(&server, &locks(count));
    rows.idle(&format!("{count} tickets, each for another lock"), &idle(effort, &server));
    drop(server);

    let count = effort.pick(20, 2_000, 4_000);
    let server = Server::builder().module_args("max-waiters 1000000").start();
    let _waiters = wait_for_many(&server, count);
    let what = format!("{count} connections that wait for {} locks each", ALSO + 1);
    rows.idle(&what, &idle(effort, &server));
    drop(server);

    let bound = effort.pick(1_000, 100_000, 100_000);
    let what =
        format!("1000 FLUSHDB in one packet, beside {bound} bound holds of another database");
    rows.ping(&what, flush_another_database(bound));
    let (contended, patterns) = (effort.pick(10, 500, 500), effort.pick(100, 10_000, 10_000));
    let what = format!("{contended} grants are published, and {patterns} patterns are others");
    rows.ping(&what, publish_beside_patterns(contended, patterns));
    let subscriptions = effort.pick(10, 1_000, 1_000);
    let what = format!("{contended} grants are key events, with {subscriptions} subscriptions");
    rows.ping(&what, tell_subscribers(contended, subscriptions));

    let contended = effort.pick(300, 30_000, 30_000);
    let slower = name_others(effort, contended);
    let what = format!("MGET of other names, with {contended} contended locks");
    rows.at_most(&what, "with one of them", slower.median, 1.11, "×");

    let (served, drained) = end_bound_holds(effort, bound);
    let what = format!("{bound} holds end with their connection");
    rows.at_most(&format!("{what}: the last who waited has the lock"), "", served, 10.0, "ms");
    rows.row(&format!("{what}: all are free"), &format!("{drained:.0} ms"));
    let Rows { table, report } = rows;
    report.table("crowds", &table, &[]);
    report.file("crowds", &table);
}

struct Rows<'r> {
    table: Table,
    report: &'r mut Report,
}

impl Rows<'_> {
    fn row(&mut self, what: &str, measured: &str) {
        self.table.row(vec![what.to_owned(), measured.to_owned()]);
    }

    /// With the target.
    fn at_most(&mut self, what: &str, against: &str, measured: f64, most: f64, unit: &str) {
        let figure = format!("{measured:.2} {unit}");
        self.row(what, &figure);
        self.report.target(Target {
            what: what.to_owned(),
            against: against.to_owned(),
            wanted: format!("≤ {most} {unit}"),
            measured: figure,
            met: measured <= most,
        });
    }

    fn idle(&mut self, what: &str, idle: &Idle) {
        self.at_most(&format!("{what}: processor"), "", idle.processor * 1e2, 5.0, "%");
        let [most, latest] = [0.95, 1.0].map(|share| quantile(&idle.late, share) * 1e3);
        let ended = format!("{what}: from the end of a lease to the next grant");
        self.row(&format!("{ended}, 19 of 20"), &format!("{most:.2} ms"));
        self.at_most(&format!("{ended}, the longest"), "", latest, 5.0, "ms");
        let ping = format!("{:.2} ms", quantile(&idle.pings, 0.99) * 1e3);
        self.row(&format!("{what}: 99 of 100 PINGs"), &ping);
    }

    fn ping(&mut self, what: &str, longest: f64) {
        self.at_most(&format!("{what}: the longest PING"), "", longest * 1e3, LONGEST_PING, "ms");
    }
}

fn locks(count: usize) -> Vec<Lock> {
    (0..count).map(Lock::numbered).collect()
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
    let mut observer = server.client();
    let (begun, before) = (Instant::now(), processor_time(&mut observer));
    sleep(Duration::from_millis(length));
    let used = processor_time(&mut observer) - before;
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

/// Seconds of the longest `PING` while this is done.
fn longest_ping_during(server: &Server, work: impl FnOnce()) -> f64 {
    let ((), pings) = while_doing(server, || {
        // They have begun by then.
        sleep(Duration::from_millis(100));
        work();
    });
    longest(&pings)
}

fn flush_another_database(bound: usize) -> f64 {
    const FLUSHES: usize = 1_000;
    let server = Server::start();
    let (mut holder, mut line) = (server.line_client(), server.line_client());
    send(&mut holder, &requests(bound, " EPHEMERAL 0"), Reply::Number);
    send(&mut line, &["SELECT 5".to_owned()], OKAY);
    let packet = encoded("FLUSHDB").repeat(FLUSHES);
    longest_ping_during(&server, || {
        line.send(&packet);
        (0..FLUSHES).for_each(|_| OKAY.check(line.line()));
    })
}

/// All of them become free at once, and are granted to the next.
fn flush_all(server: &Server, contended: usize) -> f64 {
    longest_ping_during(server, || {
        server.cmd("FLUSHALL");
        let mut client = server.client();
        eventually("all are handed on", || match client.cmd("DBSIZE") {
            size if size == int(contended as i64) => Ok(()),
            size => Err(size),
        });
    })
}

fn publish_beside_patterns(contended: usize, patterns: usize) -> f64 {
    let server = Server::start();
    let locks = locks(contended);
    let owners = contend(&server, &locks);
    let told: Vec<_> = (locks.iter().zip(&owners))
        .map(|(lock, owner)| format!("{} NOTIFY nowhere", by_ticket(&lock.key, owner)))
        .collect();
    send(&mut server.line_client(), &told, NIL);
    let mut subscriber = server.line_client();
    let patterns: Vec<_> = (0..patterns).map(|number| format!("other:{number}:*")).collect();
    for some in patterns.chunks(100) {
        subscriber.send(&encoded(format!("PSUBSCRIBE {}", some.join(" "))));
        // *3, the kind and the pattern, each after its length, and a number.
        (0..6 * some.len()).for_each(|_| drop(subscriber.line().to_vec()));
    }
    flush_all(&server, contended)
}

fn tell_subscribers(contended: usize, subscriptions: usize) -> f64 {
    let server = Server::start();
    contend(&server, &locks(contended));
    server.cmd("CONFIG SET notify-keyspace-events KEA");
    let mut crowd = Crowd::of(&server, subscriptions);
    for member in 0..subscriptions {
        crowd.send(member, "PSUBSCRIBE __key*__:*");
    }
    crowd.one_reply_each();
    flush_all(&server, contended)
}

/// How much longer it takes to name keys that are no locks, on a server with so many contended locks against one with one.
fn name_others(effort: Effort, contended: usize) -> Spread {
    let servers = [tickets::server(), tickets::server()];
    let [crowded, quiet] = &servers;
    let (many, one) = (locks(contended), locks(1));
    contend(crowded, &many);
    contend(quiet, &one);
    send(&mut quiet.line_client(), &requests(contended, "")[1..], Reply::Number);
    sleep(Duration::from_secs(effort.pick(0, 3, 3)));
    let commands = effort.pick(8, 640, 640);
    let name = |number| Lock::numbered(1_000_000 + number % OTHERS).key;
    let names: Vec<_> = (0..commands * OF_AN_MGET).map(name).collect();
    let work = Work::shared(SHAPE, &names, |names| names.chunks(OF_AN_MGET).map(mget).collect());
    let _apart = cores::leave_the_last();
    servers.iter().for_each(cores::give_the_last_to);
    let mut loads = servers.each_ref().map(|server| Load::on(server, SHAPE));
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..effort.pick(1, 20, 60) {
        for turn in 0..servers.len() {
            let one = (round + turn) % servers.len();
            times[one].push(loads[one].measure(&work, commands).processor);
        }
    }
    Spread::of_ratios(&times[0], &times[1])
}

fn mget(names: &[String]) -> Batch {
    let replies = [Reply::Exactly(b"*100")].into_iter().chain(names.iter().map(|_| NIL));
    Batch { bytes: encoded(format!("MGET {}", names.join(" "))), replies: replies.collect() }
}

/// Milliseconds from the end of a connection until the last has its lock of the few who wait for one, and until all others are free.
fn end_bound_holds(effort: Effort, count: usize) -> (f64, f64) {
    const WAITERS: usize = 10;
    let server = Server::start();
    let rounds = (0..effort.pick(1, 1, 3)).map(|_| {
        let mut holder = server.line_client();
        send(&mut holder, &requests(count, " EPHEMERAL 0"), Reply::Number);
        let mut crowd = Crowd::of(&server, WAITERS);
        for member in 0..WAITERS {
            let key = Lock::numbered(member * (count - 1) / (WAITERS - 1)).key;
            crowd.send(member, format!("LOCK.ACQUIRE {key} w{member} 600000 BLOCK 0"));
        }
        let mut observer = server.client();
        observer.wait_until_waiters(WAITERS as u64);
        let begun = Instant::now();
        drop(holder);
        let replies = crowd.one_reply_each();
        let served = begun.elapsed();
        assert!(replies.iter().all(|reply| matches!(reply, Some(Value::Int(_)))), "{replies:?}");
        eventually("all others are free", || match observer.cmd("DBSIZE") {
            size if size == int(WAITERS as i64) => Ok(()),
            size => Err(size),
        });
        let drained = begun.elapsed();
        observer.cmd("FLUSHALL");
        [served, drained].map(|took| took.as_secs_f64() * 1e3)
    });
    rounds.fold((0.0, 0.0), |longest: (f64, f64), [served, drained]| {
        (longest.0.max(served), longest.1.max(drained))
    })
}
