//! Leader election: the leader holds a lock.

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

/// Separates the candidate's name from the UUID that makes the owner unique.
const SEPARATOR: char = '/';

const UUID_LENGTH: usize = 36;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// With keyspace events, polling is less frequent by this factor.
const RARELY: u32 = 10;

/// An election, for a candidate or an observer: [`Locks::election`](crate::Locks::election).
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

/// The leader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The name under which it campaigned.
    pub candidate: String,
    /// The fence of its term, larger than that of any earlier term.
    pub fence: Fence,
}

/// The sequence of leaders: [`Election::observe`].
pub struct Leaders {
    election: Election,
    look_every: Duration,
    /// What the last look found; none before the first look.
    last: Option<Option<Leader>>,
    events: Option<Events>,
    /// The earliest time for another attempt to subscribe.
    subscribes_at: Moment,
}

struct Events {
    stream: PubSubStream,
    /// An event has arrived, so polling may be rare.
    tells: bool,
}

impl Election {
    pub(crate) fn new(core: &Arc<Core>, name: &[u8], candidate: String) -> Self {
        Self { core: Arc::clone(core), name: name.to_vec(), candidate }
    }

    /// A request to lead. Awaited, it waits until this candidate leads. Its guard is the term of office.
    ///
    /// Candidates lead in the order of arrival.
    pub fn campaign(&self) -> Request {
        let owner = format!("{}{SEPARATOR}{}", self.candidate, Uuid::new_v4());
        let request = Request::new(&self.core, vec![self.name.clone()], EXCLUSIVE);
        if owner.len() > LONGEST_OWNER {
            return request.wrong("candidate", "its name must be at most 218 bytes long");
        }
        request.owner(owner)
    }

    /// The present leader; none between two terms.
    ///
    /// # Errors
    ///
    /// If no server answers, or the server refuses.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        Ok(info(&self.core, &self.name).await?.map(Leader::from))
    }

    /// The leaders from now on. If the server sends keyspace events (`notify-keyspace-events KA`), changes show at once, on
    /// another connection. Otherwise this looks every second.
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
    /// How often to look; every second by default.
    #[must_use]
    pub fn look_every(self, interval: Duration) -> Self {
        Self { look_every: interval, ..self }
    }

    /// The present leader first, then each leader that differs from the one before. None while nobody leads.
    ///
    /// May miss terms shorter than the interval. Waits while no server answers.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the client is closed. Other errors if the server refuses.
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

    /// Waits until the leader may have changed.
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
                // Events before the subscription are lost, so look again.
                return;
            }
        }
        let Some(events) = &mut self.events else { return sleep(self.look_every).await };
        let rarely = if events.tells { RARELY } else { 1 };
        match within(self.look_every.saturating_mul(rarely), events.stream.next()).await {
            Some(Some(_)) => events.tells = true,
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
        // A holder that did not campaign is named by its owner.
        let candidate = match holder.rsplit_once(SEPARATOR) {
            Some((candidate, unique)) if unique.len() == UUID_LENGTH => candidate.to_owned(),
            _ => holder,
        };
        Self { candidate, fence }
    }
}
