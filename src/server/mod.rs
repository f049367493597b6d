//! Everything that touches the server: the only folder with unsafe code.
//!
//! The server calls the module on its main thread, one call at a time, at these places:
//!
//! | the server                           | calls                     | which                               |
//! |--------------------------------------|---------------------------|-------------------------------------|
//! | loads the module, or is asked to unload it | `load::*`           | registers all the others, or refuses |
//! | gets a command                       | `entry::*`                | parse, let the engine decide, reply |
//! | wants to know which keys a `LOCK.GUARD` names | `entry::guard`   | tells the keys of the command behind it |
//! | gets a command, while somebody waits or in a cluster | `command_filter::filter` | suspects locks, sees slots move |
//! | is about to execute what the module calls | `command_filter::called`   | checks that it is the right command |
//! | has the held-back reply of a guarded command | `held_reply::kept` | passes it on |
//! | accepts a replica                    | `fence_broadcast::joined` | broadcasts the fence clock          |
//! | forks, e.g. to rewrite a file        | `fence_broadcast::forked` | broadcasts the fence clock          |
//! | saves its data                       | `listener_watch::saving`  | tells every change from then on     |
//! | moves slots at once                  | `slots::moved`            | lifts the fence clock , marks all   |
//! | closes a connection, once a hold was bound to one | `connections::changed` | ends bound holds |
//! | evicts a key                   | `eviction::unlinked`, on older servers `eviction::evicted` | keeps a held lock |
//! | applies grants of other servers      | `fence_observer::key_event`        | learns fences                       |
//! | flushes or swaps databases           | `events::*`               | marks contended locks               |
//! | reaches the moment of the timer      | `due::ring`               | settles locks, ends patience, rewrites evicted locks |
//! | sends a waiter its reply, or loses it | `wait::*`                | replies, leaves the queue, frees    |
//! | changes its role                     | `lifecycle::role_changed` | lifts the fence clock , sends waiters away |
//! | loads its data                       | `lifecycle::loading`      | lifts the fence clock  at the end   |
//! | is about to end                      | `lifecycle::shutdown`     | allows an unload                    |
//! | answers INFO                         | `info::section`           |                                     |
//! | reads, sets or changes configuration | `config::*`, `server_settings::changed` |                                |
//!
//! Each callback runs inside [`guard`], which stops panics, and at the end sets the timer if the call has changed what
//! is due next. Each file owns its state between two calls, as a [`MainThread`](ffi::main_thread::MainThread).
//!
//! Functions of the server are called through [`ffi::api::api!`]. One .so serves every server, so any function may be
//! missing. The indispensable ones are checked once, at load.

mod alarm;
mod authority;
mod blocked_client;
mod call;
mod channel;
mod clock;
mod command_filter;
mod command_table;
mod config;
mod connections;
mod delivery;
mod due;
mod effect;
mod entry;
mod events;
mod eviction;
mod fence_broadcast;
mod fence_lift;
mod fence_observer;
mod ffi;
mod guard;
mod guarded_keys;
mod held_reply;
mod host;
mod info;
mod inner_command;
mod key;
mod keys;
mod lifecycle;
mod listener_watch;
mod listeners;
mod load;
mod locks;
mod permission;
mod random_owner;
mod register;
mod replicate;
mod respond;
mod room;
mod server_settings;
mod slot_probe;
mod slots;
mod throttle;
mod version;
mod wait;
