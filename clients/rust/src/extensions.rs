//! Extensions that the server may apply out of order. Pure.
//!
//! ```text
//!   EXTEND 1 s  ──► no answer, given up
//!   EXTEND 60 s ───────────────────────────► answered
//!                       EXTEND 1 s ─────────────► carried out late: the lease ends a second from then
//! ```
//!
//! So an extension counts for at most the ttl of any shorter one that was given up and may still arrive. And an extension
//! counts for nothing if a later one was answered before it.

use crate::clock::Moment;
use std::time::Duration;

/// How long a request may still arrive after the client gave up on it.
const LONGEST_WAY: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Extensions {
    next: u64,
    answered: Option<u64>,
    /// Extensions that the server may still apply.
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    number: u64,
    ttl: Duration,
    since: Moment,
}

impl Extensions {
    pub(crate) fn begin(&mut self, ttl: Duration, now: Moment) -> u64 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.open.retain(|open| now.since(open.since) <= LONGEST_WAY);
        self.open.push(Open { number, ttl, since: now });
        number
    }

    /// How long the extension counts from when it was sent; none if a later one was answered.
    pub(crate) fn answered(
        &mut self,
        number: u64,
        ttl: Duration,
        was_repeated: bool,
    ) -> Option<Duration> {
        // After a repetition, the first try may still arrive.
        if !was_repeated {
            self.open.retain(|open| open.number != number);
        }
        if self.answered > Some(number) {
            return None;
        }
        self.answered = Some(number);
        Some(self.open.iter().map(|open| open.ttl).fold(ttl, Duration::min))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_shorter_one_that_may_be_on_its_way_counts() {
        let (mut extensions, now) = (Extensions::default(), Moment::now());
        extensions.begin(SECOND, now);
        let long = extensions.begin(MINUTE, now);
        assert_eq!(extensions.answered(long, MINUTE, false), Some(SECOND));
        let later = now.later(2 * MINUTE);
        let long = extensions.begin(MINUTE, later);
        assert_eq!(extensions.answered(long, MINUTE, false), Some(MINUTE));
    }

    #[test]
    fn an_earlier_one_counts_for_nothing_after_a_later_one() {
        let (mut extensions, now) = (Extensions::default(), Moment::now());
        let (early, late) = (extensions.begin(MINUTE, now), extensions.begin(SECOND, now));
        assert_eq!(extensions.answered(late, SECOND, false), Some(SECOND));
        assert_eq!(extensions.answered(early, MINUTE, false), None);
    }

    #[test]
    fn one_that_was_repeated_may_be_carried_out_again() {
        let (mut extensions, now) = (Extensions::default(), Moment::now());
        let short = extensions.begin(SECOND, now);
        assert_eq!(extensions.answered(short, SECOND, true), Some(SECOND));
        let long = extensions.begin(MINUTE, now);
        assert_eq!(extensions.answered(long, MINUTE, false), Some(SECOND));
    }
}
