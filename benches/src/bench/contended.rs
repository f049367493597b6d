//! Many workers and one lock: how many get through, how long they wait, and in which order.

use super::order::{Section, overtakings};
use super::report::Report;
use super::statistics::{Spread, quantile};
use super::table::Table;
use super::ways::{BATON, POLLING, QUEUE, Way};
use super::{Effort, in_turns};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::Server;

const WORKERS: [usize; 4] = [2, 16, 64, 256];
/// The case whose figures have targets.
const BASE: Case = Case { workers: 16, section: Duration::ZERO };

#[derive(Clone, Copy, PartialEq, Eq)]
struct Case {
    workers: usize,
    /// How long the lock is held.
    section: Duration,
}

pub(crate) fn run(effort: Effort, report: &mut Report) {
    let server = Server::start();
    let ways = Way::all(&server);
    let sections = [Duration::ZERO, Duration::from_millis(1)];
    let all = sections.iter().flat_map(|&section| WORKERS.map(|workers| Case { workers, section }));
    let cases = effort.pick(vec![BASE], vec![BASE], all.collect());
    let mut page = table();
    for case in cases {
        let measured = measure(&server, &ways, case, effort);
        add(&mut page, case, &ways, &measured);
        if case == BASE {
            targets(&ways, &measured, report);
        }
    }
    report.table("contended", &page);
}

/// The runs of one way.
struct Measured {
    runs: Vec<Run>,
}

/// The figures of one run.
struct Run {
    per_second: f64,
    /// In seconds, sorted.
    waits: Vec<f64>,
    /// The share of grants that went to a worker before another that was queued when it asked.
    overtaking: f64,
    /// Commands that the server executed for each critical section.
    commands: f64,
}

impl Measured {
    fn each(&self, figure: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.runs.iter().map(figure).collect()
    }

    fn median(&self, figure: impl Fn(&Run) -> f64) -> f64 {
        Spread::of(self.each(figure)).median
    }

    fn wait(&self, share: f64) -> f64 {
        self.median(|run| quantile(&run.waits, share))
    }

    fn longest(&self) -> f64 {
        self.each(|run| *run.waits.last().unwrap()).into_iter().fold(0.0, f64::max)
    }
}

fn measure(server: &Server, ways: &[Way], case: Case, effort: Effort) -> Vec<Measured> {
    let length = Duration::from_millis(effort.pick(100, 1_500, 1_500));
    let rounds = effort.pick(1, 3, if case == BASE { 9 } else { 3 });
    let mut measured: Vec<_> = ways.iter().map(|_| Measured { runs: Vec::new() }).collect();
    in_turns(rounds, ways.len(), |_, one| {
        measured[one].runs.push(run_once(server, &ways[one], case, length));
    });
    measured
}

/// The state that workers share.
struct Floor {
    /// All workers begin together.
    gate: Barrier,
    closing: AtomicBool,
    inside: AtomicBool,
    places: AtomicUsize,
    epoch: Instant,
}

fn run_once(server: &Server, way: &Way, case: Case, length: Duration) -> Run {
    way.prepare(server);
    let floor = Floor {
        gate: Barrier::new(case.workers + 1),
        closing: AtomicBool::new(false),
        inside: AtomicBool::new(false),
        places: AtomicUsize::new(0),
        epoch: Instant::now(),
    };
    let mut observer = server.client();
    let mut commands = || observer.info_number("stats", "total_commands_processed") as f64;
    let (mut sections, before, opened, closed) = thread::scope(|scope| {
        let work = |worker| {
            let floor = &floor;
            scope.spawn(move || work(way, worker, case.section, floor))
        };
        let workers: Vec<_> = (0..case.workers).map(work).collect();
        let before = commands();
        floor.gate.wait();
        let opened = floor.epoch.elapsed().as_secs_f64();
        thread::sleep(length);
        floor.closing.store(true, Ordering::Relaxed);
        let closed = floor.epoch.elapsed().as_secs_f64();
        let sections: Vec<_> =
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        (sections, before, opened, closed)
    });
    let commands = (commands() - before) / sections.len() as f64;
    sections.sort_by_key(|section| section.place);
    let in_time = sections.iter().filter(|section| section.granted < closed).count();
    // Workers that still waited when time was up got the lock afterwards, so no wait is left out.
    let mut waits: Vec<f64> =
        sections.iter().map(|section| section.granted - section.begun).collect();
    waits.sort_by(f64::total_cmp);
    Run {
        per_second: in_time as f64 / (closed - opened),
        waits,
        overtaking: overtakings(&sections) as f64 / sections.len() as f64,
        commands,
    }
}

fn work(way: &Way, number: usize, length: Duration, floor: &Floor) -> Vec<Section> {
    let mut worker = way.worker(number);
    let mut sections = Vec::with_capacity(1 << 10);
    floor.gate.wait();
    while !floor.closing.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let sent = worker.acquire();
        let granted = Instant::now();
        let occupied = floor.inside.swap(true, Ordering::SeqCst);
        assert!(!occupied, "{}: two have the lock at once", way.name);
        let place = floor.places.fetch_add(1, Ordering::SeqCst);
        if !length.is_zero() {
            thread::sleep(length);
        }
        floor.inside.store(false, Ordering::SeqCst);
        worker.release();
        let [begun, sent, granted] =
            [begun, sent, granted].map(|moment| (moment - floor.epoch).as_secs_f64());
        sections.push(Section { place, begun, sent, granted });
    }
    sections
}

fn targets(ways: &[Way], measured: &[Measured], report: &mut Report) {
    let find = |name: &str| &measured[ways.iter().position(|way| way.name == name).unwrap()];
    let (ours, baton) = (find(QUEUE), find(BATON));
    let rate = |run: &Run| run.per_second;
    let ratio = Spread::of_ratios(&ours.each(rate), &baton.each(rate));
    let (what, met) = ("16 workers, one lock: throughput", ratio.median >= 1.0);
    report.target_as((what, BATON), "≥ 1.00 ×", format!("{} ×", ratio.shown(2)), met);
    let overtaking = ours.each(|run| run.overtaking).into_iter().fold(0.0, f64::max);
    let what = "16 workers, one lock: grants out of turn";
    report.target_as((what, ""), "0", percent(overtaking), overtaking == 0.0);
    for name in POLLING {
        let share = ours.longest() / find(name).longest();
        report.target(("16 workers, one lock: longest wait", name), "≤ 0.010 ×", (share, 4));
    }
}

fn percent(share: f64) -> String {
    if share == 0.0 { "0".to_owned() } else { format!("{:.3} %", share * 100.0) }
}

fn table() -> Table {
    Table::new(&[
        "Held for",
        "Workers",
        "By",
        "a second",
        "half wait up to",
        "99 % up to",
        "longest wait",
        "out of turn",
        "commands each",
    ])
}

fn add(table: &mut Table, case: Case, ways: &[Way], measured: &[Measured]) {
    for (number, (way, one)) in ways.iter().zip(measured).enumerate() {
        let first = |text: String| if number == 0 { text } else { String::new() };
        let waits = [one.wait(0.5), one.wait(0.99), one.longest()];
        let [half, most, longest] = waits.map(|wait| format!("{:.2} ms", wait * 1e3));
        table.row(vec![
            first(format!("{} ms", case.section.as_millis())),
            first(case.workers.to_string()),
            way.name.to_owned(),
            format!("{:.0}", one.median(|run| run.per_second)),
            half,
            most,
            longest,
            percent(one.median(|run| run.overtaking)),
            format!("{:.1}", one.median(|run| run.commands)),
        ]);
    }
}
