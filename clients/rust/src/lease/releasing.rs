//! The release of a lease, which several may ask for: a keeper that helps another one, and the next
//! request of the same owner.

use super::Lease;
use crate::Error;
use crate::dialect::Question;
use crate::wire::{Answer, Limits, Wire};

impl Lease {
    /// Asks the server to release it. The answer is said to be repeated if another request may have
    /// released it before this one.
    pub(crate) async fn release(&self, wire: &Wire, limits: Limits) -> Result<Answer, Error> {
        let question = Question::Release { owner: &self.owner, fence: self.fence };
        self.about_to_release();
        Ok(self.release_answered(wire.ask(&self.key, question, limits).await?))
    }

    fn about_to_release(&self) {
        let mut state = self.state();
        state.releases = state.releases.saturating_add(1);
    }

    fn release_answered(&self, answer: Answer) -> Answer {
        let mut state = self.state();
        state.released |= answer.number == Some(1);
        if answer.number == Some(1) || answer.repeated {
            return answer;
        }
        state.releases = state.releases.saturating_sub(1);
        Answer { repeated: state.released || state.releases > 0, ..answer }
    }
}

#[cfg(test)]
mod tests {
    use crate::Dialect;
    use crate::clock::Moment;
    use crate::lease::{Lease, Names};
    use crate::settings::Renew;
    use crate::wire::Answer;
    use std::time::Duration;

    fn lease() -> Lease {
        let text = String::new;
        let names = Names { id: 1, name: text(), key: text(), owner: text(), correlation: text() };
        Lease::new(names, 7, Moment::now(), Duration::from_secs(60), Renew::Off)
    }

    fn answered(lease: &Lease, number: u64) -> bool {
        let asked = Moment::now();
        let (number, dialect) = (Some(number), Dialect::Native);
        let answer = Answer { number, asked, repeated: false, dialect, heard: 0 };
        lease.release_answered(answer).repeated
    }

    #[test]
    fn a_release_that_found_nothing_to_release_was_not_in_time_if_no_other_can_have_been() {
        let lease = lease();
        lease.about_to_release();
        assert!(!answered(&lease, 0), "nobody else has asked");
        lease.about_to_release();
        lease.about_to_release();
        assert!(answered(&lease, 0), "the other one may have released it");
        assert!(!answered(&lease, 0), "it has not");
    }

    #[test]
    fn a_release_after_another_one_was_in_time_as_that_was() {
        let lease = lease();
        lease.about_to_release();
        assert!(!answered(&lease, 1));
        lease.about_to_release();
        assert!(answered(&lease, 0));
    }
}
