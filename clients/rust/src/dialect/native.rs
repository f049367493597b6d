//! The commands of the module.

use super::{Question, millis};
use crate::share::Share;
use redis::{Cmd, Value, cmd};
use std::time::Duration;

pub(crate) fn command(key: &str, question: Question<'_>) -> Cmd {
    let mut command;
    match question {
        Question::Acquire { owner, share, ttl, grace, also } => {
            command = cmd("LOCK.ACQUIRE");
            command.arg(key).arg(owner).arg(millis(ttl)).arg(shared(share)).arg(bound(grace));
            name(also, &mut command);
        }
        Question::Wait { owner, share, ttl, patience, also } => {
            command = cmd("LOCK.ACQUIRE");
            command.arg(key).arg(owner).arg(millis(ttl)).arg(shared(share));
            command.arg("BLOCK").arg(patience.map_or(0, millis));
            name(also, &mut command);
        }
        Question::Ticket { owner, share, ttl, grace, kept, channel, also } => {
            command = cmd("LOCK.ACQUIRE");
            command.arg(key).arg(owner).arg(millis(ttl)).arg(shared(share)).arg(bound(grace));
            command.arg("TICKET").arg(millis(kept));
            command.arg(channel.map(|channel| ("NOTIFY", channel)));
            name(also, &mut command);
        }
        Question::Extend { owner, fence, ttl } => {
            command = cmd("LOCK.EXTEND");
            command.arg(key).arg(owner).arg(millis(ttl)).arg(fence);
        }
        Question::Release { owner, fence } => {
            command = cmd("LOCK.RELEASE");
            command.arg(key).arg(owner).arg(fence);
        }
        Question::ReleaseAny { owner, also } => {
            command = cmd("LOCK.RELEASE");
            command.arg(key).arg(owner);
            name(also, &mut command);
        }
        Question::Raise { owner, fence } => {
            command = cmd("LOCK.RAISE");
            command.arg(key).arg(owner).arg(fence);
        }
    }
    command
}

/// The option of a hold that is not exclusive.
fn shared(share: Share) -> Option<(&'static str, u32)> {
    share.option().map(|holders| ("SHARE", holders))
}

/// The option of a hold that ends with its connection.
fn bound(grace: Option<Duration>) -> Option<(&'static str, u64)> {
    let millis = |grace: Duration| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
    grace.map(|grace| ("EPHEMERAL", millis(grace)))
}

/// The option of a request for several locks.
fn name(also: &[String], command: &mut Cmd) {
    if !also.is_empty() {
        command.arg("ALSO").arg(also.len()).arg(also);
    }
}

/// Where a request stands, according to a look at the queue of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Queued,
    NotQueued,
    /// So many wait that not all of them were listed.
    TooFarBack,
}

/// The fence if this owner has the lock.
pub(crate) fn check(key: &str, owner: &str) -> Cmd {
    let mut command = cmd("LOCK.CHECK");
    command.arg(key).arg(owner);
    command
}

/// How many of those who wait are listed at most.
const LISTED: usize = 100;

pub(crate) fn waiters(key: &str) -> Cmd {
    let mut command = cmd("LOCK.WAITERS");
    command.arg(key).arg("COUNT").arg(LISTED);
    command
}

/// What a reply to that says of this owner.
pub(crate) fn place(reply: &Value, owner: &str) -> Place {
    let Value::Array(waiters) = reply else { return Place::NotQueued };
    let is_it = |name: &Value, value: &Value| is_text(name, "owner") && is_text(value, owner);
    let waits = |waiter: &Value| match waiter {
        Value::Array(fields) => fields.chunks_exact(2).any(|field| match field {
            [name, value] => is_it(name, value),
            _ => false,
        }),
        Value::Map(fields) => fields.iter().any(|(name, value)| is_it(name, value)),
        _ => false,
    };
    if waiters.iter().any(waits) {
        Place::Queued
    } else if waiters.len() >= LISTED {
        Place::TooFarBack
    } else {
        Place::NotQueued
    }
}

