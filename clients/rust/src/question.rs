//! Questions about locks, as commands of the module.

use redis::{Cmd, cmd};
use std::sync::Arc;
use std::time::Duration;

/// How many holders a hold tolerates at a time, itself included; 0 for no limit.
pub(crate) type Share = u32;

pub(crate) const EXCLUSIVE: Share = 1;
pub(crate) const READERS: Share = 0;

/// An owner, its locks and its kind of hold. Constant from the first request to the release.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// The lock, and those of `ALSO`.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) owner: Arc<str>,
    pub(crate) share: Share,
    /// How long the hold outlives its connection, if it is bound to one.
    pub(crate) grace: Option<Duration>,
}

impl Claim {
    /// The key that selects the node of a cluster. There is always one.
    pub(crate) fn key(&self) -> &[u8] {
        self.keys.first().map_or(&[], Vec::as_slice)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Question<'a> {
    /// Does not wait: nil if others hold the lock.
    Try {
        ttl: Duration,
    },
    /// Waits in the server's queue and blocks its connection; no patience means no limit.
    Block {
        ttl: Duration,
        patience: Option<Duration>,
    },
    /// Keeps a place in the server's queue. The server publishes the grant on the channel.
    Ticket {
        ttl: Duration,
        kept: Duration,
        channel: &'a str,
    },
    Extend {
        ttl: Duration,
        fence: u64,
    },
    /// Without a fence: every hold of the owner, and its place in the queue.
    Release {
        fence: Option<u64>,
    },
    /// Raises the fence of the hold to at least this one.
    Raise {
        fence: u64,
    },
}

impl Question<'_> {
    pub(crate) fn command(self, claim: &Claim) -> Cmd {
        let mut command = cmd(match self {
            Self::Try { .. } | Self::Block { .. } | Self::Ticket { .. } => "LOCK.ACQUIRE",
            Self::Extend { .. } => "LOCK.EXTEND",
            Self::Release { .. } => "LOCK.RELEASE",
            Self::Raise { .. } => "LOCK.RAISE",
        });
        command.arg(claim.key()).arg(&*claim.owner);
        match self {
            Self::Try { ttl } | Self::Block { ttl, .. } | Self::Ticket { ttl, .. } => {
                command.arg(millis(ttl));
                if claim.share != EXCLUSIVE {
                    command.arg("SHARE").arg(claim.share);
                }
                if let (Some(grace), false) = (claim.grace, matches!(self, Self::Block { .. })) {
                    command.arg("EPHEMERAL").arg(millis(grace));
                }
            }
            Self::Extend { ttl, fence } => {
                command.arg(millis(ttl)).arg(fence);
            }
            Self::Release { fence } => {
                command.arg(fence);
            }
            Self::Raise { fence } => {
                command.arg(fence);
            }
        }
        match self {
            Self::Block { patience, .. } => {
                command.arg("BLOCK").arg(patience.map_or(0, |patience| millis(patience).max(1)));
            }
            Self::Ticket { kept, channel, .. } => {
                command.arg("TICKET").arg(millis(kept)).arg("NOTIFY").arg(channel);
            }
            _ => {}
        }
        if let [_, also @ ..] = claim.keys.as_slice()
            && !also.is_empty()
        {
            command.arg("ALSO").arg(also.len()).arg(also);
        }
        command
    }
}

/// Rounds up, because servers take whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    let nanos = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(claim: &Claim, question: Question<'_>) -> String {
        crate::plain::words(&question.command(claim))
    }

    #[test]
    fn each_question_is_one_command() {
        let claim =
            Claim { keys: vec![b"a".into()], owner: "me".into(), share: EXCLUSIVE, grace: None };
        let ttl = Duration::from_secs(5);
        assert_eq!(asked(&claim, Question::Try { ttl }), "LOCK.ACQUIRE a me 5000");
        let patience = Some(Duration::from_micros(1));
        assert_eq!(
            asked(&claim, Question::Block { ttl, patience }),
            "LOCK.ACQUIRE a me 5000 BLOCK 1"
        );
        assert_eq!(
            asked(&claim, Question::Block { ttl, patience: None }),
            "LOCK.ACQUIRE a me 5000 BLOCK 0"
        );
        assert_eq!(asked(&claim, Question::Extend { ttl, fence: 7 }), "LOCK.EXTEND a me 5000 7");
        assert_eq!(asked(&claim, Question::Release { fence: Some(7) }), "LOCK.RELEASE a me 7");
        assert_eq!(asked(&claim, Question::Release { fence: None }), "LOCK.RELEASE a me");
        assert_eq!(asked(&claim, Question::Raise { fence: 7 }), "LOCK.RAISE a me 7");
        let kept = Duration::from_secs(15);
        let ticket = Question::Ticket { ttl, kept, channel: "c" };
        let several = Claim {
            keys: ["a", "b", "c"].map(|key| key.as_bytes().to_vec()).into(),
            owner: "me".into(),
            share: 5,
            grace: Some(Duration::ZERO),
        };
        assert_eq!(
            asked(&several, ticket),
            "LOCK.ACQUIRE a me 5000 SHARE 5 EPHEMERAL 0 TICKET 15000 NOTIFY c ALSO 2 b c"
        );
        assert_eq!(
            asked(&several, Question::Extend { ttl, fence: 7 }),
            "LOCK.EXTEND a me 5000 7 ALSO 2 b c"
        );
    }
}
