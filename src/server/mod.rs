//! Everything that touches the server: the only folder with unsafe code.
//!
//! The server calls the module on its main thread, one call at a time, at these places:
//!
//! | the server          | calls                                     | which                                |
//! |---------------------|-------------------------------------------|--------------------------------------|
//! | loads the module    | `load::RedisModule_OnLoad`                | registers all the others             |
//! | gets a command      | `entry::*`                                | parse, open the key, decide, apply   |
//! | changes its role    | `lifecycle::role_changed`                 | raises the fence clock               |
//! | loads its data      | `lifecycle::loading`                      | raises the fence clock at the end    |
//! | gives a key an expiry, or loads one | `learn::key_event`        | learns fences as a replica, or while loading |
//! | answers INFO        | `info::section`                           |                                      |
//! | reads or sets a configuration | `config::get`, `config::set`    |                                      |
//! | unloads the module  | `load::RedisModule_OnUnload`              |                                      |
//!
//! Each of them begins in [`guard`], which no panic passes.
//!
//! Functions of the server are called through [`api::api!`]: one .so serves every server, so each may
//! be missing; what cannot be done without is checked once, at load.

mod api;
mod authority;
mod call;
mod clock;
mod config;
mod entropy;
mod entry;
mod guard;
mod info;
mod key;
mod learn;
mod lifecycle;
mod load;
mod log;
mod register;
mod replicate;
mod respond;
mod state;
