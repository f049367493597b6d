//! Judges transcripts once more, after `campaign/judge`: with the linearizability tester of stateright, another search, and
//! by a model that shares no code with the other.
//!
//! The tester remembers no order that failed, so parts are short. It is about L1 to L3, of owners whose requests were all
//! answered and whose connections did not end, where nothing was lost. Other grants are counted as left out.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
#![allow(clippy::as_conversions, reason = "a tool that stops at the first surprise")]

use serde_json::Value;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};

/// The grants of a part, by how many it overlaps the next, and how many steps its search may take.
const GRANTS: usize = 6;
const OVERLAP: usize = 2;
const STEPS: u64 = 20_000;

thread_local!(static STEPS_LEFT: Cell<u64> = const { Cell::new(0) });

/// A request that succeeded. Times are microseconds, and a share grows with tolerance. `rank` is the place of its grant in
/// the part, and `nth` its own in the grant.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    f: char,
    process: u64,
    line: usize,
    asked: u64,
    told: u64,
    owner: u64,
    lock: Option<u64>,
    fence: u64,
    ttl: u64,
    share: u64,
    rank: usize,
    nth: usize,
    is_last: bool,
}

/// The lock: its holds are their last steps, and the moments until which they surely last.
#[derive(Clone, Default)]
struct Lock {
    now: u64,
    rank: usize,
    holds: Vec<(Step, u64)>,
}

impl SequentialSpec for Lock {
    type Op = Step;
    type Ret = ();

    fn invoke(&mut self, _: &Step) {}

    fn is_valid_step(&mut self, step: &Step, (): &()) -> bool {
        let left = STEPS_LEFT.get();
        STEPS_LEFT.set(left.saturating_sub(1));
        self.now = self.now.max(step.asked);
        left > 0 && self.takes(*step) && self.now <= step.told
    }
}

impl Lock {
    fn takes(&mut self, mut step: Step) -> bool {
        let is_over = |holds: &[(Step, u64)]| holds.iter().all(|(last, _)| last.is_last);
        let mut least = 0;
        if step.f == 'd' {
            return is_over(&std::mem::take(&mut self.holds));
        } else if step.nth == 0 {
            // It takes the place of an earlier hold of its owner.
            let others = |(last, _): &(Step, u64)| last.owner != step.owner;
            let (others, own): (Vec<_>, Vec<_>) = self.holds.iter().copied().partition(others);
            self.holds = others;
            while !self.has_room_for(step.share) {
                let ends = self.holds.iter().map(|(_, ends)| *ends);
                self.now = ends.filter(|ends| *ends > self.now).min().expect("a hold");
            }
            let excluded = |(last, _): &(Step, u64)| last.share == 1 || step.share == 1;
            let (gone, beside): (Vec<_>, Vec<_>) = self.holds.iter().copied().partition(excluded);
            self.holds = beside;
            if step.rank != self.rank + 1 || !is_over(&own) || !is_over(&gone) {
                return false;
            }
            self.rank = step.rank;
        } else {
            let is_it = |(last, _): &(Step, u64)| last.fence == step.fence;
            let Some(at) = self.holds.iter().position(is_it) else { return false };
            let (last, ends) = self.holds.remove(at);
            if (last.owner, last.nth + 1) != (step.owner, step.nth)
                || !self.has_room_for(last.share)
            {
                return false;
            }
            step.share = if step.f == 'a' { last.share.max(step.share) } else { last.share };
            least = if step.f == 'e' { 0 } else { ends };
        }
        if step.f == 'a' || step.f == 'e' {
            // Servers count in milliseconds.
            least = least.max((self.now / 1_000 + step.ttl) * 1_000);
        }
        if step.f != 'r' {
            self.holds.push((step, least));
        }
        true
    }

    fn has_room_for(&self, share: u64) -> bool {
        let sure = || self.holds.iter().filter(|(_, ends)| *ends > self.now);
        (sure().count() as u64) < sure().map(|(last, _)| last.share).fold(share, u64::min)
    }
}

/// What was judged so far.
#[derive(Default)]
struct Sums {
    steps: usize,
    grants: usize,
    left_out: usize,
    parts: usize,
    wrong: usize,
    undecided: usize,
}

/// What was told in one round, and of whom it is not known what was done to which lock.
#[derive(Default)]
struct Round {
    losses: Vec<(u64, u64)>,
    open: HashMap<u64, (usize, u64)>,
    steps: Vec<Step>,
    unsure: BTreeSet<(u64, Option<u64>)>,
}

