//! Whether a server is late with something that it must do at once, while it answers other requests.
//!
//! Time alone shows nothing, because it goes on while the machine stands still. A number of answers shows nothing
//! either: a server whose timer fires in a millisecond answers forty requests until then, and the machine may stand
//! still after the fortieth. So only answers to requests count that were sent when the server was already late. When
//! the machine goes on, the server does everything that is due before it has answered more than a few of them.
//!
//! ```text
//!   begin                                                 late
//!     │ PING PING … PING      the machine stands still     │ PING PING … PING
//!     └──────────────────────────────────────────────────► └────────────────► a violation
//!        not counted                                          counted
//! ```

/// No server needs this long for what it does at once.
const LATE_MICROS: u64 = 100_000;

/// This many answers show that the server is running.
const ANSWERS: u32 = 20;

/// What is known about one thing that the server must do at once.
#[derive(Debug)]
pub struct Lateness {
    late_from: u64,
    answers: u32,
}

impl Lateness {
    /// From this moment on, the server must do something at once.
    pub fn from(begin: u64) -> Self {
        Self { late_from: begin + LATE_MICROS, answers: 0 }
    }

    /// The server has answered a request that was sent at `asked_at`.
    pub fn answered(&mut self, asked_at: u64) {
        self.answers += u32::from(asked_at > self.late_from);
    }

    /// Whether the server should have done it by its last answer.
    pub fn is_late(&self) -> bool {
        self.answers >= ANSWERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_answers_to(asked_at: impl Iterator<Item = u64>) -> bool {
        let mut lateness = Lateness::from(1_000);
        asked_at.for_each(|moment| lateness.answered(moment));
        lateness.is_late()
    }

    #[test]
    fn a_machine_that_stands_still_after_many_answers_makes_nobody_late() {
        let before = (0..40).map(|answer| 1_000 + answer * 25);
        assert!(!after_answers_to(before.chain([180_000])));
    }

    #[test]
    fn a_server_that_goes_on_answering_and_does_not_do_it_is_late() {
        assert!(after_answers_to((0..).step_by(2_800).take(56).map(|since| 1_001 + since)));
        assert!(!after_answers_to((0..).step_by(2_800).take(55).map(|since| 1_001 + since)));
    }
}
