//! Locks on Redis and Valkey, over the redis crate: guards that renew their lease and report its loss.
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
//! // Try to take the lock, without waiting …
//! if let Some(guard) = locks.lock("printer").try_now().await? {
//!     println!("printing, with fence {}", guard.fence());
//!     assert_eq!(guard.release().await?, Released::InTime);
//! }
//!
//! // … or wait for it, in the order of arrival.
//! let guard = locks.lock("printer").ttl(Duration::from_secs(5)).wait(Duration::from_secs(60)).await?;
//! drop(guard); // released in the background
//!
//! // Released however the work ends, and stopped if the lock is lost.
//! let pages = locks.lock("printer").run(async |_guard| 17).await?;
//! assert_eq!(pages, 17);
//!
//! // Close last: a lock that is not released by then stays held until its lease ends.
//! let left = locks.close(Duration::from_secs(5)).await;
//! assert!(left.is_empty(), "not released: {left:?}");
//! # Ok(())
//! # }
//! ```
//!
//! # With the module and without
//!
//! On a server with the Leasehold module, requests wait in the server's queue: first come, first served. On a server without
//! it, scripts keep the locks and waiting requests poll. Both store a lock in one format under one key, so clients of both
//! kinds exclude each other, and fences grow across both. The client learns with its requests whether the server has the
//! module, so that may change with a failover.
//!
//! # Waiting
//!
//! Each request has its own place in the server's queue, a *ticket*. The client keeps a place by asking for it from time to
//! time, and the server publishes the grant on a channel of this client. Any number of requests wait on the connection for
//! requests, plus one connection to each node of a cluster. The message is the grant: the work begins with it. So a grant
//! takes two commands, and often no longer than one, because the release by one holder sends the message to the next. The
//! client counts the lease from before its last answered request, so the lease ends before the server's, however late the
//! message arrives. A lost message costs at most [`Settings::check_every`].
//!
//! A killed program leaves its places behind for three times [`Settings::check_every`]. When a lock comes to one of these
//! places, the server sees that nobody receives the message, keeps the lock for a second, and drops all places of that
//! program.
//!
//! Where the server has no tickets, or this user may not subscribe (`&leasehold:*`, `+subscribe`), requests wait on up to
//! [`Settings::wait_connections`] connections.
//!
//! # Losses
//!
//! A lock is a lease, so it ends even if its holder died. [`Guard::lost`] reports the end. With [`Guard::fence`], a store
//! refuses late writes of a paused holder. A failover may lose the last grants: [`Request::replicas`] waits until replicas
//! have a grant, [`Request::durable`] until it is on disk, and [`Server::quorum`] spreads a lock over several servers.
//!
//! # What is traced
//!
//! The target `leasehold` has one event for each step of a lock (`acquired`, `refused`, `failed`, `extended`, `lost`,
//! `released`), with the lock, its owner, ttl and fence, and [`Request::correlation`]. An unreachable server is a warning
//! (`unreachable`), at once and every ten seconds, until it answers again (`reachable again`). A runtime that ends while
//! locks are held is a warning that names them.
//!
//! It also has two spans of each lock, `leasehold.wait` and `leasehold.hold`, with `leasehold.lock`, `leasehold.owner`,
//! `leasehold.correlation`, `leasehold.fence` and `leasehold.outcome`: `acquired`, `refused` or `failed`, and `released`,
//! `expired` or `taken`. The crate `tracing-opentelemetry` sends them to a collector of OpenTelemetry, as children of the
//! span that asked; what failed or was lost has the status of an error.
//!
//! # What is measured
//!
//! With the feature `metrics`, the crate sends these to the recorder of the [`metrics`](https://docs.rs/metrics) crate,
//! version 0.24. No label contains the name of a lock.
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
#[cfg(feature = "testing")]
pub mod testing;
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
/// The type that [`Guard::cancellation`] returns.
pub use tokio_util::sync::CancellationToken;
