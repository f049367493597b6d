//! Several locks in one request, against a request for each.

use super::Effort;
use super::contenders::{Batch, Lock, ONE, Reply, TTL};
use super::load::{Load, Shape, Work};
use super::report::Report;
use super::statistics::Spread;
use super::table::Table;
use testkit::{Server, encoded};

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
            let speed = compare(effort, shape, of_a_set);
            let what = format!("{of_a_set} locks, {name}");
            table.row(vec![what.clone(), format!("{:.2} ×", speed.median)]);
            if of_a_set == 3 {
                let what = format!("{what}, acquired and released in one request each");
                let against = "a request for each lock";
                report.target((&what, against), "≥ 2.0 ×", (speed.median, 2));
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
fn together(set: &Set) -> Vec<(String, Reply)> {
    let Set { owner, keys } = set;
    let (first, also) = keys.split_first().unwrap();
    let behind = format!("ALSO {} {}", also.len(), also.join(" "));
    let released = match keys.len() {
        2 => Reply::Exactly(b":2"),
        3 => Reply::Exactly(b":3"),
        _ => Reply::Number,
    };
    vec![
        (format!("LOCK.ACQUIRE {first} {owner} {TTL} {behind}"), Reply::Number),
        (format!("LOCK.RELEASE {first} {owner} {behind}"), released),
    ]
}

fn one_by_one(set: &Set) -> Vec<(String, Reply)> {
    let Set { owner, keys } = set;
    let acquire = |key: &String| (format!("LOCK.ACQUIRE {key} {owner} {TTL}"), Reply::Number);
    let release = |key: &String| (format!("LOCK.RELEASE {key} {owner}"), ONE);
    keys.iter().map(acquire).chain(keys.iter().map(release)).collect()
}

/// As many requests in one write, whatever they are for.
fn batches(sets: &[Set], depth: usize, requests: fn(&Set) -> Vec<(String, Reply)>) -> Vec<Batch> {
    let all: Vec<_> = sets.iter().flat_map(requests).collect();
    let batch = |requests: &[(String, Reply)]| Batch {
        bytes: requests.iter().flat_map(|(line, _)| encoded(line.as_str())).collect(),
        replies: requests.iter().map(|(_, reply)| *reply).collect(),
    };
    all.chunks(depth).map(batch).collect()
}

/// How many times as fast it is to ask for all of a set at once.
fn compare(effort: Effort, shape: Shape, of_a_set: usize) -> Spread {
    let server = Server::start();
    let sets = sets(of_a_set);
    let [at_once, each] = [together, one_by_one]
        .map(|requests| Work::shared(shape, &sets, |sets| batches(sets, shape.depth, requests)));
    let mut load = Load::on(&server, shape);
    load.measure(&each, SETS);
    let rounds = 0..effort.pick(1, 20, 60);
    let measured = rounds.map(|_| {
        let of = |work: &Work, load: &mut Load| load.measure(work, SETS).wall;
        (of(&each, &mut load), of(&at_once, &mut load))
    });
    let (each, at_once): (Vec<_>, Vec<_>) = measured.unzip();
    Spread::of_ratios(&each, &at_once)
}
