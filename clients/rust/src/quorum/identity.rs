//! Which server each of a quorum is. One that is named twice would count twice: two majorities
//! could then have no server in common.

use crate::Error;
use crate::poison::locked;
use std::sync::{Mutex, MutexGuard};

/// The run id of each server, as far as it is known: a server makes one up when it starts.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    run_ids: Mutex<Vec<Option<String>>>,
}

impl Identities {
    pub(crate) fn of(count: usize) -> Self {
        Self { run_ids: Mutex::new(vec![None; count]) }
    }

    pub(crate) fn is_known(&self, server: usize) -> bool {
        self.run_ids().get(server).is_some_and(Option::is_some)
    }

    /// It may be another one by now.
    pub(crate) fn forget(&self, server: usize) {
        if let Some(known) = self.run_ids().get_mut(server) {
            *known = None;
        }
    }

    /// This server has this run id, unless another one has.
    pub(crate) fn learn(&self, server: usize, run_id: &str) -> Result<(), Error> {
        let mut run_ids = self.run_ids();
        let same = run_ids
            .iter()
            .enumerate()
            .find(|(other, known)| *other != server && known.as_deref() == Some(run_id));
        if let Some((other, _)) = same {
            let [first, second] = [other.min(server), other.max(server)].map(ordinal);
            let reason = format!(
                "the addresses {first} and {second} lead to one server, which has the run id {run_id}"
            );
            return Err(Error::setting("servers", &reason));
        }
        if let Some(known) = run_ids.get_mut(server) {
            *known = Some(run_id.to_owned());
        }
        Ok(())
    }

    fn run_ids(&self) -> MutexGuard<'_, Vec<Option<String>>> {
        locked(&self.run_ids)
    }
}

/// As people count.
fn ordinal(server: usize) -> usize {
    server.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_named_twice_is_refused_until_it_is_another_one() {
        let identities = Identities::of(3);
        identities.learn(0, "a").unwrap();
        identities.learn(0, "a").unwrap();
        let refused = identities.learn(2, "a").unwrap_err().to_string();
        assert!(refused.contains("addresses 1 and 3"), "{refused}");
        assert!(!identities.is_known(2));
        identities.learn(2, "b").unwrap();
        assert!(identities.is_known(2));
        identities.forget(0);
        identities.learn(1, "a").unwrap();
        assert!(identities.learn(0, "a").is_err());
    }
}
