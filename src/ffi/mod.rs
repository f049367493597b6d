//! Thin safe wrappers of the server's functions, useful to any module. Nothing here knows of locks, and nothing here
//! imports anything from outside this folder.

pub(crate) mod api;
mod blocked;
pub(crate) mod call_filter;
mod call_reply;
pub(crate) mod client;
pub(crate) mod context;
pub(crate) mod log;
pub(crate) mod main_thread;
mod rights;
pub(crate) mod server_flavor;
mod string;
pub(crate) mod subscription;

pub(crate) use api::{Ctx, RawString, api, flag, optional, status};
pub(crate) use blocked::{Address, Callbacks, Handle};
pub(crate) use call_reply::CallReply;
pub(crate) use client::User;
pub(crate) use main_thread::MainThread;
pub(crate) use rights::{Rights, may_use_all_keys};
pub(crate) use string::{OwnedString, ShortText, Words, bytes_of};
pub(crate) use subscription::Subscription;
