//! One leader among several candidates: a lock that whoever leads holds.

use crate::core::Core;
use crate::error::Error;
use crate::info::{LockInfo, info};
use crate::outcome::Fence;
use crate::question::EXCLUSIVE;
use crate::request::{LONGEST_OWNER, Request};
use std::fmt;
use std::sync::Arc;

use std::time::Duration;
use tokio::time::sleep;
use uuid::Uuid;

/// Between the name of a candidate and what makes it an owner that nobody else has.
const SEPARATOR: char = '/';

/// What a random UUID has in characters.
const UUID_LENGTH: usize = 36;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An election, for one of the candidates or for those who look on: [`Locks::election`](crate::Locks::election).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
/// # fn main() { example(async |locks| {
/// let election = locks.election("scheduler", "host-1");
/// let term = election.campaign().await?; // waits until the others are gone
/// println!("leads, with fence {}", term.fence());
/// term.release().await?; // lets the next one lead
/// # Ok(()) }) }
/// ```
#[derive(Clone)]
pub struct Election {
    core: Arc<Core>,
    name: Vec<u8>,
    candidate: String,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// By the name that it gave when it campaigned.
    pub candidate: String,
    /// The fence of its term: larger than that of any earlier term.
    pub fence: Fence,
}

/// Those who lead, one after the other: [`Election::observe`].
#[derive(Debug)]
pub struct Leaders {
    election: Election,
    look_every: Duration,
    /// What was seen last, if anything was.
    last: Option<Option<Leader>>,
}

impl Election {
    pub(crate) fn new(core: &Arc<Core>, name: &[u8], candidate: String) -> Self {
        Self { core: Arc::clone(core), name: name.to_vec(), candidate }
    }

    /// A request to lead: awaited, it waits until this candidate does. Its guard is the term of office.
    ///
    /// Candidates queue, and lead in the order of arrival.
    pub fn campaign(&self) -> Request {
        let owner = format!("{}{SEPARATOR}{}", self.candidate, Uuid::new_v4());
        let request = Request::new(&self.core, vec![self.name.clone()], EXCLUSIVE);
        if owner.len() > LONGEST_OWNER {
            return request.wrong("candidate", "its name must be at most 218 bytes long");
        }
        request.owner(owner)
    }

    /// Who leads at this moment; none between two terms.
    ///
    /// # Errors
    ///
    /// When no server answers, or it refuses.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        Ok(info(&self.core, &self.name).await?.map(Leader::from))
    }

    /// Those who lead, from now on.
    #[must_use = "it looks only while it is asked for the next one"]
    pub fn observe(&self) -> Leaders {
        Leaders { election: self.clone(), look_every: LOOK_EVERY, last: None }
    }
}

impl Leaders {
    /// How often to look; a second unless this is called.
    #[must_use]
    pub fn look_every(self, interval: Duration) -> Self {
        Self { look_every: interval, ..self }
    }

    /// Who leads: the present one first, and then each that differs from the one before. None: nobody leads.
    ///
    /// Terms shorter than an interval may be missed. While no server answers it waits.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] when the client is closed; when the server refuses.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        loop {
            match self.election.leader().await {
                Ok(leader) if self.last.as_ref() != Some(&leader) => {
                    self.last = Some(leader.clone());
                    return Ok(leader);
                }
                Ok(_) | Err(Error::Unreachable { .. }) => {}
                Err(error) => return Err(error),
            }
            let closed = &self.election.core.home.closed;
            closed.run_until_cancelled(sleep(self.look_every)).await;
        }
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Election");
        debug.field("candidate", &self.candidate).finish_non_exhaustive()
    }
}

impl From<LockInfo> for Leader {
    fn from(LockInfo { holder, fence, .. }: LockInfo) -> Self {
        // Whoever took the lock in another way is called by its owner.
        let candidate = match holder.rsplit_once(SEPARATOR) {
            Some((candidate, unique)) if unique.len() == UUID_LENGTH => candidate.to_owned(),
            _ => holder,
        };
        Self { candidate, fence }
    }
}
