//! Asking a server for more than a number. What reads may be asked any number of times.

use crate::Error;
use crate::backoff::RETRY;
use crate::dialect::Server;
use crate::link::Sent;
use crate::node::within;
use crate::validity::later;
use crate::verdict::Verdict;
use crate::wire::{Failure, Limits, Wire};
use redis::{Cmd, Value};
use std::time::{Duration, Instant};
use tokio::time::sleep;

impl Wire {
    /// What these commands come to, one after another on the server that has the key, in the
    /// dialect that it speaks.
    pub(crate) async fn read(
        &self,
        key: &str,
        commands: impl Fn(Server) -> Vec<Cmd>,
        limits: Limits,
    ) -> Result<(Server, Vec<Value>), Error> {
        let (mut tries, mut redirected) = (0_u32, None);
        loop {
            let read = self.read_once(key, &commands, limits.each, redirected.take()).await;
            let Failure { verdict, error } = match read {
                Ok(read) => return Ok(read),
                Err(failure) => failure,
            };
            match verdict {
                Verdict::Refused => return Err(Error::refused(&error)),
                Verdict::Ask { to } if tries < 5 => redirected = Some(to),
                Verdict::Moved { .. } if tries < 5 => {}
                _ => {
                    let rest = RETRY.random_rest(tries);
                    if limits.until.is_some_and(|until| later(Instant::now(), rest) >= until) {
                        return Err(Error::unreachable(&error));
                    }
                    sleep(rest).await;
                }
            }
            tries = tries.saturating_add(1);
        }
    }

    async fn read_once(
        &self,
        key: &str,
        commands: &impl Fn(Server) -> Vec<Cmd>,
        each: Duration,
        redirected: Option<String>,
    ) -> Result<(Server, Vec<Value>), Failure> {
        let sent = if redirected.is_some() { Sent::ByAnotherNode } else { Sent::ByItself };
        let node = self.node(key, each, redirected).await?;
        let link = self.shared(&node, each).await?;
        let mut replies = Vec::new();
        for command in commands(link.server) {
            let reply = within(each, link.send(command, sent)).await;
            replies.push(reply.map_err(|error| self.failed(error, Some((&node, Some(&link)))))?);
        }
        self.answered(&node);
        Ok((link.server, replies))
    }
}

/// The text of a reply that is one: what is not is empty.
pub(crate) fn text(reply: &Value) -> String {
    match reply {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}
