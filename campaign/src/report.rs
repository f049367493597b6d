//! Violations as text: the records that contradict each other, and the events around them.

use crate::checker::{History, Span, Violation};
use crate::record::{EVERY_LOCK, Record};
use std::fmt::Write;

/// More records would not help a reader.
const MOST_LINES: usize = 40;

impl History {
    /// The promise, the records that show its violation (marked `>`), the records of that lock in
    /// between, and the faults. `faults` are moments in microseconds, each with its fault.
    pub fn explain(&self, violation: &Violation, faults: &[(u64, String)]) -> String {
        let Span { from, to } = self.window(violation);
        let mut proof = violation.proof.clone();
        proof.sort_unstable();
        proof.dedup();
        let is_proof = |index: u32| proof.binary_search(&index).is_ok();
        let mut text =
            format!("{:?} of lock {}: {}\n", violation.law, violation.lock, violation.what);
        let within = |(index, record): &(u32, &Record)| {
            let of_lock = record.lock == violation.lock || record.lock == EVERY_LOCK;
            of_lock && record.asked <= to && record.told >= from || is_proof(*index)
        };
        let mut window: Vec<_> = (0..).zip(&self.records).filter(within).collect();
        let all = window.len();
        // The requests of the proof's owners say more than the requests of others.
        let owners = proof.iter().map(|index| self.records[*index as usize].owner);
        let owners: Vec<_> = owners.collect();
        let says_less = |index: u32, owner| (!is_proof(index), !owners.contains(&owner));
        window.sort_by_key(|(index, record)| (says_less(*index, record.owner), record.asked));
        window.truncate(MOST_LINES.max(proof.len()));
        window.sort_by_key(|(_, record)| (record.asked, record.told));
        let left_out = all - window.len();
        let relative = |at: u64| at as f64 / 1_000.0 - from as f64 / 1_000.0;
        let mut events: Vec<(u64, String)> = Vec::new();
        for (index, record) in window {
            let mark = if is_proof(index) { '>' } else { ' ' };
            let Record { op, outcome, owner, fence, ttl, server, share, .. } = record;
            let share = if record.is_acquire() { format!(" share {share}") } else { String::new() };
            events.push((
                record.asked,
                format!(
                    "{mark} {:>10.3} .. {:>10.3} ms  owner {owner:<8} {op:?} {outcome:?} fence {fence} ttl {ttl}{share} server {server}",
                    relative(record.asked),
                    relative(record.told),
                ),
            ));
        }
        let near = |at: u64| at + 100_000 >= from && at <= to.saturating_add(10_000);
        for (at, what) in faults.iter().filter(|(at, _)| near(*at)) {
            events.push((*at, format!("! {:>10.3} ms                 {what}", relative(*at))));
        }
        events.sort_by_key(|(at, _)| *at);
        for (_, line) in events {
            writeln!(text, "  {line}").unwrap();
        }
        if left_out > 0 {
            writeln!(text, "  and {left_out} more").unwrap();
        }
        text
    }
}
