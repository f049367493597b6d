//! What the ways cost to acquire and release one lock after another.

use super::Effort;
use super::contenders::{BARE, Contender, EVALSHA, LEASEHOLD, Lock, work};
use super::load::{Load, Reply, Samples, Shape, Work, compare};
use super::report::Report;
use super::statistics::Spread;
use super::table::Table;
use testkit::{Server, Setup, start_pair};

/// The number of lock names, which take turns.
const NAMES: usize = 10_240;

/// Who hears of what the server writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Duty {
    /// Nobody, as when a server starts with its default settings.
    Alone,
    Aof,
    Replica,
    /// A replica and an append-only file.
    Followed,
}

struct Case {
    name: &'static str,
    shape: Shape,
    duty: Duty,
    /// The threads of the server that read requests and write replies.
    io_threads: u8,
}

const fn case(name: &'static str, connections: usize, depth: usize, duty: Duty) -> Case {
    Case { name, shape: Shape { connections, depth }, duty, io_threads: 1 }
}

const fn threaded(name: &'static str, connections: usize, depth: usize) -> Case {
    Case { io_threads: 4, ..case(name, connections, depth, Duty::Alone) }
}

/// Each case differs from one of the first in one thing, as far as possible.
const CASES: [Case; 12] = [
    case("1 connection, pipelined 32", 1, 32, Duty::Alone),
    case("1 connection, unpipelined", 1, 1, Duty::Alone),
    case("pipelined 32, followed", 1, 32, Duty::Followed),
    case("unpipelined, followed", 1, 1, Duty::Followed),
    case("1 connection, pipelined 16", 1, 16, Duty::Alone),
    case("16 connections, pipelined 32", 16, 32, Duty::Alone),
    case("16 connections, unpipelined", 16, 1, Duty::Alone),
    case("64 connections, unpipelined", 64, 1, Duty::Alone),
    threaded("64 connections, pipelined 16, io-threads 4", 64, 16),
    threaded("64 connections, unpipelined, io-threads 4", 64, 1),
    case("pipelined 32, AOF everysec", 1, 32, Duty::Aof),
    case("pipelined 32, a replica", 1, 32, Duty::Replica),
];

/// The base cases, which have targets.
const BASE: usize = 4;

/// How many times as fast Leasehold is to be at least.
struct Wanted {
    against_scripts: f64,
    against_native_trio: f64,
    acquire: f64,
    release: f64,
}

impl Case {
    fn is_pipelined(&self) -> bool {
        self.shape.depth > 1
    }

    /// How the work is done, in the words of the targets.
    fn how(&self) -> String {
        let how = if self.is_pipelined() { "pipelined" } else { "unpipelined" };
        let by = if self.duty == Duty::Followed { ", followed" } else { "" };
        format!("{how}{by}")
    }

    fn wanted(&self) -> Wanted {
        match (self.is_pipelined(), self.duty) {
            (true, Duty::Followed) => Wanted {
                against_scripts: 2.2,
                against_native_trio: 1.0,
                acquire: 0.9,
                release: 0.65,
            },
            (true, _) => Wanted {
                against_scripts: 3.0,
                against_native_trio: 1.25,
                acquire: 0.95,
                release: 0.85,
            },
            // One request after another takes as long as waking up does.
            (false, _) => Wanted {
                against_scripts: 0.97,
                against_native_trio: 0.97,
                acquire: 0.97,
                release: 0.97,
            },
        }
    }
}

pub(crate) fn run(effort: Effort, report: &mut Report) {
    let mut page = table();
    let cases = &CASES[..effort.pick(CASES.len(), BASE, CASES.len())];
    for (number, case) in cases.iter().enumerate() {
        let both = |one: &Contender| vec![[&one.acquire[..], &one.release].concat()];
        let [measured] = &measure(case, effort, Contender::all, both)[..] else {
            panic!("one part")
        };
        add(&mut page, "acquire + release", case, measured);
        if number < BASE && case.is_pipelined() {
            pair_targets(case, measured, report);
        }
        if case.io_threads > 1 && !case.is_pipelined() {
            let what = "acquire + release, 64 connections, io-threads 4";
            target(report, what, measured, BARE, case.wanted().acquire);
        }
    }
    for case in &CASES[..BASE] {
        let halves = |one: &Contender| vec![one.acquire.clone(), one.release.clone()];
        let (how, least) = (case.how(), case.wanted());
        let wanted = [("acquire", least.acquire), ("release", least.release)];
        for (measured, (work, least)) in
            measure(case, effort, Contender::pairs, halves).iter().zip(wanted)
        {
            add(&mut page, work, case, measured);
            target(report, &format!("{work}, {how}"), measured, BARE, least);
        }
    }
    report.table("same-work", &page);
}

