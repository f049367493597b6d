//! Thin safe wrappers of the server's functions, useful to any module. Nothing here knows of locks, and nothing here
//! imports anything from outside this folder.

pub(crate) mod api;
pub(crate) mod blocked;
pub(crate) mod call_filter;
pub(crate) mod call_reply;
pub(crate) mod client;
pub(crate) mod context;
pub(crate) mod log;
pub(crate) mod main_thread;
pub(crate) mod server_flavor;
pub(crate) mod string;
pub(crate) mod subscription;
