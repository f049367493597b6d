//! Subscriptions to key events, and to events of the server itself.
//!
//! Where the server makes an event for every key of everybody, the subscription is taken out only
//! while it is needed: even looking through a list of nobody concerned costs the server something.

use super::api::{api, optional, status};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleEvent};
use std::cell::Cell;
use std::ffi::c_int;

pub(crate) struct Subscription {
    classes: c_int,
    callback: raw::RedisModuleNotificationFunc,
    is_on: Cell<bool>,
}

impl Subscription {
    pub(crate) const fn new(classes: c_int, callback: raw::RedisModuleNotificationFunc) -> Self {
        Self { classes, callback, is_on: Cell::new(false) }
    }

    pub(crate) fn take_out(&self, ctx: *mut RedisModuleCtx) {
        if !self.is_on.get() {
            // SAFETY: the callback has the signature the server calls.
            let outcome = unsafe {
                api!(RedisModule_SubscribeToKeyspaceEvents)(ctx, self.classes, self.callback)
            };
            self.is_on.set(outcome == status(true));
        }
    }

    /// Where the server knows no way (before Redis 8.2, and Valkey), it stays as it is. Never called from the
    /// callback of a key event: the server would be going through its list of subscriptions.
    pub(crate) fn cancel(&self, ctx: *mut RedisModuleCtx) {
        if self.is_on.get()
            && let Some(unsubscribe) = optional!(RedisModule_UnsubscribeFromKeyspaceEvents)
        {
            // SAFETY: takes what the server was given when the subscription was taken out.
            let outcome = unsafe { unsubscribe(ctx, self.classes, self.callback) };
            self.is_on.set(outcome != status(true));
        }
    }

    /// The server has forgotten it, with the module that took it out.
    pub(crate) fn reset(&self) {
        self.is_on.set(false);
    }
}

/// A subscription to an event of the server that is not always needed.
pub(crate) struct ServerSubscription {
    id: u64,
    callback: raw::RedisModuleEventCallback,
    is_on: Cell<bool>,
}

impl ServerSubscription {
    pub(crate) const fn new(id: u64, callback: raw::RedisModuleEventCallback) -> Self {
        Self { id, callback, is_on: Cell::new(false) }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// May be called inside an event: the server adds the subscription to the end of its list.
    pub(crate) fn take_out(&self, ctx: *mut RedisModuleCtx) {
        if !self.is_on.get() {
            self.is_on.set(to_server_event(ctx, self.id, self.callback));
        }
    }

    /// Never called inside an event of the server: it frees an entry of the list that the server is
    /// going through.
    pub(crate) fn cancel(&self, ctx: *mut RedisModuleCtx) {
        if self.is_on.replace(false) {
            to_server_event(ctx, self.id, None);
        }
    }

    /// The server has forgotten it, with the module that took it out.
    pub(crate) fn reset(&self) {
        self.is_on.set(false);
    }
}

/// Subscribes to an event of the server; false if the server will not have it. Some events are
/// unknown to older servers.
pub(crate) fn to_server_event(
    ctx: *mut RedisModuleCtx,
    id: u64,
    callback: raw::RedisModuleEventCallback,
) -> bool {
    let event = RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the callback has the signature the server calls; without one, the subscription ends.
    let outcome = unsafe { api!(RedisModule_SubscribeToServerEvent)(ctx, event, callback) };
    outcome == status(true)
}
