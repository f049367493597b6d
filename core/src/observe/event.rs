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
    #[cfg(test)]
    const ALL: [Self; 5] =
        [Self::Acquired, Self::HandedOff, Self::Released, Self::Extended, Self::Lost];

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_event_has_a_name_of_its_own_that_begins_as_the_commands_do() {
        let names: BTreeSet<_> = Event::ALL.map(Event::name).into();
        assert_eq!(names.len(), Event::ALL.len());
        assert!(names.iter().all(|name| name.to_bytes().starts_with(b"lock.")), "{names:?}");
    }
}
