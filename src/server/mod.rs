//! Everything that touches the server: the only folder with unsafe code.
//!
//! The server calls the module on its main thread, one call at a time, at these places:
//!
//! | the server                           | calls                     | which                               |
//! |--------------------------------------|---------------------------|-------------------------------------|
//! | loads the module, or is asked to unload it | `load::*`           | registers all the others, or refuses |
//! | gets a command                       | `entry::*`                | parse, let the engine decide, reply |
//! | wants to know which keys a `LOCK.GUARD` names | `entry::guard`   | tells those of the command behind it |
//! | is about to execute anybody's command, while somebody waits, or in a cluster | `command_filter::filter` | suspects contended locks, hears of slots that move |
//! | is about to execute what the module calls | `command_filter::called`   | looks whether it is what was called |
//! | has the reply of a guarded command, which another module held back | `held_reply::kept` | passes it on |
//! | is joined by a replica               | `fence_broadcast::joined` | tells it how far the fence clock is |
//! | forks, as to rewrite a file          | `fence_broadcast::forked` | tells the file the same             |
//! | saves its data                       | `listener_watch::saving`  | tells every change from then on     |
//! | moves slots at once                  | `slots::moved`            | raises the fence clock, marks all   |
//! | closes a connection, once a hold was bound to one | `connections::changed` | lets them end  |
//! | evicts a key                         | `eviction::unlinked`, on older servers `eviction::evicted` | keeps a lock that is held |
//! | applies others' grants               | `fence_observer::key_event`        | learns fences                       |
//! | flushes or swaps databases           | `events::*`               | marks contended locks               |
//! | reaches the moment of the timer      | `due::ring`               | settles them, ends patience, puts evicted locks back |
//! | sends a waiter its reply, or loses it | `wait::*`                | replies, leaves the queue, frees    |
//! | changes its role                     | `lifecycle::role_changed` | raises the fence clock, sends waiters away |
//! | loads its data                       | `lifecycle::loading`      | raises the fence clock at the end   |
//! | is about to end                      | `lifecycle::shutdown`     | lets itself be unloaded             |
//! | answers INFO                         | `info::section`           |                                     |
//! | reads, sets or changes configuration | `config::*`, `server_settings::changed` |                                |
//!
//! Each of them begins in [`guard`], which no panic passes, and ends there: if the call has changed what is due next, the
//! timer is set. Each file owns what it remembers between two calls, as a [`MainThread`](ffi::main_thread::MainThread).
//!
//! Functions of the server are called through [`ffi::api::api!`]: one .so serves every server, so each may
//! be missing; what cannot be done without is checked once, at load.

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
mod ticket;
mod version;
mod wait;
