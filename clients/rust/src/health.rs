//! Whether locks can be had now.

use crate::dialect::{Dialect, Question, millis};
use crate::locks::new_uuid;
use crate::share::Share;
use crate::validity::later;
use crate::wire::Limits;
use crate::{Error, Locks};
use std::time::{Duration, Instant};

/// How long the lease of the check lasts if it is not released.
const TTL: Duration = Duration::from_secs(5);

/// Locks can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Whether the server has the module.
    pub dialect: Dialect,
    /// How long it took to take a lock and give it back.
    pub took: Duration,
}

impl Locks {
    /// Takes a lock of a name that nobody else uses, and gives it back. Whatever is not as it should be is an error,
    /// and so is an answer that takes longer than `limit`.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Options, Released};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let health = locks.health(Duration::from_secs(5)).await?;
    /// println!("{:?}, {} us", health.dialect, health.took.as_micros());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When there is any doubt that locks can be had.
    pub async fn health(&self, limit: Duration) -> Result<Health, Error> {
        let begun = Instant::now();
        let checked = tokio::time::timeout(limit, self.gate().pass(self.check(begun, limit))).await;
        checked.unwrap_or_else(|_| {
            let reason = format!("no lock was had within {} ms", millis(limit));
            Err(Error::Unreachable { reason })
        })
    }

    async fn check(&self, begun: Instant, limit: Duration) -> Result<Health, Error> {
        let id = new_uuid().to_string();
        let (key, owner) = (self.key(&format!("leasehold:health:{id}")), id.as_str());
        let limits = Limits { each: limit, until: Some(later(begun, limit)) };
        let wire = self.wire();
        let answer = wire
            .ask(
                &key,
                Question::Acquire {
                    owner,
                    share: Share::Exclusive,
                    ttl: TTL,
                    grace: None,
                    also: &[],
                },
                limits,
            )
            .await?;
        let doubt = |reason: &str| Error::Unreachable { reason: reason.to_owned() };
        let fence = answer.number.ok_or_else(|| doubt("a lock that nobody has was refused"))?;
        let released = wire.ask(&key, Question::Release { owner, fence }, limits).await?;
        if released.number != Some(1) {
            return Err(doubt("a lock that was granted was not held"));
        }
        Ok(Health { dialect: answer.dialect, took: begun.elapsed() })
    }
}
