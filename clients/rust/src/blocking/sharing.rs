//! Locks with several holders.

use super::{Guard, Locks};
use crate::{Error, Options};

impl Locks {
    /// Waits for the right to read: [`Locks::read`](crate::Locks::read).
    ///
    /// ```no_run
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Options, blocking::Locks};
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// let one = locks.read("prices", Options::new())?;
    /// let two = locks.read("prices", Options::new())?;
    /// # drop((one, two));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Locks::lock).
    pub fn read(&self, name: impl Into<String>, options: Options) -> Result<Guard, Error> {
        self.granted(self.locks.read(name).options(options))
    }

    /// Waits for the right to write: [`Locks::write`](crate::Locks::write).
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Locks::lock).
    pub fn write(&self, name: impl Into<String>, options: Options) -> Result<Guard, Error> {
        self.granted(self.locks.write(name).options(options))
    }

    /// Waits for one of so many permits: [`Locks::semaphore`](crate::Locks::semaphore).
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Locks::lock).
    pub fn semaphore(
        &self,
        name: impl Into<String>,
        permits: u32,
        options: Options,
    ) -> Result<Guard, Error> {
        self.granted(self.locks.semaphore(name, permits).options(options))
    }
}
