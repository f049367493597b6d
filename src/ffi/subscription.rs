//! Subscriptions to keyspace events, and to events of the server itself.
//!
//! Some events fire for every key of every client. The module subscribes to those only while needed: even walking a
//! list of subscribers that are not concerned costs the server something.

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
            // SAFETY: the callback has the signature that the server calls.
            let outcome = unsafe {
                api!(RedisModule_SubscribeToKeyspaceEvents)(ctx, self.classes, self.callback)
            };
            self.is_on.set(outcome == status(true));
        }
    }

    /// Unsubscribes, if the server can (not before Redis 8.2, and not Valkey). Never called from the callback of a
    /// keyspace event, when the server walks its list of subscriptions.
    pub(crate) fn cancel(&self, ctx: *mut RedisModuleCtx) {
        if self.is_on.get()
            && let Some(unsubscribe) = optional!(RedisModule_UnsubscribeFromKeyspaceEvents)
        {
            // SAFETY: takes the same arguments as the subscription.
            let outcome = unsafe { unsubscribe(ctx, self.classes, self.callback) };
            self.is_on.set(outcome != status(true));
        }
    }

    /// The server has forgotten the subscription, together with the module.
    pub(crate) fn reset(&self) {
        self.is_on.set(false);
    }
}

/// A subscription to a server event that is not always needed.
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

    /// May be called inside an event: the server appends the subscription to its list.
    pub(crate) fn take_out(&self, ctx: *mut RedisModuleCtx) {
        if !self.is_on.get() {
            self.is_on.set(to_server_event(ctx, self.id, self.callback));
        }
    }

    /// Never called inside a server event: it frees an entry of the list that the server walks.
    pub(crate) fn cancel(&self, ctx: *mut RedisModuleCtx) {
        if self.is_on.replace(false) {
            to_server_event(ctx, self.id, None);
        }
    }

    /// The server has forgotten the subscription, together with the module.
    pub(crate) fn reset(&self) {
        self.is_on.set(false);
    }
}

/// Subscribes to a server event. False if the server refuses: older servers do not know some events.
pub(crate) fn to_server_event(
    ctx: *mut RedisModuleCtx,
    id: u64,
    callback: raw::RedisModuleEventCallback,
) -> bool {
    let event = RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the callback has the signature that the server calls. Without a callback, the subscription ends.
    let outcome = unsafe { api!(RedisModule_SubscribeToServerEvent)(ctx, event, callback) };
    outcome == status(true)
}
