//! The commands of the module.

use super::{Question, millis};
use redis::{Cmd, cmd};

pub(crate) fn command(key: &str, question: Question<'_>) -> Cmd {
    let mut command;
    match question {
        Question::Acquire { owner, ttl } => {
            command = cmd("LOCK.ACQUIRE");
            command.arg(key).arg(owner).arg(millis(ttl));
        }
        Question::Wait { owner, ttl, patience } => {
            command = cmd("LOCK.ACQUIRE");
            command.arg(key).arg(owner).arg(millis(ttl)).arg("BLOCK").arg(millis(patience));
        }
        Question::Extend { owner, fence, ttl } => {
            command = cmd("LOCK.EXTEND");
            command.arg(key).arg(owner).arg(millis(ttl)).arg(fence);
        }
        Question::Release { owner, fence } => {
            command = cmd("LOCK.RELEASE");
            command.arg(key).arg(owner).arg(fence);
        }
        Question::ReleaseAny { owner } => {
            command = cmd("LOCK.RELEASE");
            command.arg(key).arg(owner);
        }
        Question::Raise { owner, fence } => {
            command = cmd("LOCK.RAISE");
            command.arg(key).arg(owner).arg(fence);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::words;
    use std::time::Duration;

    #[test]
    fn each_question_is_one_command() {
        let (owner, ttl) = ("alice", Duration::from_secs(5));
        let asked = |question| words(&command("printer", question));
        assert_eq!(asked(Question::Acquire { owner, ttl }), "LOCK.ACQUIRE printer alice 5000");
        let patience = Duration::from_secs(10);
        assert_eq!(
            asked(Question::Wait { owner, ttl, patience }),
            "LOCK.ACQUIRE printer alice 5000 BLOCK 10000"
        );
        assert_eq!(
            asked(Question::Extend { owner, fence: 7, ttl }),
            "LOCK.EXTEND printer alice 5000 7"
        );
        assert_eq!(asked(Question::Release { owner, fence: 7 }), "LOCK.RELEASE printer alice 7");
        assert_eq!(asked(Question::ReleaseAny { owner }), "LOCK.RELEASE printer alice");
        assert_eq!(asked(Question::Raise { owner, fence: 7 }), "LOCK.RAISE printer alice 7");
    }
}
