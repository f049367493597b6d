//! How long other clients get no reply when thousands of waiters leave in one moment.

use super::Effort;
use super::hand_off::roomy;
use super::pings::{longest, while_doing};
use super::report::Report;
use super::statistics::Spread;
use super::table::Table;
use std::time::{Duration, Instant};
use testkit::crowd::Crowd;
use testkit::{Client, eventually};

/// The time in which all begin to wait, before the first is due to leave.
const GATHERING: Duration = Duration::from_secs(3);

#[derive(Clone, Copy)]
enum Waiting {
    Queue,
    List,
}

#[derive(Clone, Copy)]
enum End {
    /// The patience of all ends at the same time.
    Patience,
    /// Their connections are closed.
    Connection,
}

/// In seconds.
struct Leaving {
    took: f64,
    longest_ping: f64,
}

pub(crate) fn run(effort: Effort, report: &mut Report) {
    let count = effort.pick(100, 10_000, 10_000);
    let rounds = effort.pick(1, 1, 3);
    let kinds = [("Leasehold, BLOCK", Waiting::Queue), ("BLPOP", Waiting::List)];
    let ends = [("their patience ends", End::Patience), ("they disconnect", End::Connection)];
    let mut page =
        Table::new(&["Waiters", "By", "Leave as", "until all have left", "longest PING meanwhile"]);
    let mut file = Table::new(&["waiters", "by", "leave_as", "took_ms", "longest_ping_ms"]);
    let mut seen = (0..kinds.len() * ends.len()).map(|_| Vec::new()).collect::<Vec<_>>();
    for _ in 0..rounds {
        for (end_number, (_, end)) in ends.iter().enumerate() {
            for (kind_number, (_, kind)) in kinds.iter().enumerate() {
                let leaving = once(*kind, *end, count, effort);
                seen[end_number * kinds.len() + kind_number].push(leaving);
            }
        }
    }
    for (number, seen) in seen.iter().enumerate() {
        let (end, kind) = (ends[number / kinds.len()].0, kinds[number % kinds.len()].0);
        let took = Spread::of(seen.iter().map(|one: &Leaving| one.took)).median * 1e3;
        let longest = seen.iter().map(|one| one.longest_ping).fold(0.0, f64::max) * 1e3;
        let cells = [count.to_string(), kind.to_owned(), end.to_owned()];
        let with = |figures: [String; 2]| cells.iter().cloned().chain(figures).collect();
        page.row(with([format!("{took:.1} ms"), format!("{longest:.1} ms")]));
        file.row(with([format!("{took:.3}"), format!("{longest:.3}")]));
    }
    report.table("leaving", &page, &[]);
    report.file("leaving", &file);
}

fn once(waiting: Waiting, end: End, count: usize, effort: Effort) -> Leaving {
    let server = roomy(count);
    let mut observer = server.client();
    observer.grant("k", "alice", 86_400_000);
    let mut crowd = Crowd::of(&server, count);
    let gathering = effort.pick(GATHERING / 2, GATHERING, GATHERING);
    let due = Instant::now() + gathering;
    for member in 0..count {
        let patience = match end {
            End::Patience => due.saturating_duration_since(Instant::now()).as_millis(),
            End::Connection => 600_000,
        };
        assert!(patience > 0, "the crowd did not gather in time");
        crowd.send(
            member,
            match waiting {
                Waiting::Queue => format!("LOCK.ACQUIRE k w{member} 600000 BLOCK {patience}"),
                Waiting::List => format!("BLPOP list {}.{:03}", patience / 1_000, patience % 1_000),
            },
        );
    }
    wait_until_blocked(&mut observer, count);
    let (took, pings) = while_doing(&server, || {
        let begun = match end {
            End::Patience => due,
            End::Connection => {
                let begun = Instant::now();
                drop(crowd);
                begun
            }
        };
        wait_until_blocked(&mut observer, 0);
        begun.elapsed().as_secs_f64()
    });
    Leaving { took, longest_ping: longest(&pings) }
}

fn wait_until_blocked(observer: &mut Client, wanted: usize) {
    eventually("as many wait as are to", || {
        match observer.info_field("clients", "blocked_clients") {
            Some(seen) if seen == wanted.to_string() => Ok(()),
            seen => Err(seen),
        }
    });
}
