//! Commands that the server runs only while the lock is held.

use super::Guard;
use crate::Error;
use crate::guarded_command::{decoded, words};
use redis::{Cmd, FromRedisValue};
use std::sync::Arc;

#[cfg(feature = "redis")]
impl Guard {
    /// Has the server run this command if the lock is still this guard's, and returns its reply:
    /// [`Guard::run_command`](crate::Guard::run_command).
    ///
    /// With the feature `redis`.
    ///
    /// ```no_run
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Options, blocking::Locks};
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// let guard = locks.lock("{page}:lock", Options::new())?;
    /// let visits: u64 = guard.run_command(redis::cmd("INCR").arg("{page}:visits"))?;
    /// # let _ = visits;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Guard::run_command`](crate::Guard::run_command).
    pub fn run_command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let (guard, words) = (Arc::clone(&self.guard), words(command));
        let reply = self.thread.wait(async move {
            let reply = guard.reply_to(words).await;
            // Whoever is told has the only one again.
            drop(guard);
            reply
        })??;
        decoded(reply)
    }
}
