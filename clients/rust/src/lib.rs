//! Locks on Redis and Valkey, over the redis crate: guards that renew their lease, know until when it can be counted on, and
//! say when it is lost.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
//! use leasehold_client::{Locks, Released};
//! use std::time::Duration;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = Example::start();
//! # let url = server.url();
//! let locks = Locks::new(redis::Client::open(url)?);
//!
//! // Whoever finds the lock taken need not wait …
//! if let Some(guard) = locks.lock("printer").try_now().await? {
//!     println!("printing, with fence {}", guard.fence());
//!     assert_eq!(guard.release().await?, Released::InTime);
//! }
//!
//! // … or waits for it, in the order of arrival.
//! let guard = locks.lock("printer").ttl(Duration::from_secs(5)).wait(Duration::from_secs(60)).await?;
//! drop(guard); // released in the background
//!
//! // Released however the work ends, and stopped if the lock is lost.
//! let pages = locks.lock("printer").run(async |_guard| 17).await?;
//! assert_eq!(pages, 17);
//!
//! // The last thing that a program does: what is not released by then stays until its lease ends.
//! let left = locks.close(Duration::from_secs(5)).await;
//! assert!(left.is_empty(), "not released: {left:?}");
//! # Ok(())
//! # }
//! ```
//!
//! # With the module and without
//!
//! On a server that has Leasehold, whoever waits does so in the server's queue: first come, first served. On one that has
//! not, the same locks are kept by scripts, and whoever waits polls. Both keep a lock in the same key with the same value, so
//! both kinds of client keep each other out, and fences grow from one to the other. Which kind of server it is is found out
//! with the requests, so it may change with a failover.
//!
//! # Waiting
//!
//! Each request has a place of its own in the server's queue, a *ticket*, which is kept by asking for it now and then; the
//! server tells of the grant, on a channel of this client's own. However many requests wait, that takes the connection for
//! requests alone, and one more to each node of a cluster. The work begins with the message, so a grant takes two commands,
//! and often no more than the time of one: the release of a lock brings the message to the next one. The lease is counted
//! from before the last request that the server had answered, and so ends before the server's however late the message is.
//! A message that is lost costs no more than [`Settings::check_every`].
//!
//! A program that is killed leaves its places behind for three times as long. When a lock comes to one of them, the server
//! sees that nobody hears its message: it keeps the lock for a second, and gives up all places of that program.
//!
//! Where the server has no tickets, or this user may not subscribe (`&leasehold:*`, `+subscribe`), requests wait on up to
//! [`Settings::wait_connections`] connections of their own.
//!
//! # Losses
//!
//! A lock is a lease: it ends, or a holder that died would keep it for ever. [`Guard::lost`] tells of its end, and
//! [`Guard::fence`] has the store refuse what a paused holder writes late. A failover may lose the last grants:
//! [`Request::replicas`] has replicas acknowledge them, [`Request::durable`] has them on disk, and [`Server::quorum`] spreads a lock over several servers.
//!
//! # What is traced
//!
//! With the target `leasehold`, one event for each step of a lock (`acquired`, `refused`, `failed`, `extended`, `lost`,
//! `released`), with the lock, its owner, ttl and fence, and [`Request::correlation`]. A server that cannot be reached is a
//! warning (`unreachable`), at once and then every ten seconds, until it answers again (`reachable again`). A runtime that
//! ends while locks are held is a warning that names them.
//!
//! # What is measured
//!
//! With the feature `metrics`, the crate sends these to the recorder of the
//! [`metrics`](https://docs.rs/metrics) crate, version 0.24. No label names a lock.
//!
//! | Metric | Kind | Is |
//! |---|---|---|
//! | `leasehold_acquired_total` | counter | locks that were granted |
//! | `leasehold_waited_seconds` | histogram | how long each request took, with the label `outcome`: `acquired`, `refused`, or `failed` |
//! | `leasehold_held_seconds` | histogram | how long each lock was held, until it was released, dropped, detached or lost |
//! | `leasehold_lost_total` | counter | locks that were lost while a guard held them, with the label `why`: `expired` or `taken` |
//! | `leasehold_late_total` | counter | releases of locks that had been lost by then: the ttl is too short for the work |
//! | `leasehold_reconnects_total` | counter | connections that were opened in place of one that was lost |
//! | `leasehold_waiting_tickets` | gauge | requests that wait by tickets |
//! | `leasehold_waiting_connections` | gauge | connections on which requests wait |

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod asked;
mod attempt;
mod backoff;
mod bare;
#[cfg(feature = "blocking")]
pub mod blocking;
mod clock;
mod copies;
mod core;
mod detached;
mod election;
mod error;
mod extensions;
mod guard;
mod home;
mod info;
mod keeper;
mod lease;
mod ledger;
mod limits;
mod link;
mod listed;
mod locked;
mod locks;
mod measure;
mod outcome;
mod plain;
mod question;
mod quorum;
mod remote;
mod request;
mod server;
mod settings;
mod story;
mod trouble;
mod validity;
mod verdict;
mod waiting;

pub use detached::Detached;
pub use election::{Election, Leader, Leaders};
pub use error::Error;
pub use guard::Guard;
pub use info::{Contended, Holder, LockInfo, Logged, Waiter};
pub use locks::Locks;
pub use outcome::{Fence, Loss, Released};
pub use request::Request;
pub use server::Server;
pub use settings::{Renew, Settings};
/// What [`Guard::cancellation`] gives.
pub use tokio_util::sync::CancellationToken;
