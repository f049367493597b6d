//! What the ways cost to acquire and release one lock after another.

use super::contenders::{BARE, Compared, Contender, EVALSHA, LEASEHOLD, Lock, Part};
use super::load::{Load, Sample, Shape, Work};
use super::report::Report;
use super::statistics::Spread;
use super::table::Table;
use super::{Effort, in_turns};
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
        let measured = measure(case, Part::Both, effort, &Contender::all);
        add(&mut page, "acquire + release", case, &measured);
        if number < BASE && case.is_pipelined() {
            pair_targets(case, &measured, report);
        }
        if case.io_threads > 1 && !case.is_pipelined() {
            let (ours, floor) =
                (find(&measured, LEASEHOLD).unwrap(), find(&measured, BARE).unwrap());
            let what = "acquire + release, 64 connections, io-threads 4";
            target(report, what, (ours, floor), case.wanted().acquire);
        }
    }
    for case in &CASES[..BASE] {
        let [taken, given] = halves(case, effort);
        add(&mut page, "acquire", case, &taken);
        add(&mut page, "release", case, &given);
        single_targets(case, &taken, &given, report);
    }
    report.table("same-work", &page);
}

/// The samples of one contender, by round.
struct Measured {
    name: &'static str,
    samples: Vec<Sample>,
}

impl Measured {
    fn walls(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.wall).collect()
    }

    fn wall(&self) -> Spread {
        Spread::of(self.walls())
    }

    fn processor(&self) -> f64 {
        let (processor, wall) =
            self.samples.iter().fold((0.0, 0.0), |(processor, wall), sample| {
                (processor + sample.processor, wall + sample.wall)
            });
        processor / wall
    }

    /// How many times as fast this one is as the other.
    fn ratio(&self, that: &Self) -> Spread {
        Spread::of_ratios(&that.walls(), &self.walls())
    }
}

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

fn measure(
    case: &Case,
    part: Part,
    effort: Effort,
    contenders: &dyn Fn(&Server) -> Vec<Contender>,
) -> Vec<Measured> {
    let (server, _replica) = start(case);
    let (count, rounds) = extent(case, effort);
    let locks: Vec<_> = (0..count).map(Lock::numbered).collect();
    let contenders = contenders(&server);
    let work: Vec<Work> = contenders.iter().map(|one| work(case, one, part, &locks)).collect();
    let mut load = Load::on(&server, case.shape);
    // Once before, so that keys and buffers have their full size.
    for work in &work {
        load.measure(work, count);
    }
    let mut measured: Vec<_> =
        contenders.iter().map(|one| Measured { name: one.name, samples: Vec::new() }).collect();
    in_turns(rounds, work.len(), |_, one| {
        measured[one].samples.push(load.measure(&work[one], count));
    });
    measured
}

/// Acquires all locks and then releases all of them, each part measured by itself.
fn halves(case: &Case, effort: Effort) -> [Vec<Measured>; 2] {
    let (server, _replica) = start(case);
    let (count, rounds) = extent(case, effort);
    let locks: Vec<_> = (0..count).map(Lock::numbered).collect();
    let contenders: Vec<Contender> = [Some(Contender::leasehold()), Some(Contender::bare())]
        .into_iter()
        .chain([Contender::compared(&server)])
        .flatten()
        .collect();
    let work: Vec<[Work; 2]> = contenders
        .iter()
        .map(|one| [Part::Acquire, Part::Release].map(|part| work(case, one, part, &locks)))
        .collect();
    let mut load = Load::on(&server, case.shape);
    let mut both = [(); 2].map(|()| {
        let measured = |one: &Contender| Measured { name: one.name, samples: Vec::new() };
        contenders.iter().map(measured).collect::<Vec<_>>()
    });
    in_turns(rounds + 1, work.len(), |round, one| {
        for (half, measured) in work[one].iter().zip(&mut both) {
            let sample = load.measure(half, count);
            // In the first round keys and buffers grow to their full size.
            if round > 0 {
                measured[one].samples.push(sample);
            }
        }
    });
    both
}

fn work(case: &Case, contender: &Contender, part: Part, locks: &[Lock]) -> Work {
    Work::shared(case.shape, locks, |locks| match case.shape.depth {
        1 => contender.steps(part, locks),
        depth => contender.batches(part, locks, depth),
    })
}

fn find<'m>(measured: &'m [Measured], name: &str) -> Option<&'m Measured> {
    measured.iter().find(|one| one.name == name)
}

fn target(report: &mut Report, what: &str, (ours, that): (&Measured, &Measured), least: f64) {
    let ratio = ours.ratio(that);
    let (wanted, measured) = (format!("≥ {least:.2} ×"), format!("{} ×", ratio.shown(2)));
    report.target_as((what, that.name), &wanted, measured, ratio.median >= least);
}

fn pair_targets(case: &Case, measured: &[Measured], report: &mut Report) {
    let (ours, least) = (find(measured, LEASEHOLD).unwrap(), case.wanted());
    let what = format!("acquire + release, {}", case.how());
    let scripts = find(measured, EVALSHA).unwrap();
    target(report, &what, (ours, scripts), least.against_scripts);
    // No target where none of the three commands compares the owner, because they promise less
    // then.
    if let Some(trio) = measured.iter().find(|one| Compared::trios().contains(&one.name)) {
        target(report, &what, (ours, trio), least.against_native_trio);
    }
}

fn single_targets(case: &Case, taken: &[Measured], given: &[Measured], report: &mut Report) {
    let (how, least) = (case.how(), case.wanted());
    let bare = |measured| find(measured, BARE).unwrap();
    target(report, &format!("acquire, {how}"), (&taken[0], bare(taken)), least.acquire);
    target(report, &format!("release, {how}"), (&given[0], bare(given)), least.release);
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

fn add(table: &mut Table, work: &str, case: &Case, measured: &[Measured]) {
    for (number, one) in measured.iter().enumerate() {
        let processor = Spread::of(one.samples.iter().map(|sample| sample.processor)).median;
        let first = |text: &str| if number == 0 { text.to_owned() } else { String::new() };
        let ratio = measured[0].ratio(one).shown(2);
        table.row(vec![
            first(work),
            first(case.name),
            one.name.to_owned(),
            format!("{:.0}", 1.0 / one.wall().median),
            format!("{:.2}", processor * 1e6),
            format!("{:.0} %", one.processor() * 100.0),
            if number == 0 { "–".to_owned() } else { format!("{ratio} ×") },
        ]);
    }
}
