//! What is done to the servers in a round, and what that excuses.

use crate::claims::Disturbance;
use crate::runner::{IDLE_MICROS, now};
use leasehold_campaign::{EVERY_LOCK, Op, Record, Rules, Span};
use std::time::Duration;

/// The faults of a round, and what each excuses.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) log: Vec<(u64, String)>,
    pub(crate) rules: Rules,
    pub(crate) deletes: Vec<Record>,
    pub(crate) disturbances: Vec<Disturbance>,
}

impl Faults {
    /// Runs a fault and logs when it happened.
    pub(crate) fn note<T>(&mut self, what: &str, does: impl FnOnce() -> T) -> (T, Span) {
        let from = now();
        self.log.push((from, what.to_owned()));
        let done = does();
        (done, Span { from, to: now() })
    }

    /// Runs a fault that may lose data, also data that was acknowledged up to `before` earlier.
    pub(crate) fn lossy<T>(&mut self, what: &str, before: Duration, does: impl FnOnce() -> T) -> T {
        let (done, span) = self.note(what, does);
        self.lost(span, before);
        done
    }

    /// Notes that data may have been lost in this span, and for `before` earlier.
    pub(crate) fn lost(&mut self, span: Span, before: Duration) {
        let before = u64::try_from(before.as_micros()).unwrap();
        self.rules.loss.push(Span { from: span.from - before, to: span.to });
        self.rules.standstill.push(after(span));
        self.disturbances.push(Disturbance { span, stops: true, frees: true, cuts: false });
    }

    /// Notes a failover that the scenario did not ask for, at some time since `from`.
    pub(crate) fn lost_unasked(&mut self, from: u64, before: Duration) -> Span {
        let ((), noted) = self.note("unasked, another has become the primary", || ());
        let span = Span { from, ..noted };
        self.lost(span, before);
        span
    }

    /// Runs a fault that loses nothing, but during which nothing is granted.
    pub(crate) fn still<T>(&mut self, what: &str, does: impl FnOnce() -> T) -> T {
        let (done, span) = self.note(what, does);
        self.stood_still(span);
        done
    }

    /// Notes that the clock was set back in this span, and behind until then. What was granted before may last longer, or
    /// be in force again; what is granted since is judged as ever.
    pub(crate) fn was_behind(&mut self, set_back: Span, until: u64) {
        self.lost(set_back, Duration::ZERO);
        self.rules.behind.push(Span { to: until, ..set_back });
    }

    /// Runs a fault after which a hold may be bound to no connection any more.
    pub(crate) fn unbinds<T>(&mut self, what: &str, does: impl FnOnce() -> T) -> T {
        let (done, span) = self.note(what, does);
        self.rules.unbound.push(span);
        done
    }

    /// Runs a fault that loses data, after which nothing is granted for as long as `rest`.
    pub(crate) fn forgets<T>(&mut self, what: &str, rest: Duration, does: impl FnOnce() -> T) -> T {
        let (done, span) = self.note(what, does);
        self.rules.forgotten.push(span);
        let rest = u64::try_from(rest.as_micros()).unwrap();
        self.stood_still(Span { to: span.to + rest, ..span });
        done
    }

    /// Runs a fault that cuts some links. Replies on other links may arrive meanwhile.
    pub(crate) fn cuts<T>(&mut self, what: &str, does: impl FnOnce() -> T) -> T {
        let (done, span) = self.note(what, does);
        self.cut_off(span);
        done
    }

    /// Notes that links were cut in this span.
    pub(crate) fn cut_off(&mut self, span: Span) {
        self.disturbances.push(Disturbance { span, stops: false, frees: false, cuts: true });
    }

    /// Notes that nothing was granted in this span, and nothing lost.
    pub(crate) fn stood_still(&mut self, span: Span) {
        self.rules.standstill.push(after(span));
        self.disturbances.push(Disturbance { span, stops: true, frees: false, cuts: false });
    }

    /// Runs a fault that deletes the key of a lock, or of every lock.
    pub(crate) fn frees<T>(
        &mut self,
        what: &str,
        lock: Option<u32>,
        does: impl FnOnce() -> T,
    ) -> T {
        let (done, span) = self.note(what, does);
        let lock_or_all = lock.unwrap_or(EVERY_LOCK);
        self.deletes.push(Record::new(Op::Delete, u32::MAX, lock_or_all, (span.from, span.to)));
        if lock.is_none() {
            self.disturbances.push(Disturbance { span, stops: false, frees: true, cuts: false });
        }
        done
    }
}

/// The span and a moment around it: a server needs some time until it works as before.
fn after(span: Span) -> Span {
    Span { from: span.from.saturating_sub(IDLE_MICROS), to: span.to + IDLE_MICROS }
}
