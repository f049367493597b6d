//! Time limits for answers: `each` for one try, `until` for all of them.

use crate::clock::Moment;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) each: Duration,
    pub(crate) until: Moment,
}

impl Limits {
    /// The time of one try. Tries that fail at once are repeated within this time.
    pub(crate) fn for_each(self) -> Self {
        Self { until: Moment::now().later(self.each).min(self.until), ..self }
    }

    /// Restarts the remaining time, with at least enough for one try.
    pub(crate) fn renewed(self) -> Self {
        let left = self.until.since(Moment::now()).max(self.each);
        Self { until: Moment::now().later(left), ..self }
    }
}
