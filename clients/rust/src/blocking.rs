//! Locks for programs without a tokio runtime: this client runs its own, and blocks.

use crate::error::Error;
use crate::server::Server;
use crate::settings::Settings;
use std::fmt;
use std::future::IntoFuture;
use std::ops::Deref;
use std::sync::Arc;
use tokio::runtime::{Builder, Handle, Runtime};

/// A client with its own runtime, which renews leases on its own thread. It has all methods of [`Locks`](crate::Locks), and
/// [`wait`](Self::wait) blocks on what those return.
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
    handle: Handle,
    _runtime: Arc<Ended>,
}

/// Shuts the runtime down with the last copy of the client, on whichever thread that drops.
struct Ended(Option<Runtime>);

impl Drop for Ended {
    fn drop(&mut self) {
        // On a thread of another runtime, blocking is not allowed.
        if let (Ok(_), Some(runtime)) = (Handle::try_current(), self.0.take()) {
            runtime.shutdown_background();
        }
    }
}

impl Locks {
    /// A client with the default settings.
    ///
    /// # Errors
    ///
    /// When the system cannot start a thread.
    pub fn new(server: impl Into<Server>) -> std::io::Result<Self> {
        Ok(Self::on(runtime()?, crate::Locks::new(server)))
    }

    /// A client with these settings.
    ///
    /// # Errors
    ///
    /// If a setting is invalid.
    pub fn with_settings(server: impl Into<Server>, settings: Settings) -> Result<Self, Error> {
        let runtime = runtime().map_err(|error| Error::Unreachable { source: error.into() })?;
        Ok(Self::on(runtime, crate::Locks::with_settings(server, settings)?))
    }

    fn on(runtime: Runtime, locks: crate::Locks) -> Self {
        let handle = runtime.handle().clone();
        Self { locks, handle, _runtime: Arc::new(Ended(Some(runtime))) }
    }

    /// Blocks until a request, a release or any other future is ready.
    ///
    /// # Panics
    ///
    /// On a thread of a tokio runtime, which must not block.
    pub fn wait<F: IntoFuture>(&self, future: F) -> F::Output {
        self.handle.block_on(async { future.await })
    }
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).thread_name("leasehold").enable_all().build()
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
