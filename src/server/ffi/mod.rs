//! Thin safe wrappers of the server's functions, useful to any module. Nothing here knows of locks, and nothing here
//! imports anything from outside this folder.

pub(super) mod api;
pub(super) mod blocked;
pub(super) mod call_filter;
pub(super) mod call_reply;
pub(super) mod client;
pub(super) mod context;
pub(super) mod log;
pub(super) mod main_thread;
pub(super) mod server_flavor;
pub(super) mod short_text;
pub(super) mod string;
pub(super) mod subscription;
