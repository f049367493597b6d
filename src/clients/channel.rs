//! Channels on which the grant of a lock is published: who may name a channel, and the message itself.
//!
//! The right to publish is checked when a client names the channel, as the server checks its `PUBLISH`. A message goes
//! to every node of a cluster, but not to replicas. A message may be lost, and nothing depends on it.

use crate::ffi::{Ctx, OwnedString, Rights, optional};
use leasehold_core::command::Error;

/// Whether the user who sent the command being executed may publish on this channel.
pub(crate) fn check(ctx: Ctx, channel: &[u8]) -> Result<(), Error> {
    let rights = Rights::of_command(ctx);
    match rights.and_then(|rights| rights.allow_publishing(channel)) {
        None => Err(Error::NotifyNotPossible),
        Some(true) => Ok(()),
        Some(false) => Err(Error::ChannelDenied),
    }
}

/// Publishes the message. Returns how many subscribers of this server receive it.
pub(crate) fn publish(ctx: Ctx, channel: &[u8], message: &[u8]) -> usize {
    let Some(publish) = optional!(RedisModule_PublishMessage) else { return 0 };
    let (channel, message) = (OwnedString::new(ctx, channel), OwnedString::new(ctx, message));
    // SAFETY: the server copies what it needs of both strings.
    let receivers = unsafe { publish(ctx, channel.string(), message.string()) };
    usize::try_from(receivers).unwrap_or(0)
}
