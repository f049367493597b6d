//! What the model's keys hold, and the rule for sharing a lock (L1), in plain numbers as a reader would write them on
//! paper.

#![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test, as it should")]

use super::alike::MICROS_PER_MILLI;

/// The latest deadline that can be written together with a share.
pub(super) const LATEST: u64 = 99_999_999_999_999;

/// How many owners may hold a lock, whatever their shares.
pub(super) const MOST_HOLDERS: usize = 4;

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Lock(Lock),
    OtherType,
}

/// The holds of a lock, oldest first, including expired holds that are still written there, and when the key expires,
/// in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lock {
    pub(super) holds: Vec<Held>,
    pub(super) expiry: Option<u64>,
}

/// A foreign hold has fence 0. An exclusive hold ends with its key, any other hold at its own end or with its key,
/// whichever is earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) holder: &'static str,
    pub(super) fence: u64,
    pub(super) own_end: Option<u64>,
    /// How many holders the hold tolerates. 0 means any number.
    pub(super) share: u32,
}

impl Content {
    pub(super) fn sole(holder: &'static str, fence: u64, expiry: Option<u64>) -> Self {
        let held = Held { holder, fence, own_end: None, share: 1 };
        Self::Lock(Lock { holds: vec![held], expiry })
    }
}

impl Lock {
    pub(super) fn end(&self, held: &Held) -> Option<u64> {
        [held.own_end, self.expiry].into_iter().flatten().min()
    }

    pub(super) fn lasts(&self, held: &Held, now: u64) -> bool {
        self.end(held).is_none_or(|end| now / MICROS_PER_MILLI <= end)
    }

    /// The holds in force.
    pub(super) fn live(&self, now: u64) -> Vec<Held> {
        self.holds.iter().filter(|held| self.lasts(held, now)).copied().collect()
    }

    pub(super) fn known_as(&mut self, identity: Identity) -> &mut Held {
        self.holds.iter_mut().find(|held| held.identity() == identity).expect("a hold in force")
    }

    /// Makes the key expire with its last hold. If somebody gave the key an earlier end, only the hold that just got a
    /// new end outlasts that.
    pub(super) fn expires_with_the_last(&mut self, own: Option<Identity>, now: u64) {
        let own_end = self.holds.iter().find(|held| Some(held.identity()) == own);
        let own_end = own_end.and_then(|held| held.own_end);
        self.expires_with(own, own_end.unwrap_or(0), now);
    }

    pub(super) fn expires_with(&mut self, own: Option<Identity>, own_end: u64, now: u64) {
        let limit = self.expiry;
        let is_other = |held: &&Held| Some(held.identity()) != own;
        let live = self.live(now);
        let last = live.iter().filter(is_other).filter_map(|held| held.own_end).max().unwrap_or(0);
        let cut = limit.map_or(last, |limit| limit.min(last));
        let expiry = own_end.max(cut);
        if cut < last && cut < expiry {
            for held in self.holds.iter_mut().filter(|held| Some(held.identity()) != own) {
                held.own_end = [held.own_end, limit].into_iter().flatten().min();
            }
        }
        self.expiry = Some(expiry);
    }
}

/// Two holds of one lock may have been raised to the same fence.
pub(super) type Identity = (&'static str, u64);

impl Held {
    pub(super) fn identity(&self) -> Identity {
        (self.holder, self.fence)
    }
}

pub(super) fn tolerated(share: u32) -> usize {
    if share == 0 { usize::MAX } else { usize::try_from(share).expect("a small number") }
}

/// Whether a hold with this share may join these.
pub(super) fn admit(others: &[Held], share: u32) -> bool {
    let least = others.iter().map(|held| tolerated(held.share)).min().unwrap_or(usize::MAX);
    others.len() < least.min(tolerated(share)).min(MOST_HOLDERS)
}

/// If an owner is written twice, the later hold counts as its own.
pub(super) fn own(live: &[Held], owner: &str) -> Option<Held> {
    live.iter().rev().find(|held| held.holder == owner).copied()
}

pub(super) fn others(live: &[Held], owner: &str) -> Vec<Held> {
    let own = own(live, owner);
    live.iter().filter(|held| Some(**held) != own).copied().collect()
}

pub(super) fn has_run_out(content: &Content, now: u64) -> bool {
    match content {
        Content::Lock(lock) => lock.live(now).is_empty(),
        Content::OtherType => false,
    }
}

pub(super) fn has_expired(content: &Content, now: u64) -> bool {
    match content {
        Content::Lock(lock) => lock.expiry.is_some_and(|end| now / MICROS_PER_MILLI > end),
        Content::OtherType => false,
    }
}
