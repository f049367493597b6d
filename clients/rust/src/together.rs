//! Several locks by one request, where the server takes them so: one grant, or nothing.
//!
//! Whoever waits for several in this way holds none meanwhile, and has a place in the queue of each.

use crate::dialect::NO_ALSO;
use crate::home::Home;
use crate::locks::{Inner, new_uuid};
use crate::pending::Pending;
use crate::poison::locked;
use crate::request::Wanted;
use crate::stray::Stray;
use crate::{Error, Guard};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// As many as a server takes.
const MOST_KEYS: usize = 128;

/// How long a server is not asked again that took one lock in a request: another may have taken its place.
const ALONE_FOR: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Alone(Mutex<Option<Instant>>);

impl Alone {
    fn note(&self) {
        *locked(&self.0) = Some(Instant::now());
    }

    fn lasts(&self) -> bool {
        locked(&self.0).is_some_and(|at| at.elapsed() < ALONE_FOR)
    }
}

/// What one request for several locks came to.
pub(crate) enum Together {
    All(Vec<Guard>),
    Busy,
    /// They have to be asked for one by one.
    NotSo,
}

impl Inner {
    /// Asks for all of them by one request, if there can be one.
    pub(crate) async fn acquire_together(
        &self,
        names: &[String],
        wanted: &Wanted,
        until: Option<Instant>,
    ) -> Result<Together, Error> {
        let mut keys: Vec<_> = names.iter().map(|name| self.key(name)).collect();
        // An owner that may come back takes its turns lock by lock, and replicas are asked about one.
        let is_simple = wanted.owner.is_none() && wanted.replicas.is_none();
        let is_several = (2..=MOST_KEYS).contains(&keys.len());
        if !is_simple || !is_several || self.alone.lasts() || !self.wire.routes.are_together(&keys)
        {
            return Ok(Together::NotSo);
        }
        if self.wire.routes.is_watched() {
            self.orders.begin().map_err(|_| Error::Closed)?;
        }
        let asked = Instant::now();
        let also = keys.split_off(1);
        let mut pending = Pending {
            orders: self.orders.clone(),
            home: Home::here(),
            key: keys.pop().unwrap_or_default(),
            also,
            owner: new_uuid().to_string(),
            share: wanted.share,
            ttl: wanted.ttl,
            place: None,
            parked: None,
            asked_on: Mutex::default(),
            stray: Stray::default(),
        };
        let name = names.join(" ");
        let granted = match self.granted(&name, &mut pending, wanted, until).await {
            Ok(Some(granted)) => granted,
            Ok(None) => return Ok(Together::Busy),
            Err(error) if is_not_known(&error) => {
                pending.stray.known();
                self.alone.note();
                return Ok(Together::NotSo);
            }
            Err(error) => return Err(error),
        };
        let mut guards = Vec::with_capacity(names.len());
        for name in names {
            let key = self.key(name);
            guards.push(self.guard(name, key, &mut pending, &granted, wanted, None, asked)?);
        }
        pending.stray.known();
        Ok(Together::All(guards))
    }
}

/// The server takes one lock in a request: it has no module, or an older one.
fn is_not_known(error: &Error) -> bool {
    let Error::Refused { reason } = error else { return false };
    reason.ends_with(NO_ALSO) || reason.starts_with("ERR unknown option")
}