/// The contenders and their samples.
type Measured = Vec<(&'static str, Samples)>;

fn start(case: &Case) -> (Server, Option<Server>) {
    let setup = Server::builder().config("io-threads", &case.io_threads.to_string());
    match case.duty {
        Duty::Alone => (setup.start(), None),
        Duty::Aof => (filed(setup).start(), None),
        Duty::Replica => followed(setup),
        Duty::Followed => followed(filed(setup)),
    }
}

/// A server that writes an append-only file.
fn filed(setup: Setup) -> Setup {
    setup.config("appendonly", "yes").config("appendfsync", "everysec")
}

fn followed(primary: Setup) -> (Server, Option<Server>) {
    let (primary, replica) = start_pair(primary, Server::builder());
    (primary, Some(replica))
}

/// The number of locks in a sample, which takes about 30 ms, and the number of samples.
fn extent(case: &Case, effort: Effort) -> (usize, usize) {
    let locks = match case.shape {
        // Where there are fewer processors than threads, the threads wait for one another.
        Shape { depth: 1, .. } if case.io_threads > 1 => NAMES / 40,
        Shape { depth: 1, connections: 1 } => NAMES / 8,
        Shape { depth: 1, .. } => NAMES / 4,
        _ => NAMES,
    };
    (effort.pick(locks.min(NAMES / 8), locks, locks), effort.pick(1, 40, 100))
}

/// What each part of the contenders' work takes, such as to acquire all locks and then to release all of them.
fn measure(
    case: &Case,
    effort: Effort,
    contenders: fn(&Server) -> Vec<Contender>,
    parts: impl Fn(&Contender) -> Vec<Vec<(String, Reply)>>,
) -> Vec<Measured> {
    let (server, _replica) = start(case);
    let (count, rounds) = extent(case, effort);
    let locks: Vec<_> = (0..count).map(Lock::numbered).collect();
    let contenders = contenders(&server);
    let works = |one| parts(one).iter().map(|part| work(case.shape, part, &locks)).collect();
    let works: Vec<Vec<Work>> = contenders.iter().map(works).collect();
    let turns: Vec<_> = works.iter().map(|parts| (0, parts.iter().collect())).collect();
    let samples = compare(rounds, &mut [Load::on(&server, case.shape)], &turns);
    let of_part = |part: usize| {
        let samples = samples.iter().map(|parts| parts[part].clone());
        contenders.iter().map(|one| one.name).zip(samples).collect()
    };
    (0..works[0].len()).map(of_part).collect()
}

fn find<'m>(measured: &'m Measured, name: &str) -> &'m Samples {
    let (_, samples) = measured.iter().find(|(one, _)| *one == name).expect("it is measured");
    samples
}

fn target(report: &mut Report, what: &str, measured: &Measured, that: &str, least: f64) {
    let ratio = find(measured, that).against(find(measured, LEASEHOLD));
    let (wanted, measured) = (format!("≥ {least:.2} ×"), format!("{} ×", ratio.shown(2)));
    report.target_as((what, that), &wanted, measured, ratio.median >= least);
}

fn pair_targets(case: &Case, measured: &Measured, report: &mut Report) {
    let least = case.wanted();
    let what = format!("acquire + release, {}", case.how());
    target(report, &what, measured, EVALSHA, least.against_scripts);
    // No target where none of the three commands compares the owner, because they promise less then.
    if let Some((trio, _)) = measured.iter().find(|(name, _)| Contender::is_as_strong(name)) {
        target(report, &what, measured, trio, least.against_native_trio);
    }
}

fn table() -> Table {
    Table::new(&[
        "Work",
        "Case",
        "By",
        "a second",
        "µs of the server's processor",
        "server busy",
        "Leasehold against it",
    ])
}

fn add(table: &mut Table, work: &str, case: &Case, measured: &Measured) {
    for (number, (name, samples)) in measured.iter().enumerate() {
        let first = |text: &str| if number == 0 { text.to_owned() } else { String::new() };
        let ratio = samples.against(&measured[0].1).shown(2);
        let walls = samples.walls();
        let busy: f64 = samples.0.iter().map(|sample| sample.processor).sum();
        table.row(vec![
            first(work),
            first(case.name),
            (*name).to_owned(),
            format!("{:.0}", 1.0 / Spread::of(walls.iter().copied()).median),
            format!("{:.2}", samples.processor().median * 1e6),
            format!("{:.0} %", busy / walls.iter().sum::<f64>() * 100.0),
            if number == 0 { "–".to_owned() } else { format!("{ratio} ×") },
        ]);
    }
}
