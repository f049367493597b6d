//! Subscriptions to keyspace events, and to events of the server itself.
//!
//! Some events fire for every key of every client. The module subscribes to those only while needed: even walking a
//! list of subscribers that are not concerned costs the server something.

use super::api::{Ctx, api, optional, status};
use redis_module::raw::{self, RedisModuleEvent};
use std::cell::Cell;
use std::ffi::c_int;

/// A subscription that is not always needed.
pub(crate) struct Subscription {
    to: To,
    is_on: Cell<bool>,
}

enum To {
    Keys(c_int, raw::RedisModuleNotificationFunc),
    Server(u64, raw::RedisModuleEventCallback),
}

impl Subscription {
    /// To keyspace events of these classes.
    pub(crate) const fn to_keys(
        classes: c_int,
        callback: raw::RedisModuleNotificationFunc,
    ) -> Self {
        Self { to: To::Keys(classes, callback), is_on: Cell::new(false) }
    }

    /// To this event of the server.
    pub(crate) const fn to_server(id: u64, callback: raw::RedisModuleEventCallback) -> Self {
        Self { to: To::Server(id, callback), is_on: Cell::new(false) }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// May be called inside an event: the server appends the subscription to its list.
    pub(crate) fn take_out(&self, ctx: Ctx) {
        if self.is_on.get() {
            return;
        }
        self.is_on.set(match self.to {
            To::Server(id, callback) => to_server_event(ctx, id, callback),
            To::Keys(classes, callback) => {
                let subscribe = api!(RedisModule_SubscribeToKeyspaceEvents);
                // SAFETY: the callback has the signature that the server calls.
                unsafe { subscribe(ctx, classes, callback) == status(true) }
            }
        });
    }

    /// Unsubscribes. From keyspace events only if the server can: not before Redis 8.2, and not Valkey. Never called
    /// inside such an event: it frees an entry of the list that the server walks.
    pub(crate) fn cancel(&self, ctx: Ctx) {
        if !self.is_on.get() {
            return;
        }
        match self.to {
            To::Server(id, _) => {
                self.is_on.set(false);
                to_server_event(ctx, id, None);
            }
            To::Keys(classes, callback) => {
                if let Some(unsubscribe) = optional!(RedisModule_UnsubscribeFromKeyspaceEvents) {
                    // SAFETY: takes the same arguments as the subscription.
                    let outcome = unsafe { unsubscribe(ctx, classes, callback) };
                    self.is_on.set(outcome != status(true));
                }
            }
        }
    }

    /// The server has forgotten the subscription, together with the module.
    pub(crate) fn reset(&self) {
        self.is_on.set(false);
    }
}

/// Subscribes to a server event. False if the server refuses: older servers do not know some events.
pub(crate) fn to_server_event(ctx: Ctx, id: u64, callback: raw::RedisModuleEventCallback) -> bool {
    let event = RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the callback has the signature that the server calls. Without a callback, the subscription ends.
    let outcome = unsafe { api!(RedisModule_SubscribeToServerEvent)(ctx, event, callback) };
    outcome == status(true)
}
