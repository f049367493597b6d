//! L3: a hold ends when its owner is told of its next one.

use super::{Law, Lock, Rules, Violation};
use crate::record::{Op, Outcome};
use std::collections::HashMap;

impl Lock<'_> {
    /// L3: once an owner was told a larger fence, it has no success with the smaller one.
    pub(super) fn check_stale(&self, rules: &Rules, wrong: &mut Vec<Violation>) {
        // The first record of each owner among the grants with larger fences.
        let mut larger: HashMap<u32, u32> = HashMap::new();
        for grant in self.grants.iter().rev() {
            let mut of = grant.of.iter().filter(|index| {
                let record = self.record(**index);
                record.outcome == Outcome::Ok && record.op != Op::Closed
            });
            let Some(first) = of.next() else { continue };
            let owner = self.record(*first).owner;
            let last = of.next_back().unwrap_or(first);
            if let Some(next) = larger.insert(owner, *first).filter(|next| next < last) {
                let stale = self.record(*last);
                if !rules.is_lossy(grant.asked, stale.told) {
                    let what = format!(
                        "{:?} succeeded with fence {} after a larger one",
                        stale.op, grant.fence
                    );
                    wrong.push(self.violation(Law::L3, what, vec![*first, next, *last]));
                }
            }
        }
    }
}
