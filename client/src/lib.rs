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
//! On a server that has Leasehold, whoever waits does so in the server's queue: first come, first served, on a
//! connection of its own. On one that has not, the same locks are kept by scripts, or by the server's own commands
//! that compare, and whoever waits polls. Both keep a lock in the same key with the same value, so both kinds of
//! client keep each other out. [`Locks::dialect`] says which it is; it is found out with each connection, so it may
//! change with a failover.
//!
//! Fences grow on servers of either kind, and when one takes over from the other. Only where clients of both kinds
//! use one server at the same time, because the module was loaded while some were connected, fences of the two are
//! apart by fifteen seconds.
//!
//! # What a guard promises
//!
//! A lock is a lease: it ends, or a holder that died would keep it for ever. While its guard lives
//! it is renewed each third of its ttl, over reconnects and failovers. [`Guard::valid_for`] counts
//! from the moment when the lease was asked for, by a clock that goes on while the machine is
//! suspended, and leaves a hundredth of it (and two milliseconds) for clocks that differ. At its
//! end [`Guard::lost`] fires, and nothing revives the guard. What it does not see: a process that
//! is paused and goes on writing. For that there is [`Guard::fence`]: let the store refuse a
//! smaller one than it has seen.
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
//! # One task
//!
//! A client renews and releases all its locks in one task, which lives on the runtime that it was
//! connected on and ends with the last guard. A program that ends without [`Locks::close`] cuts it
//! short: locks that it has not released by then stay until their leases end, and a warning names
//! them. What it does is traced with the target `leasehold`, one event for each step (`acquired`,
//! `refused`, `failed`, `extended`, `lost`, `released`), with the lock, its owner, ttl and fence,
//! and [`Options::correlation`].

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod backoff;
mod clock;
mod closing;
mod dialect;
mod election;
mod error;
mod gate;
mod guard;
mod health;
mod info;
mod joining;
mod keeper;
mod lease;
mod locks;
mod node;
mod observing;
mod outcome;
mod pending;
mod queue;
mod quorum;
mod reading;
mod releases;
mod request;
mod routes;
mod run;
mod schedule;
mod settings;
mod several;
mod slots;
mod story;
mod target;
#[cfg(feature = "tls")]
mod tls;
mod validity;
mod verdict;
mod wire;

pub use dialect::Dialect;
pub use election::{Election, Leader, Leaders, Leadership};
pub use error::Error;
pub use guard::Guard;
pub use health::Health;
pub use info::LockInfo;
pub use locks::Locks;
pub use outcome::{Extended, Loss, Released};
pub use quorum::{Quorum, QuorumGuard, QuorumRequest};
pub use request::{Options, Request};
pub use settings::{Renew, Settings};
pub use several::{AllGuard, AllRequest};
pub use target::Target;
#[cfg(feature = "tls")]
pub use tls::Tls;
/// What [`Guard::cancellation`] gives.
pub use tokio_util::sync::CancellationToken;
