//! Keyspace events: what a subscriber can hear about a lock.

use std::ffi::CStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Granted to a request that found the lock free.
    Acquired,
    /// Granted to the oldest waiter.
    HandedOff,
    Released,
    /// The lease has a new deadline.
    Extended,
    /// The holder lost the lock without releasing it.
    Lost,
}

impl Event {
    /// The name under which the event is published.
    pub const fn name(self) -> &'static CStr {
        match self {
            Self::Acquired => c"lock.acquired",
            Self::HandedOff => c"lock.handed-off",
            Self::Released => c"lock.released",
            Self::Extended => c"lock.extended",
            Self::Lost => c"lock.lost",
        }
    }
}
