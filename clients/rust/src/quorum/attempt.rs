//! One try to have a lock on most servers, with one fence that is larger than that of any earlier grant.

use super::servers::{Answers, Ask, Servers, Subject};
use crate::Error;
use crate::clock::Moment;
use crate::home::Home;
use crate::locks::new_uuid;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Grant {
    pub(crate) subject: Arc<Subject>,
    pub(crate) fence: u64,
    /// Before the first server was asked.
    pub(crate) asked: Moment,
}

/// Dropped half-way, it is given back everywhere.
struct Attempt {
    servers: Arc<Servers>,
    subject: Arc<Subject>,
    open: bool,
}

/// None if others have the lock, or it was lost before all was done.
pub(crate) async fn attempt(
    servers: &Arc<Servers>,
    name: &str,
    ttl: Duration,
) -> Result<Option<Grant>, Error> {
    // A new owner each time: what is still to be released for an earlier try does not hit this one.
    let owner = new_uuid().to_string();
    let subject = Arc::new(Subject { name: name.to_owned(), owner, ttl, home: Home::here() });
    let servers = Arc::clone(servers);
    let mut attempt = Attempt { servers, subject, open: true };
    let asked = Moment::now();
    let answers = attempt.acquire().await;
    let fence = match attempt.fence(&answers).await {
        Ok(Some(fence)) => fence,
        other => {
            attempt.give_back(answers).await;
            return other.map(|_| None);
        }
    };
    attempt.open = false;
    Ok(Some(Grant { subject: Arc::clone(&attempt.subject), fence, asked }))
}

impl Attempt {
    async fn acquire(&self) -> Answers {
        let everybody = self.servers.everybody();
        self.servers.ask(&everybody, &self.subject, Ask::Acquire, |fence| fence.is_some()).await
    }

    /// The largest of the fences that were granted, once it is in force on most servers: whoever comes next is granted
    /// a larger one by at least one of these.
    async fn fence(&self, answers: &Answers) -> Result<Option<u64>, Error> {
        let Self { servers, subject, .. } = self;
        let (mut granted, mut came) = (granted(answers), servers.too_few(answers));
        while granted.len() >= servers.majority() {
            let Some(fence) = granted.iter().map(|(_, fence)| *fence).max() else { break };
            let whom: Vec<_> = granted.iter().map(|(server, _)| *server).collect();
            let is_raised = |now: Option<u64>| now == Some(fence);
            let raised = servers.ask(&whom, subject, Ask::Raise { fence }, is_raised).await;
            let said = raised.iter().filter_map(|(_, answer)| answer.as_ref().ok());
            if said.filter(|answer| is_raised(answer.number)).count() >= servers.majority() {
                return Ok(Some(fence));
            }
            came = servers.too_few(&raised);
            let Err(Error::Refused { reason }) = &came else { break };
            // Those who did not answer this time may make up a majority the next time.
            if answers.iter().filter(|(_, answer)| answer.is_ok()).count() < servers.all.len() {
                came = Err(Error::Unreachable { reason: reason.clone() });
            }
            // A clock that is far ahead of most is left out, and its server does not count: any majority will do.
            granted.retain(|(_, theirs)| *theirs < fence);
        }
        came.map(|()| None)
    }

    /// Released at once where it was granted, and in the background where that is not known. Those who answer late are
    /// released by the task that asked them.
    async fn give_back(&mut self, answers: Answers) {
        let Self { servers, subject, .. } = &*self;
        for (server, answer) in &answers {
            let nothing_there =
                answer.as_ref().is_ok_and(|answer| answer.number.is_none() && !answer.repeated);
            let released_below = answer.as_ref().is_ok_and(|answer| answer.number.is_some());
            if !nothing_there && !released_below {
                servers.leave(*server, subject, Ask::Acquire);
            }
        }
        let whom: Vec<_> = granted(&answers).into_iter().map(|(server, _)| server).collect();
        let release = Ask::Release { left: subject.ttl };
        let released = servers.ask(&whom, subject, release, |released| released == Some(1));
        for (server, answer) in released.await {
            if answer.is_err() {
                servers.leave(server, subject, Ask::Acquire);
            }
        }
        self.open = false;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.open {
            self.servers.leave_everywhere(&self.subject, Ask::Acquire);
        }
    }
}

fn granted(answers: &Answers) -> Vec<(usize, u64)> {
    let fence = |(server, answer): &(usize, Result<crate::wire::Answer, Error>)| {
        Some((*server, answer.as_ref().ok()?.number?))
    };
    answers.iter().filter_map(fence).collect()
}
