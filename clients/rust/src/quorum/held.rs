//! What the guards of a quorum hold, and how it is given back.
//!
//! Whoever closes the quorum gives back what guards hold. Their tasks could not be asked to: a
//! runtime may stand still.

use super::servers::{Ask, Servers, Subject, UnderWay};
use crate::clock::Moment;
use crate::lease::{Asking, Counted, Lease};
use crate::poison::locked;
use crate::{Error, Loss, story};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

pub(crate) struct Held {
    pub(super) servers: Arc<Servers>,
    pub(super) subject: Arc<Subject>,
    pub(super) lease: Arc<Lease>,
}

/// All that guards hold.
#[derive(Default)]
pub(crate) struct Holdings {
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    held: HashMap<u64, Weak<Held>>,
    closed: bool,
}

/// What is being given back by a guard. Whoever closes the quorum waits until this is dropped.
#[must_use = "dropped, it is given back in the background"]
pub(super) struct GivingBack {
    held: Arc<Held>,
    /// Everywhere, unless somebody has seen to it.
    in_background: bool,
    _under_way: Vec<UnderWay>,
}

/// Whether anything may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holding {
    Open,
    Closed,
}

impl Holdings {
    /// A guard holds it from now on, until it gives it back.
    pub(super) fn begin(&self, held: &Arc<Held>) -> Holding {
        let mut books = self.books();
        if books.closed {
            return Holding::Closed;
        }
        books.held.insert(held.lease.id, Arc::downgrade(held));
        Holding::Open
    }

    /// Nothing is held any more. All that was is to be given back.
    pub(super) fn close(&self) -> Vec<Arc<Held>> {
        let mut books = self.books();
        books.closed = true;
        let held = std::mem::take(&mut books.held);
        held.into_values().filter_map(|held| held.upgrade()).collect()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        locked(&self.books)
    }
}

impl Held {
    pub(super) fn loss(&self) -> Option<Loss> {
        let is_over = || self.lease.valid_for(Moment::now()).is_zero().then_some(Loss::Expired);
        self.lease.ended().or_else(is_over)
    }

    /// The guard is about to give it back. None if the quorum was closed before, or the guard has
    /// given it back. In one step, so that whoever closes the quorum either gives it back or sees
    /// that it is being given back.
    pub(super) fn give_back(self: &Arc<Self>) -> Option<GivingBack> {
        let mut books = self.servers.holdings.books();
        books.held.remove(&self.lease.id)?;
        let begin = |server| self.servers.begin(server, &self.subject);
        let under_way = self.servers.everybody().into_iter().map(begin).collect();
        drop(books);
        Some(GivingBack { held: Arc::clone(self), in_background: true, _under_way: under_way })
    }

    /// The quorum is closed. A lease that has ended here may not have ended on the servers.
    pub(super) fn close(&self) {
        self.lease.end(Loss::Closed);
        self.leave_everywhere();
    }

    /// What servers are asked when it is held no more.
    pub(super) fn leaving(&self) -> Ask {
        let (fence, now) = (self.lease.fence, Moment::now());
        let left = self.lease.left(now);
        match self.lease.hold_for(now) {
            Some(rest) => Ask::HoldOn { fence, until: now.later(rest), left },
            None => Ask::Release { left },
        }
    }

    fn leave_everywhere(&self) {
        self.servers.leave_everywhere(&self.subject, self.leaving());
    }

    pub(super) async fn extend(&self, ttl: Duration) -> Result<Counted, Error> {
        if self.loss().is_some() {
            return Ok(Counted::Over);
        }
        let asked = Moment::now();
        match self.lease.about_to_extend(self.servers.everybody(), ttl, asked) {
            Some(asking) => self.ask(asking, asked).await,
            None => Ok(Counted::Over),
        }
    }

    /// The same if it is due now.
    pub(super) async fn renew(&self) -> Result<Counted, Error> {
        if self.loss().is_some() {
            return Ok(Counted::Over);
        }
        let asked = Moment::now();
        match self.lease.about_to_renew(self.servers.everybody(), asked) {
            Some(asking) => self.ask(asking, asked).await,
            None => Ok(Counted::Fully),
        }
    }

    async fn ask(&self, mut asking: Asking<'_>, asked: Moment) -> Result<Counted, Error> {
        let Self { servers, subject, lease } = self;
        let (everybody, fence, ttl) = (servers.everybody(), lease.fence, asking.ttl);
        let agrees = |number: Option<u64>| number == Some(1);
        let answers = servers.ask(&everybody, subject, Ask::Extend { fence, ttl }, agrees);
        let answers = tokio::select! {
            biased;
            () = lease.over.cancelled() => return Ok(Counted::Over),
            answers = answers => answers,
        };
        let (mut agreed, mut said, now) = (Vec::new(), Vec::new(), Moment::now());
        for (server, answer) in &answers {
            let Ok(answer) = answer else { continue };
            said.push((*server, answer.repeated));
            if agrees(answer.number) {
                agreed.push(*server);
            }
        }
        let refused = said.len().saturating_sub(agreed.len());
        let is_extended = agreed.len() >= servers.majority();
        let extended = || asking.extended_by(&agreed, servers.majority(), asked, now);
        let counted = is_extended.then(extended);
        for (server, _) in said.iter().filter(|(_, repeated)| !repeated) {
            asking.answered(*server, now);
        }
        if let Some(counted) = counted {
            match counted {
                Counted::Over => self.lease.lose(Loss::Expired),
                Counted::Fully | Counted::Less => story::extended(lease, now),
            }
            return Ok(counted);
        }
        if servers.all.len().saturating_sub(refused) < servers.majority() {
            self.lease.lose(Loss::Taken);
            return Ok(Counted::Over);
        }
        servers.too_few(&answers)?;
        let reason = "too few servers answered to tell".to_owned();
        Err(Error::Unreachable { reason })
    }
}

impl GivingBack {
    /// Nothing is left to be done in the background.
    pub(super) fn done(&mut self) {
        self.in_background = false;
    }
}

impl Drop for GivingBack {
    fn drop(&mut self) {
        if self.in_background {
            self.held.leave_everywhere();
        }
    }
}
