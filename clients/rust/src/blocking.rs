//! The same locks for programs that have no tokio runtime: this one has it, and waits.

use crate::error::Error;
use crate::server::Server;
use crate::settings::Settings;
use std::fmt;
use std::future::IntoFuture;
use std::ops::Deref;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

/// A client with a runtime of its own, which renews leases on a thread of its own. It has all that
/// [`Locks`](crate::Locks) has, and [`wait`](Self::wait) for what is awaited there.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
/// use leasehold_client::blocking::Locks;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = Example::start();
/// # let url = server.url();
/// let locks = Locks::new(redis::Client::open(url)?)?;
/// let guard = locks.wait(locks.lock("printer"))?;
/// println!("printing, with fence {}", guard.fence());
/// locks.wait(guard.release())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Locks {
    locks: crate::Locks,
    runtime: Arc<Runtime>,
}

impl Locks {
    /// A client with the default settings.
    ///
    /// # Errors
    ///
    /// When the system has no thread for it.
    pub fn new(server: impl Into<Server>) -> std::io::Result<Self> {
        Ok(Self { locks: crate::Locks::new(server), runtime: runtime()? })
    }

    /// The same with these settings.
    ///
    /// # Errors
    ///
    /// When a setting makes no sense.
    pub fn with_settings(server: impl Into<Server>, settings: Settings) -> Result<Self, Error> {
        let runtime = runtime().map_err(|error| Error::Unreachable { source: error.into() })?;
        Ok(Self { locks: crate::Locks::with_settings(server, settings)?, runtime })
    }

    /// Waits for a request, a release, or whatever else is awaited.
    ///
    /// # Panics
    ///
    /// On a thread of a tokio runtime, which must not wait.
    pub fn wait<F: IntoFuture>(&self, future: F) -> F::Output {
        self.runtime.block_on(async { future.await })
    }
}

fn runtime() -> std::io::Result<Arc<Runtime>> {
    let built =
        Builder::new_multi_thread().worker_threads(1).thread_name("leasehold").enable_all().build();
    built.map(Arc::new)
}

impl Deref for Locks {
    type Target = crate::Locks;

    fn deref(&self) -> &crate::Locks {
        &self.locks
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.locks.fmt(f)
    }
}
