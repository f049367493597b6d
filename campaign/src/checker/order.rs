//! L2: fences grow.

use super::spans::overlaps;
use super::{Law, Lock, Rules, Violation};

/// The first number above the safe integers of JavaScript.
const TOO_LARGE: u64 = 1 << 53;

impl Lock<'_> {
    /// L2 has no exceptions, except beside a former primary, and where the clock was set back.
    pub(super) fn check_fences(
        &self,
        rules: &Rules,
        before: Option<u64>,
        wrong: &mut Vec<Violation>,
    ) {
        if let (Some(before), Some(lowest)) = (before, self.grants.first())
            && lowest.fence <= before
        {
            let what = format!("fence {} is not above {before}, told long before", lowest.fence);
            wrong.push(self.violation(Law::L2, what, vec![lowest.of[0]]));
        }
        if let Some(highest) = self.grants.last().filter(|highest| highest.fence >= TOO_LARGE) {
            let what = format!("fence {} is not below 2^53", highest.fence);
            wrong.push(self.violation(Law::L2, what, vec![highest.of[0]]));
        }
        // Of all records with larger fences, the one with the earliest reply.
        let mut first = None::<&super::Grant>;
        for grant in self.grants.iter().rev() {
            let excused = || {
                overlaps(&rules.beside, grant.asked, grant.asked)
                    || overlaps(&rules.behind, grant.asked, grant.told)
            };
            if let Some(larger) = first.filter(|larger| larger.told < grant.asked && !excused()) {
                let what = format!(
                    "fence {} is not above {}, told {} µs before it was asked for",
                    grant.fence,
                    larger.fence,
                    grant.asked - larger.told
                );
                wrong.push(self.violation(Law::L2, what, vec![larger.of[0], grant.of[0]]));
            }
            first = first.into_iter().chain([grant]).min_by_key(|grant| grant.told);
        }
    }
}
