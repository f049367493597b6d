//! `WAIT` and `WAITAOF`: wait until replicas, or disks, have a grant.

use crate::error::unexpected;
use crate::question::millis;
use crate::verdict::number;
use redis::{Cmd, RedisError, Value, cmd};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Copies {
    pub(crate) replicas: u64,
    pub(crate) within: Duration,
    /// The server and these replicas must have the grant on disk, not only in memory.
    pub(crate) is_durable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) replicas: u64,
    is_here: bool,
}

impl Copies {
    pub(crate) fn are_wanted(&self) -> bool {
        self.replicas > 0 || self.is_durable
    }

    pub(crate) fn wait(&self) -> Cmd {
        let mut wait = if self.is_durable { cmd("WAITAOF").arg(1).take() } else { cmd("WAIT") };
        // Zero would mean no limit.
        wait.arg(self.replicas).arg(millis(self.within).max(1)).take()
    }

    pub(crate) fn are_made(&self, reached: Reached) -> bool {
        reached.is_here && reached.replicas >= self.replicas
    }
}

impl Reached {
    /// `WAIT` replies with the number of replicas, `WAITAOF` with whether the server has the grant on disk too.
    pub(crate) fn read(reply: &Value) -> Result<Self, RedisError> {
        let (here, replicas) = match reply {
            Value::Array(both) => match both.as_slice() {
                [here, replicas] => (number(here)?, number(replicas)?),
                _ => return Err(unexpected()),
            },
            replicas => (Some(1), number(replicas)?),
        };
        Ok(Self { replicas: replicas.unwrap_or_default(), is_here: here == Some(1) })
    }
}
