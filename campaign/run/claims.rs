//! Violations that a probe saw itself, because it knows the order of its requests. The checker need
//! not find them. What remains is whether a fault explains them.

use crate::runner::now;
use leasehold_campaign::Span;
use std::sync::Mutex;

/// Faults that began so long before a violation are shown with it.
const NEAR_MICROS: u64 = 100_000;

/// What explains a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excuse {
    /// Nothing.
    None,
    /// A server that was stopped at that time.
    Stop,
    /// A server that was stopped until so many microseconds before the end, because a wait may have
    /// begun then; or links that were cut at any time.
    Cut { stopped_within: u64 },
    /// A server that was stopped, or a fault that deleted every key.
    Freed,
}

pub(crate) struct Claim {
    law: &'static str,
    what: String,
    span: Span,
    excuse: Excuse,
}

/// The effect of a fault.
#[derive(Clone, Copy)]
pub(crate) struct Disturbance {
    pub(crate) span: Span,
    pub(crate) stops: bool,
    pub(crate) frees: bool,
    pub(crate) cuts: bool,
}

#[derive(Default)]
pub(crate) struct Claims {
    all: Mutex<Vec<Claim>>,
    /// When threads of clients were kept from running.
    delays: Mutex<Vec<Span>>,
}

impl Claims {
    /// Adds a violation that happened since `from`.
    pub(crate) fn add(&self, law: &'static str, excuse: Excuse, from: u64, what: String) {
        self.add_of(Span { from, to: now() }, law, excuse, what);
    }

    /// Adds a violation that happened in this span.
    pub(crate) fn add_of(&self, span: Span, law: &'static str, excuse: Excuse, what: String) {
        self.all.lock().unwrap().push(Claim { law, what, span, excuse });
    }

    /// Notes that the machine kept a client from running. The server did nothing wrong, and no fault was made.
    pub(crate) fn delayed(&self, span: Span) {
        self.delays.lock().unwrap().push(span);
    }

    pub(crate) fn take_delays(&self) -> Vec<Span> {
        std::mem::take(&mut self.delays.lock().unwrap())
    }

    /// The violations that nothing explains, as text. A server that was stopped may be late for
    /// `calm_micros` afterwards.
    pub(crate) fn take_unexcused(
        &self,
        all: &[Disturbance],
        calm_micros: u64,
        faults: &[(u64, String)],
    ) -> Vec<String> {
        let claims = std::mem::take(&mut *self.all.lock().unwrap());
        let unexcused = claims.into_iter().filter(|claim| {
            !all.iter().any(|one| {
                let since = |from: u64, calm: u64| {
                    one.span.from <= claim.span.to && one.span.to + calm >= from
                };
                let during = |calm: u64| since(claim.span.from, calm);
                match claim.excuse {
                    Excuse::None => false,
                    Excuse::Stop => one.stops && during(calm_micros),
                    Excuse::Cut { stopped_within } => {
                        let stops = one.stops && since(claim.span.to - stopped_within, calm_micros);
                        stops || one.cuts && during(calm_micros)
                    }
                    Excuse::Freed => one.stops && during(calm_micros) || one.frees && during(0),
                }
            })
        });
        let shown = |claim: Claim| {
            let lasted = (claim.span.to - claim.span.from) / 1_000;
            let mut text = format!("{}: {} (seen within {lasted} ms)", claim.law, claim.what);
            let near = |at: &u64| *at + NEAR_MICROS >= claim.span.from && *at <= claim.span.to;
            for (at, fault) in faults.iter().filter(|(at, _)| near(at)) {
                let since = at.cast_signed() - claim.span.from.cast_signed();
                text.push_str(&format!("\n  ! {:>10.3} ms  {fault}", since as f64 / 1_000.0));
            }
            text
        };
        unexcused.map(shown).collect()
    }
}
