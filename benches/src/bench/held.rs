//! Whether a lock costs more among a million held locks than among a thousand.

use super::contenders::{Contender, Lock, work};
use super::load::{Load, Shape, Work};
use super::report::Report;
use super::statistics::Spread;
use super::table::Table;
use super::{Effort, cores, in_turns};
use testkit::Server;

const SHAPE: Shape = Shape { connections: 1, depth: 32 };

/// Few enough not to add much to a thousand held locks.
const AT_ONCE: usize = 512;
/// The number of sets of names, which take turns so that the processor's caches do not have the names.
const SETS: usize = 40;
/// Held locks are numbered from here on.
const HELD: usize = 1_000_000;

struct Place {
    server: Server,
    held: usize,
    load: Load,
    /// Times by contender, half and round.
    times: Vec<[Vec<f64>; 2]>,
}

pub(crate) fn run(effort: Effort, report: &mut Report) {
    let counts = effort.pick(
        vec![100, 1_000],
        vec![1_000, 1_000_000],
        vec![1_000, 10_000, 100_000, 1_000_000],
    );
    let contenders = [Contender::leasehold(), Contender::bare()];
    let names = [["LOCK.ACQUIRE", "LOCK.RELEASE"], ["SET NX PX", "DEL"]];
    let _apart = cores::leave_the_last();
    let mut places: Vec<Place> = counts.into_iter().map(Place::with).collect();
    let sets: Vec<Vec<Lock>> = (0..effort.pick(2, SETS, SETS))
        .map(|set| (0..AT_ONCE).map(|lock| Lock::numbered(set * AT_ONCE + lock)).collect())
        .collect();
    let rounds = effort.pick(2, 400, 2_000);
    let works: Vec<Vec<[Work; 2]>> = contenders
        .iter()
        .map(|one| {
            let halves = |locks: &Vec<Lock>| {
                [&one.acquire, &one.release].map(|half| work(SHAPE, half, locks))
            };
            sets.iter().map(halves).collect()
        })
        .collect();
    in_turns(rounds, places.len(), |round, number| {
        let place = &mut places[number];
        for (contender, (work, times)) in works.iter().zip(&mut place.times).enumerate() {
            // Other names than the other server's, which are in the caches.
            let set = (round + contender * sets.len() / 2) % sets.len();
            for (half, times) in work[set].iter().zip(times) {
                times.push(place.load.measure(half).wall);
            }
        }
    });
    let mut page =
        Table::new(&["Locks held", "By", "each", "half are between", "against the fewest"]);
    for place in &places {
        let figures = place.times.iter().flatten().zip(places[0].times.iter().flatten());
        for ((times, fewest), name) in figures.zip(names.iter().flatten()) {
            let spread = Spread::of(times.iter().copied());
            let [low, median, high] =
                [spread.low, spread.median, spread.high].map(|time| time * 1e6);
            let ratio = Spread::of_ratios(times, fewest);
            page.row(vec![
                place.held.to_string(),
                (*name).to_owned(),
                format!("{median:.3} µs"),
                format!("{low:.3}–{high:.3} µs"),
                format!("{} ×", ratio.shown(2)),
            ]);
        }
    }
    if let [few, .., many] = &places[..]
        && many.held == 1_000_000
    {
        target(few, many, report);
    }
    report.table("held", &page);
}

/// How much longer it takes to acquire a lock among many than among few, against how much longer `SET` takes.
fn target(few: &Place, many: &Place, report: &mut Report) {
    let [ours, bare] = [0, 1].map(|contender: usize| {
        let acquire = |place: &Place| place.times[contender][0].clone();
        Spread::of_ratios(&acquire(many), &acquire(few)).median
    });
    let growth = ours / bare;
    let what = ("acquire with 1,000,000 locks held: growth over 1,000", "growth of SET NX PX");
    let measured = format!("{ours:.2} to {bare:.2}: {growth:.2} ×");
    report.target_as(what, "≤ 1.00 ×", measured, growth <= 1.0);
}

impl Place {
    fn with(held: usize) -> Self {
        let server = Server::start();
        cores::give_the_last_to(&server);
        let load = Load::on(&server, SHAPE);
        let mut place = Self { server, held, load, times: vec![<[Vec<f64>; 2]>::default(); 2] };
        let contender = Contender::leasehold();
        let numbers: Vec<usize> = (HELD..HELD + held).collect();
        for part in numbers.chunks(10_000) {
            let locks: Vec<_> = part.iter().copied().map(Lock::numbered).collect();
            place.load.measure(&work(SHAPE, &contender.acquire, &locks));
        }
        assert_eq!(place.server.cmd("DBSIZE"), testkit::int(held as u64 as i64));
        place
    }
}
