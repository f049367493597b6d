//! Metrics, through the `metrics` crate. Without the feature, nothing is recorded.

#[cfg(feature = "metrics")]
mod enabled {
    use metrics::{counter, gauge, histogram};
    use std::time::Duration;

    pub(crate) fn waited(outcome: &'static str, waited: Duration) {
        if outcome == "acquired" {
            counter!("leasehold_acquired_total").increment(1);
        }
        histogram!("leasehold_waited_seconds", "outcome" => outcome).record(waited.as_secs_f64());
    }

    pub(crate) fn held(held: Duration) {
        histogram!("leasehold_held_seconds").record(held.as_secs_f64());
    }

    pub(crate) fn lost(why: &'static str) {
        counter!("leasehold_lost_total", "why" => why).increment(1);
    }

    pub(crate) fn released_late() {
        counter!("leasehold_late_total").increment(1);
    }

    pub(crate) fn reconnected() {
        counter!("leasehold_reconnects_total").increment(1);
    }

    pub(crate) fn one_more_waits() {
        gauge!("leasehold_waiting_connections").increment(1.0);
    }

    pub(crate) fn one_less_waits() {
        gauge!("leasehold_waiting_connections").decrement(1.0);
    }

    pub(crate) fn one_more_ticket() {
        gauge!("leasehold_waiting_tickets").increment(1.0);
    }

    pub(crate) fn one_less_ticket() {
        gauge!("leasehold_waiting_tickets").decrement(1.0);
    }
}

#[cfg(not(feature = "metrics"))]
mod enabled {
    use std::time::Duration;

    pub(crate) fn waited(_: &'static str, _: Duration) {}
    pub(crate) fn held(_: Duration) {}
    pub(crate) fn lost(_: &'static str) {}
    pub(crate) fn released_late() {}
    pub(crate) fn reconnected() {}
    pub(crate) fn one_more_waits() {}
    pub(crate) fn one_less_waits() {}
    pub(crate) fn one_more_ticket() {}
    pub(crate) fn one_less_ticket() {}
}

pub(crate) use enabled::*;
