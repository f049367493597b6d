//! Several locks in one request, against a request for each.

use super::Effort;
use super::contenders::{Lock, TTL};
use super::load::{Command, Load, ONE, Reply, Shape, Work, compare};
use super::report::Report;
use super::table::Table;
use testkit::Server;

/// How many locks make up a set.
const OF_A_SET: [usize; 3] = [2, 3, 10];

const SHAPES: [(&str, Shape); 2] = [
    ("pipelined 32", Shape { connections: 1, depth: 32 }),
    ("unpipelined", Shape { connections: 1, depth: 1 }),
];

/// How many sets take turns.
const SETS: usize = 1_024;

pub(crate) fn run(effort: Effort, report: &mut Report) {
    let header =
        ["Locks acquired and released together", "in one request each, against one by one"];
    let mut table = Table::new(&header);
    for of_a_set in OF_A_SET {
        for (name, shape) in SHAPES {
            let speed = compared(effort, shape, of_a_set);
            let what = format!("{of_a_set} locks, {name}");
            table.row(vec![what.clone(), format!("{speed:.2} ×")]);
            if of_a_set == 3 {
                let what = format!("{what}, acquired and released in one request each");
                let against = "a request for each lock";
                report.target((&what, against), "≥ 2.0 ×", (speed, 2));
            }
        }
    }
    report.table("several", &table);
}

/// The locks of a set, and who acquires them.
struct Set {
    owner: String,
    keys: Vec<String>,
}

fn sets(of_a_set: usize) -> Vec<Set> {
    let set = |number: usize| {
        let locks = (0..of_a_set).map(|at| Lock::numbered(number * of_a_set + at).key);
        Set { owner: Lock::numbered(number).owner, keys: locks.collect() }
    };
    (0..SETS).map(set).collect()
}

/// All of a set with one request, and with one more.
fn together(set: &Set) -> Vec<Command> {
    let Set { owner, keys } = set;
    let (first, also) = keys.split_first().unwrap();
    let behind = format!("ALSO {} {}", also.len(), also.join(" "));
    let released = match keys.len() {
        2 => Reply::Exactly(b":2"),
        3 => Reply::Exactly(b":3"),
        _ => Reply::Number,
    };
    vec![
        (format!("LOCK.ACQUIRE {first} {owner} {TTL} {behind}"), vec![Reply::Number]),
        (format!("LOCK.RELEASE {first} {owner} {behind}"), vec![released]),
    ]
}

fn one_by_one(set: &Set) -> Vec<Command> {
    let Set { owner, keys } = set;
    let acquire = |key| (format!("LOCK.ACQUIRE {key} {owner} {TTL}"), vec![Reply::Number]);
    let release = |key| (format!("LOCK.RELEASE {key} {owner}"), vec![ONE]);
    keys.iter().map(acquire).chain(keys.iter().map(release)).collect()
}

/// How many times as fast it is to ask for all of a set at once, with as many requests in one write, whatever they are for.
fn compared(effort: Effort, shape: Shape, of_a_set: usize) -> f64 {
    let server = Server::start();
    let sets = sets(of_a_set);
    let requests = [one_by_one, together].map(|of| sets.iter().flat_map(of).collect::<Vec<_>>());
    let works = requests.each_ref().map(|all| Work::of(shape, all, |one| vec![one.clone()]));
    let turns = works.each_ref().map(|work| (0, vec![work]));
    let samples = compare(effort.pick(1, 20, 60), &mut [Load::on(&server, shape)], &turns);
    // A sample is the time of one request.
    let more = requests[0].len() as f64 / requests[1].len() as f64;
    more * samples[0][0].against(&samples[1][0]).median
}