fn is_text(value: &Value, text: &str) -> bool {
    match value {
        Value::BulkString(bytes) => bytes == text.as_bytes(),
        Value::SimpleString(simple) => simple == text,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::words;

    #[test]
    fn each_question_is_one_command() {
        let (owner, share, ttl) = ("alice", Share::Exclusive, Duration::from_secs(5));
        let also = &[];
        let asked = |question| words(&command("printer", question));
        assert_eq!(
            asked(Question::Acquire { owner, share, ttl, grace: None, also }),
            "LOCK.ACQUIRE printer alice 5000"
        );
        let bound =
            |grace| asked(Question::Acquire { owner, share, ttl, grace: Some(grace), also });
        assert_eq!(bound(Duration::ZERO), "LOCK.ACQUIRE printer alice 5000 EPHEMERAL 0");
        let waits = |patience| asked(Question::Wait { owner, share, ttl, patience, also });
        let patience = Some(Duration::from_secs(10));
        assert_eq!(waits(patience), "LOCK.ACQUIRE printer alice 5000 BLOCK 10000");
        assert_eq!(waits(None), "LOCK.ACQUIRE printer alice 5000 BLOCK 0");
        let (kept, grace) = (Duration::from_secs(15), None);
        let ticket =
            |channel| asked(Question::Ticket { owner, share, ttl, grace, kept, channel, also });
        assert_eq!(ticket(None), "LOCK.ACQUIRE printer alice 5000 TICKET 15000");
        assert_eq!(
            ticket(Some("grants")),
            "LOCK.ACQUIRE printer alice 5000 TICKET 15000 NOTIFY grants"
        );
        let share = Share::AtMost(5);
        let five = Question::Wait { owner, share, ttl, patience: None, also };
        assert_eq!(asked(five), "LOCK.ACQUIRE printer alice 5000 SHARE 5 BLOCK 0");
        let read = Question::Acquire { owner, share: Share::Any, ttl, grace: None, also };
        assert_eq!(asked(read), "LOCK.ACQUIRE printer alice 5000 SHARE 0");
        assert_eq!(
            asked(Question::Extend { owner, fence: 7, ttl }),
            "LOCK.EXTEND printer alice 5000 7"
        );
        assert_eq!(asked(Question::Release { owner, fence: 7 }), "LOCK.RELEASE printer alice 7");
        assert_eq!(asked(Question::ReleaseAny { owner, also }), "LOCK.RELEASE printer alice");
        let (share, also) = (Share::Exclusive, &["b".to_owned(), "c".to_owned()]);
        assert_eq!(
            asked(Question::Acquire { owner, share, ttl, grace: None, also }),
            "LOCK.ACQUIRE printer alice 5000 ALSO 2 b c"
        );
        let released = asked(Question::ReleaseAny { owner, also });
        assert_eq!(released, "LOCK.RELEASE printer alice ALSO 2 b c");
        assert_eq!(asked(Question::Raise { owner, fence: 7 }), "LOCK.RAISE printer alice 7");
    }

    #[test]
    fn whoever_is_listed_is_in_the_queue() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let waiter = |owner: &str| {
            Value::Array(vec![text("owner"), text(owner), text("client"), Value::Int(7)])
        };
        let reply = Value::Array(vec![waiter("alice"), waiter("client")]);
        assert_eq!(place(&reply, "alice"), Place::Queued);
        assert_eq!(place(&reply, "bob"), Place::NotQueued);
        assert_eq!(place(&reply, "owner"), Place::NotQueued);
        let map = Value::Map(vec![(text("owner"), text("alice"))]);
        assert_eq!(place(&Value::Array(vec![map]), "alice"), Place::Queued);
        let crowd = Value::Array(vec![waiter("alice"); LISTED]);
        assert_eq!(place(&crowd, "bob"), Place::TooFarBack);
    }
}
