//! A change of a value with several holds: in its place, or of all of it at once.
//!
//! In its place, it costs as much to write and to replicate with a thousand holders as with two. Lines of holds that were ended stay
//! until they take more room than those in force, and those of holds that ran out until another hold comes. Then the whole value
//! is written anew without them.

use super::fence::Fence;
use super::hold::{Grant, Value};
use super::lease::{Deadline, Moment};
use super::line::{self, Line};
use super::share::Share;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit<'r> {
    pub(super) over: Option<Over>,
    /// A hold behind the others.
    pub(super) added: Option<Grant<'r>>,
    /// When the last hold ends, and with it the key.
    pub expiry: Deadline,
    pub(super) rewriting: Option<Rewriting>,
}

/// Bytes that are written over those in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Over {
    line_at: usize,
    change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    End,
    Lease([u8; line::LEASE_LEN]),
    Fence([u8; Fence::DIGITS]),
}

/// What all of the value is written anew by: only what is in force at this moment is kept, and nothing for longer than the key
/// would have lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rewriting {
    pub(super) now: Moment,
    pub(super) limit: Option<Deadline>,
}

impl Over {
    pub(super) const fn end(line_at: usize) -> Self {
        Self { line_at, change: Change::End }
    }

    pub(super) fn lease(line_at: usize, deadline: Deadline, share: Share) -> Self {
        Self { line_at, change: Change::Lease(line::lease(deadline, share)) }
    }

    pub(super) fn fence(line_at: usize, fence: Fence) -> Self {
        Self { line_at, change: Change::Fence(line::decimal(fence.number())) }
    }

    fn place(&self) -> (usize, &[u8]) {
        let (at, bytes): (usize, &[u8]) = match &self.change {
            Change::End => (line::DEADLINE_AT, line::ENDED),
            Change::Lease(bytes) => (line::DEADLINE_AT, bytes),
            Change::Fence(bytes) => (0, bytes),
        };
        (self.line_at.saturating_add(at), bytes)
    }
}

impl Edit<'_> {
    /// What is to be written where, over what is there.
    pub fn over(&self) -> Option<(usize, &[u8])> {
        self.over.as_ref().map(Over::place)
    }

    /// What is to be written behind the end.
    pub fn appended(&self) -> Option<Value> {
        self.added.map(|grant| Value::of_line(&grant))
    }

    /// All of the new value, if it is not to be edited in its place.
    pub fn rewritten(&self, value: &[u8]) -> Option<Vec<u8>> {
        let Rewriting { now, limit } = self.rewriting?;
        let now = line::digits_of(Deadline::from_millis(now.millis()));
        let mut kept = Vec::with_capacity(value.len());
        let (mut rest, mut at) = (value, 0_usize);
        while let Some((line, behind)) = Line::first_of(rest) {
            let len = line.len();
            let change = self.over.filter(|over| over.line_at == at).map(|over| over.change);
            let hold = line.hold();
            let owner = super::owner::Owner::new(hold.owner);
            let deadline = hold.deadline.map(|own| limit.map_or(own, |limit| own.min(limit)));
            if line.deadline >= now
                && change != Some(Change::End)
                && let (Some(fence), Some(deadline), Some(owner)) = (hold.fence, deadline, owner)
            {
                let start = kept.len();
                line::write(fence, deadline, hold.share, owner, |part| {
                    kept.extend_from_slice(part)
                });
                let over = change.map(|change| Over { line_at: start, change });
                if let Some((at, bytes)) = over.as_ref().map(Over::place)
                    && let Some(place) = kept.get_mut(at..at.saturating_add(bytes.len()))
                {
                    place.copy_from_slice(bytes);
                }
            }
            at = at.saturating_add(len);
            rest = behind;
        }
        if let Some(line) = self.appended() {
            kept.extend_from_slice(line.as_bytes());
        }
        Some(kept)
    }
}
