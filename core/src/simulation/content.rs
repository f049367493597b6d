//! What the model's keys hold, and the rule for sharing a lock (L1), in plain numbers as a reader would write them on
//! paper.

#![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test, as it should")]

use super::names::owner_named;
use super::world::MICROS_PER_MILLI;
use crate::lock::Stored;

/// The latest deadline that can be written together with a share.
pub(super) const LATEST: u64 = 99_999_999_999_999;

/// How many owners may hold a lock, whatever their shares.
pub(super) const MOST_HOLDERS: usize = 4;

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

    /// What anyone can read who knows the format. `None` if the key holds nothing.
    pub(super) fn of(stored: Stored<'_>) -> Option<Self> {
        let (value, deadline) = match stored {
            Stored::Nothing => return None,
            Stored::OtherType => return Some(Self::OtherType),
            Stored::Text { value, deadline } => (value, deadline),
        };
        let expiry = deadline.map(|deadline| deadline.millis());
        let text = str::from_utf8(value).expect("owners of letters and digits");
        if !text.ends_with('\n') {
            let (fence, holder) = text.split_once(':').unwrap_or(("0", text));
            return Some(Self::sole(owner_named(holder.as_bytes()), number(fence), expiry));
        }
        let ended = |line: &&str| line[17..31] == *"00000000000000";
        let held = |line: &str| Held {
            holder: owner_named(&line.as_bytes()[42..]),
            fence: number(&line[..16]),
            own_end: Some(number(&line[17..31])),
            share: u32::try_from(number(&line[32..37])).expect("a share"),
        };
        let lines = text.split_terminator('\n').filter(|line| !ended(line));
        Some(Self::Lock(Lock { holds: lines.map(held).collect(), expiry }))
    }
}

fn number(digits: &str) -> u64 {
    digits.bytes().fold(0, |number, digit| 10 * number + u64::from(digit - b'0'))
}

impl Lock {
    /// The value as the module writes it, or as an older client does.
    pub(super) fn value(&self) -> Vec<u8> {
        let mut value = String::new();
        for Held { holder, fence, own_end, share } in &self.holds {
            match own_end {
                None if *fence == 0 => value.push_str(holder),
                None => value.push_str(&format!("{fence:016}:{holder}")),
                Some(end) => {
                    let len = holder.len();
                    value
                        .push_str(&format!("{fence:016} {end:014} {share:05} {len:03}:{holder}\n"));
                }
            }
        }
        value.into_bytes()
    }

    pub(super) fn end(&self, held: &Held) -> Option<u64> {
        [held.own_end, self.expiry].into_iter().flatten().min()
    }

    pub(super) fn lasts(&self, held: &Held, now: u64) -> bool {
        self.end(held).is_none_or(|end| now / MICROS_PER_MILLI <= end)
    }

    pub(super) fn live(&self, now: u64) -> Vec<Held> {
        self.holds.iter().filter(|held| self.lasts(held, now)).copied().collect()
    }

    pub(super) fn known_as(&self, identity: Identity) -> Option<&Held> {
        self.holds.iter().find(|held| held.identity() == identity)
    }

    pub(super) fn changeable(&mut self, identity: Identity) -> &mut Held {
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

/// The holds in force. `None` if the key is no lock.
pub(super) fn live_in(content: Option<&Content>, now: u64) -> Option<Vec<Held>> {
    match content {
        None => Some(Vec::new()),
        Some(Content::Lock(lock)) => Some(lock.live(now)),
        Some(Content::OtherType) => None,
    }
}
