//! Asking a server for more than a number. What reads may be asked any number of times.

use crate::Error;
use crate::dialect::Server;
use crate::node::within;
use crate::wire::{Failure, Limits, Try, Wire};
use redis::{Cmd, Value};
use std::time::Duration;

impl Wire {
    /// What these commands come to, one after another on the server that has the key, in the
    /// dialect that it speaks.
    pub(crate) async fn read(
        &self,
        key: &str,
        commands: impl Fn(Server) -> Vec<Cmd>,
        limits: Limits,
    ) -> Result<(Server, Vec<Value>), Error> {
        self.try_on(limits, |this| self.read_once(key, &commands, limits.each, this)).await
    }

    async fn read_once(
        &self,
        key: &str,
        commands: &impl Fn(Server) -> Vec<Cmd>,
        each: Duration,
        this: Try,
    ) -> Result<(Server, Vec<Value>), Failure> {
        let sent = this.sent();
        let node = self.node(key, each, this.redirected).await?;
        let link = self.shared(&node, each).await?;
        let mut replies = Vec::new();
        for command in commands(link.server) {
            let reply = within(each, link.send(&command, sent)).await;
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
