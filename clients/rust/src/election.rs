//! One leader among several candidates: a lock that whoever leads holds.

use crate::clock::{Moment, within};
use crate::core::Core;
use crate::error::Error;
use crate::info::{LockInfo, info};
use crate::outcome::Fence;
use crate::question::EXCLUSIVE;
use crate::request::{LONGEST_OWNER, Request};
use futures_util::StreamExt;
use redis::aio::PubSubStream;
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

/// Where the server tells of changes, it is looked for them so many times less often.
const RARELY: u32 = 10;

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
pub struct Leaders {
    election: Election,
    look_every: Duration,
    /// What was seen last, if anything was.
    last: Option<Option<Leader>>,
    events: Option<Events>,
    /// When to ask for them again, if that was of no use.
    subscribes_at: Moment,
}

/// What the server tells of the key.
struct Events {
    stream: PubSubStream,
    /// It tells something. Then it need not be looked at as often.
    tells: bool,
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

    /// Those who lead, from now on. Where the server tells of keys (`notify-keyspace-events KA`), each change is seen at once,
    /// on a connection of its own, and otherwise by looking every second.
    #[must_use = "it looks only while it is asked for the next one"]
    pub fn observe(&self) -> Leaders {
        Leaders {
            election: self.clone(),
            look_every: LOOK_EVERY,
            last: None,
            events: None,
            subscribes_at: Moment::now(),
        }
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
            let core = Arc::clone(&self.election.core);
            core.home.closed.run_until_cancelled(self.change()).await;
        }
    }

    /// Until something may have changed.
    async fn change(&mut self) {
        if self.events.is_none() && Moment::now() >= self.subscribes_at {
            self.subscribes_at = Moment::now().later(self.look_every.saturating_mul(RARELY));
            let key = self.election.core.home.key(&self.election.name);
            let opening = async {
                let node = self.election.core.remote().ok()?.link.node(&key).await.ok()?;
                let events = node.subscribe(&node.channel_of(&key)).await.ok()?;
                Some(Events { stream: events.into_on_message(), tells: false })
            };
            self.events = within(self.look_every, opening).await.flatten();
            if self.events.is_some() {
                // What has changed until then was not told.
                return;
            }
        }
        let Some(events) = &mut self.events else { return sleep(self.look_every).await };
        let rarely = if events.tells { RARELY } else { 1 };
        match within(self.look_every.saturating_mul(rarely), events.stream.next()).await {
            Some(Some(_)) => events.tells = true,
            // The connection is lost.
            Some(None) => self.events = None,
            None => {}
        }
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Leaders");
        debug
            .field("look_every", &self.look_every)
            .field("last", &self.last)
            .finish_non_exhaustive()
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
