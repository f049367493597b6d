//! Locks on Redis and Valkey: guards that renew their lease, know until when it can be counted on, and say when it is
//! lost.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
//! use leasehold_client::{Locks, Options};
//! use std::time::Duration;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), leasehold_client::Error> {
//! # let server = Example::start();
//! # let url = server.url();
//! let locks = Locks::connect(url).await?; // such as "redis://127.0.0.1:6379"
//!
//! // Whoever finds the lock taken need not wait …
//! if let Some(guard) = locks.try_lock("printer").await? {
//!     println!("printing, with fence {}", guard.fence());
//!     let outcome = guard.release().await?;
//!     assert!(outcome.in_time());
//! }
//!
//! // … or waits for it, in the order of arrival.
//! let guard = locks.lock("printer").ttl(Duration::from_secs(5)).wait(Duration::from_secs(60)).await?;
//! tokio::select! {
//!     () = print_a_page(guard.fence()) => {}
//!     loss = guard.lost() => eprintln!("stopped half-way: {loss:?}"),
//! }
//! drop(guard); // released in the background
//!
//! // Released however the work ends, and stopped if the lock is lost.
//! let pages = locks.run("printer", Options::new(), async |_guard| 17).await?;
//! assert_eq!(pages, 17);
//!
//! // The last thing that a program does: what is not released by then stays until its lease ends.
//! let left = locks.close(Duration::from_secs(5)).await;
//! assert!(left.is_empty(), "not released: {left:?}");
//! # Ok(())
//! # }
//! # async fn print_a_page(_fence: u64) {}
//! ```
//!
//! # With the module and without
//!
//! On a server that has Leasehold, whoever waits does so in the server's queue: first come, first served. On one that has
//! not, the same locks are kept by scripts, or by the server's own commands that compare, and whoever waits polls. Both
//! keep a lock in the same key with the same value, so both kinds of client keep each other out. [`Locks::dialect`] says
//! which it is. That is found out with each connection, so it may change with a failover.
//!
//! Fences grow on servers of either kind, and when one takes over from the other, also when the module is loaded while
//! clients are connected: their scripts look for it, by Redis 7 and Valkey, unless the user may run scripts and none of its
//! commands. Where clients of both kinds use one server at the same time all the same, fences of the two are apart by
//! fifteen seconds.
//!
//! # Waiting
//!
//! Each request has a place of its own in the server's queue, as those of the packages for other languages have: tasks of one
//! process and of many are served one by one, first come, first served.
//!
//! **By tickets**: the waiter keeps its place by asking for the lock again now and then ([`Settings::slice`]), and is told of
//! its grant. That takes two connections to each server, however many locks are waited for: the one for all requests, and a
//! subscription to a channel of this client's own. A message that is lost costs no more than a slice. A request that is dropped
//! leaves the queue at once. A program that is killed leaves its places behind for three slices at the most (15 seconds). When a
//! lock comes to one of them, the server sees that nobody hears its message: it keeps the lock for a second, and gives up all
//! places of that program.
//!
//! **By connections**: the waiter waits on a connection that does nothing else, and leaves the queue when that is closed, however
//! the program ends. At most 64 connections wait ([`Settings::wait_connections`]). Requests for more locks than that queue in the
//! process. They look now and then whether their lock is free, and their patience counts.
//!
//! Requests wait by tickets where the server has them, unless [`Settings::waiting`] says otherwise. Where it has none
//! they wait by connections: with an older module, on Redis before 7.0.6, where this user may not subscribe to
//! channels, and not publish on them (`&leasehold:*`, `+subscribe`), and where something in between lets no
//! subscription through for ten seconds. A server that has refused tickets is asked for them again a minute later. No
//! connection is added to wait on a server that has reached four fifths of its `maxclients`; without their subscription
//! tickets are asked for every two seconds.
//!
//! Patience for a lock that others hold has no limit unless it is given one ([`Options::wait`]). A server that does not
//! answer is waited for no longer than [`Settings::unreachable_after`], 30 seconds.
//!
//! A machine that loses power is not noticed by the server before its `tcp-keepalive` (300 s by default): if a connection of it
//! waits and is granted a lock meanwhile, that stays for one lease. Tickets run out as they do for a program that is killed.
//!
//! # What a guard promises
//!
//! A lock is a lease: it ends, or a holder that died would keep it for ever. While its guard lives
//! it is renewed each third of its ttl, over reconnects and failovers. [`Guard::valid_for`] counts
//! from the moment when the lease was asked for, by a clock that goes on while the machine is
//! suspended, and leaves a hundredth of it (and two milliseconds) for clocks that differ. At its
//! end [`Guard::lost`] fires, and nothing revives the guard. What it does not see: a process that
//! is paused and goes on writing. For that there is [`Guard::fence`]: let the store refuse a
//! smaller one than it has seen. Data on the server of the lock need not keep one: with the feature
//! `redis`, `Guard::run_command` has the server run a command only if the guard still holds the lock.
//!
//! A failover may lose the last grants: [`Options::replicas`] has replicas acknowledge them.
//!
//! # Several servers that know nothing of each other
//!
//! [`Quorum`] holds a lock on most of them, so that it survives the loss of any few: Redlock, with fences that grow.
//!
//! # Elections
//!
//! [`Election`] chooses one of several candidates for as long as it lives: a lock whose guard says
//! when leadership is lost, and which everybody may look at.
//!
//! # One task for each runtime
//!
//! A client renews and releases its locks in one task on each runtime that uses it. The first
//! request on a runtime starts the task. It ends with the client and its guards, or with the
//! runtime: the guards of that runtime are lost then, and those of others are not. [`Locks`] says
//! more about clients that several runtimes share.
//!
//! A program that ends without [`Locks::close`] cuts the task short: locks that it has not released
//! by then stay until their leases end, and a warning names them.
//!
//! # Programs without a runtime
//!
//! With the feature `blocking`, the module `blocking` has the same locks as functions that wait,
//! for programs that do not use tokio.
//!
//! # What is traced
//!
//! With the target `leasehold`, one event for each step of a lock (`acquired`, `refused`, `failed`, `extended`, `lost`,
//! `released`), with the lock, its owner, ttl and fence, and [`Options::correlation`]. A server that cannot be reached is a
//! warning (`unreachable`), at once and then every ten seconds, until it answers again (`reachable again`).
//!
//! # What is measured
//!
//! With the feature `metrics`, the crate sends these to the recorder that the program installs for
//! the [`metrics`](https://docs.rs/metrics) crate, version 0.24. No label names a lock, because a
//! program may have any number of them.
//!
//! | Metric | Kind | Is |
//! |---|---|---|
//! | `leasehold_acquired_total` | counter | locks that were granted |
//! | `leasehold_waited_seconds` | histogram | how long each request took, with the label `outcome`: `acquired`, `refused` (others had the lock), or `failed`. A request that is dropped is not in it. |
//! | `leasehold_held_seconds` | histogram | how long each lock was held, until it was released, dropped, kept or lost |
//! | `leasehold_lost_total` | counter | locks that were lost while a guard held them, with the label `why`: `expired` or `taken` |
//! | `leasehold_late_total` | counter | releases of locks that had been lost by then: the ttl is too short for the work |
//! | `leasehold_reconnects_total` | counter | connections that were opened in place of one that was lost |
//! | `leasehold_waiting_tickets` | gauge | requests that wait by tickets |
//! | `leasehold_waiting_connections` | gauge | connections on which requests wait, of the [`Settings::wait_connections`] that there may be for each client |

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquiring;
mod backoff;
#[cfg(feature = "blocking")]
pub mod blocking;
mod calls;
mod clock;
mod closing;
mod connections;
mod dialect;
mod election;
mod error;
mod features;
mod gate;
mod guard;
#[cfg(feature = "redis")]
mod guarded_command;
mod health;
mod home;
mod info;
mod joining;
mod keeper;
mod lease;
mod ledger;
mod link;
mod listing;
mod locks;
mod measure;
mod node;
mod observing;
mod orders;
mod outcome;
mod pending;
mod poison;
mod queue;
mod quorum;
mod reading;
mod releases;
mod request;
mod room;
mod routes;
mod run;
mod same_owner;
mod schedule;
mod settings;
mod several;
mod share;
mod slots;
mod socket;
mod story;
mod stray;
mod subscription;
mod target;
mod tickets;
#[cfg(feature = "tls")]
mod tls;
mod together;
mod trouble;
mod unanswered;
mod validity;
mod verdict;
mod wire;

pub use dialect::Dialect;
pub use election::{Election, Leader, Leaders, Leadership};
pub use error::Error;
pub use guard::Guard;
pub use health::Health;
pub use info::LockInfo;
pub use listing::{HolderInfo, WaiterInfo};
pub use locks::Locks;
pub use outcome::{Extended, Loss, Released};
pub use quorum::{Quorum, QuorumGuard, QuorumRequest};
pub use request::{Options, Request};
pub use settings::{Renew, Settings, Waiting};
pub use several::{AllGuard, AllRequest};
pub use target::Target;
#[cfg(feature = "tls")]
pub use tls::Tls;
/// What [`Guard::cancellation`] gives.
pub use tokio_util::sync::CancellationToken;
