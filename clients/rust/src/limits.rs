//! How long an answer is waited for.

use crate::clock::Moment;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For each try.
    pub(crate) each: Duration,
    /// For all of them.
    pub(crate) until: Moment,
}

impl Limits {
    /// For one try, or more if they fail at once.
    pub(crate) fn for_each(self) -> Self {
        Self { until: Moment::now().later(self.each).min(self.until), ..self }
    }

    /// The same time for all tries once more, and at least as long as one may take.
    pub(crate) fn renewed(self) -> Self {
        let left = self.until.since(Moment::now()).max(self.each);
        Self { until: Moment::now().later(left), ..self }
    }
}
