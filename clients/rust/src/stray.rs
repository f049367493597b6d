//! Requests that nobody answered: each may arrive late, and be granted a lock that its owner has done with.
//!
//! ```text
//!   a connection     ACQUIRE ┈┈┈┈┈┈┈┈┈┈┈ stuck ┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈► granted, released
//!   the next one               ACQUIRE ► granted    RELEASE ► released
//!   the first again                                      RELEASE ┘ behind the request, wherever that is stuck
//! ```

use crate::dialect::Question;
use crate::link::Link;
use crate::poison::locked;
use crate::unanswered::LONGEST_WAY;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::runtime::Handle;

/// The connections on which requests of one owner were not answered. They stay open.
#[derive(Default)]
pub(crate) struct Stray {
    on: Mutex<Vec<Link>>,
    may_be_granted: AtomicBool,
}

impl Stray {
    /// A request is about to be sent. One that never was, because no server could be reached, leaves nothing to release.
    pub(crate) fn sending(&self) {
        self.may_be_granted.store(true, Relaxed);
    }

    /// It is known what became of all that was sent.
    pub(crate) fn known(&self) {
        self.may_be_granted.store(false, Relaxed);
    }

    pub(crate) fn may_be_granted(&self) -> bool {
        self.may_be_granted.load(Relaxed)
    }

    pub(crate) fn note(&self, link: &Link) {
        let mut on = locked(&self.on);
        if on.iter().all(|known| known.id != link.id) {
            on.push(link.clone());
        }
    }

    /// Leaves nothing of them here.
    pub(crate) fn take(&self) -> Self {
        let on = Mutex::new(std::mem::take(&mut *locked(&self.on)));
        Self { on, ..Self::default() }
    }

    /// Says on each of these connections that the owner wants nothing any more, and leaves it. In the background: that
    /// may be stuck, too.
    pub(crate) fn release(&self, key: &str, owner: &str, also: &[String]) {
        let links = std::mem::take(&mut *locked(&self.on));
        let Ok(runtime) = Handle::try_current() else { return };
        for link in links {
            let (key, owner, also) = (key.to_owned(), owner.to_owned(), also.to_vec());
            runtime.spawn(async move {
                let release = Question::ReleaseAny { owner: &owner, also: &also };
                let _ = link.leave(&key, Some(release), LONGEST_WAY).await;
            });
        }
    }
}