impl Round {
    fn add(&mut self, at: usize, map: &Value) {
        let number = |name: &str| map["value"][name].as_u64().unwrap_or(0);
        let micros = |name: &str| map[name].as_u64().unwrap_or(0) / 1_000;
        let (f, told) = (map["f"].as_str().unwrap_or(""), micros("time"));
        let (owner, lock) = (number("owner"), map["value"]["lock"].as_u64());
        let Some(process) = map["process"].as_u64() else {
            if f == "loss" {
                self.losses.push((told, micros("until")));
            }
            return;
        };
        if map["type"] == "invoke" {
            self.open.insert(process, (at, told));
            return;
        }
        let (line, asked) = self.open.remove(&process).expect("a request");
        if map["type"] == "info" || f == "closed" {
            self.unsure.insert((owner, lock));
        } else if map["type"] == "ok" && f != "seen" {
            let (fence, ttl) = (number("fence"), number("ttl"));
            // 0 tolerates any number of others.
            let share = Some(number("share")).filter(|share| *share > 0).unwrap_or(u64::MAX);
            let f = f.chars().next().unwrap_or(' ');
            let ids = Step { f, process, line, owner, lock, ..Step::default() };
            self.steps.push(Step { asked, told, fence, ttl, share, ..ids });
        }
    }

    fn judge(mut self, sums: &mut Sums) {
        self.steps.sort_by_key(|step| step.line);
        let mut locks: BTreeMap<_, BTreeMap<_, Vec<Step>>> = BTreeMap::new();
        let (deletes, steps): (Vec<_>, Vec<_>) =
            self.steps.iter().copied().partition(|step| step.f == 'd');
        for step in &steps {
            locks.entry(step.lock).or_default().entry(step.fence).or_default().push(*step);
        }
        for (lock, grants) in locks {
            let until = |of: &[Step]| of.iter().map(|step| step.told).max().unwrap_or(0);
            let is_known = |of: &Vec<Step>| {
                let lost = |(from, to): &(u64, u64)| *from <= until(of) && of[0].asked <= *to;
                let is_unsure = self.unsure.contains(&(of[0].owner, lock));
                of[0].fence > 0 && of[0].f == 'a' && !is_unsure && !self.losses.iter().any(lost)
            };
            let all = grants.len();
            let known: Vec<_> = grants.into_values().filter(is_known).collect();
            sums.grants += all;
            sums.left_out += all - known.len();
            for begin in (0..known.len()).step_by(GRANTS - OVERLAP) {
                let part = &known[begin..known.len().min(begin + GRANTS)];
                let (from, to) = (part[0][0].asked, part.iter().map(|of| until(of)).max());
                let meets = |step: &&Step| {
                    (step.lock.is_none() || step.lock == lock)
                        && (step.told >= from && Some(step.asked) <= to)
                };
                let mut steps: Vec<_> = deletes.iter().filter(meets).copied().collect();
                for (rank, of) in (1..).zip(part) {
                    let place = |(nth, step): (usize, &Step)| Step {
                        rank,
                        nth,
                        is_last: nth + 1 == of.len(),
                        ..*step
                    };
                    steps.extend(of.iter().enumerate().map(place));
                }
                judge_part(&steps, sums);
            }
        }
    }
}

fn judge_part(steps: &[Step], sums: &mut Sums) {
    // Replies of the same moment come after requests.
    let both = |step| [(step, false), (step, true)];
    let mut events: Vec<(&Step, bool)> = steps.iter().flat_map(both).collect();
    events.sort_by_key(|(step, is_reply)| match is_reply {
        true => (step.told, true, step.line),
        false => (step.asked, false, step.line),
    });
    let mut tester = LinearizabilityTester::new(Lock::default());
    for (step, is_reply) in events {
        let told = match is_reply {
            true => tester.on_return(step.process, ()),
            false => tester.on_invoke(step.process, *step),
        };
        told.expect("a process asks for one thing at a time");
    }
    STEPS_LEFT.set(STEPS);
    sums.steps += steps.len();
    sums.parts += 1;
    if tester.is_consistent() {
        return;
    }
    if STEPS_LEFT.get() == 0 {
        sums.undecided += 1;
    } else {
        sums.wrong += 1;
        println!("no order explains {steps:#?}");
    }
}

fn main() {
    for file in std::env::args().skip(1) {
        let (mut round, mut sums) = (Round::default(), Sums::default());
        let lines = BufReader::new(File::open(&file).expect("a transcript")).lines();
        for (at, line) in lines.enumerate() {
            let map: Value = serde_json::from_str(&line.expect("text")).expect("a line of JSON");
            if map["f"] == "run" || map["f"] == "round" {
                std::mem::take(&mut round).judge(&mut sums);
            } else {
                round.add(at, &map);
            }
        }
        round.judge(&mut sums);
        let Sums { steps, grants, left_out, parts, wrong, undecided } = sums;
        println!(
            "{file}, by stateright: {steps} steps, {grants} grants, {left_out} of them left out, in {parts} parts: {wrong} wrong, {undecided} undecided"
        );
        if wrong > 0 {
            std::process::exit(1);
        }
    }
}
