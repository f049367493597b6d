//! A change of a value with several holds: in its place, or of the whole value.
//!
//! A change in place costs as much to write and to replicate with a thousand holders as with two. When a hold is added,
//! the lines of holds that ran out are ended too, as if they had been released: by a clock that is behind they would be
//! in force again. Ended lines stay until they take more than half the room of the holds in force. Then the whole value
//! is written without them.

use super::digits::decimal;
use super::fence::Fence;
use super::hold::{Grant, Seen};
use super::lease::{Deadline, Moment};
use super::line::{self, Line, Value};
use super::owner::Owner;
use super::share::Share;
use std::ops::Range;

/// The write to the key, which is also replicated and appended to the append-only file.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Write<'r> {
    /// Nothing is written.
    Keep,
    /// This hold, in place of whatever the key holds.
    Hold { owner: Owner<'r>, fence: Fence, deadline: Option<Deadline>, share: Share },
    /// The value stays, the lease ends at this deadline.
    Expire(Deadline),
    /// One of several holds is changed, added or ended.
    Edit(Edit<'r>),
    /// What the key held before it was evicted.
    Restore(&'r Seen),
    /// Nobody holds the lock any more.
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    Nothing,
    Lease,
    /// The value, if the key held one.
    Value,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Edit<'r> {
    pub(super) over: Option<Over>,
    /// A hold behind the others.
    pub(super) added: Option<Grant<'r>>,
    /// When the last hold ends, and with it the key.
    pub expiry: Deadline,
    pub(super) clearing: Clearing,
}

/// What happens to the lines of holds that are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clearing {
    /// They stay.
    Nothing,
    /// Lines with an earlier deadline are ended in their place.
    End(Moment),
    /// The whole value is rewritten. It keeps only the holds in force at `now`, and none for longer than the key would
    /// have lasted.
    Rewrite { now: Moment, limit: Option<Deadline> },
}

/// A change of one line in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Over {
    pub(super) line_at: usize,
    pub(super) change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    End,
    Lease(Deadline, Share),
    Fence(Fence),
}

impl Write<'_> {
    pub const fn changes(&self) -> Changed {
        match self {
            Self::Keep => Changed::Nothing,
            Self::Expire(_) => Changed::Lease,
            Self::Hold { .. } | Self::Edit(_) | Self::Restore(_) | Self::Delete => Changed::Value,
        }
    }

    /// What the key holds after this write, if it held this before.
    pub fn applied_to(&self, former: Option<Seen>) -> Option<Seen> {
        match *self {
            Self::Keep => former,
            Self::Hold { owner, fence, deadline, share } => {
                let value = Value::of_hold(fence, owner, deadline, share).as_bytes().into();
                Some(Seen { value, deadline })
            }
            Self::Expire(deadline) => former.map(|seen| Seen { deadline: Some(deadline), ..seen }),
            Self::Edit(ref edit) => {
                let former = former.map(|seen| seen.value.into_vec()).unwrap_or_default();
                let value = edit.rewritten(&former).unwrap_or_else(|| {
                    let mut value = former;
                    edit.patch(&mut value);
                    value.extend(edit.appended().iter().flat_map(|line| line.as_bytes().to_vec()));
                    value
                });
                Some(Seen { value: value.into(), deadline: Some(edit.expiry) })
            }
            Self::Restore(seen) => Some(seen.clone()),
            Self::Delete => None,
        }
    }
}

/// Bytes to be written over a part of the value.
#[derive(Debug)]
pub struct Patch {
    bytes: [u8; line::LEASE_LEN],
    len: usize,
}

impl Patch {
    fn new(part: &[u8]) -> Self {
        let (mut bytes, len) = ([0; line::LEASE_LEN], part.len());
        bytes.iter_mut().zip(part).for_each(|(byte, part)| *byte = *part);
        Self { bytes, len }
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn write(&self, value: &mut [u8], at: usize) {
        if let Some(place) = value.get_mut(at..at.saturating_add(self.len)) {
            place.copy_from_slice(self.as_bytes());
        }
    }
}

impl Change {
    /// What to write, and where, if the line begins at `line_at`.
    fn patch(self, line_at: usize) -> (usize, Patch) {
        let (at, patch) = match self {
            Self::End => (line::DEADLINE_AT, Patch::new(line::ENDED)),
            Self::Lease(deadline, share) => {
                (line::DEADLINE_AT, Patch::new(&line::lease(deadline, share)))
            }
            Self::Fence(fence) => (0, Patch::new(&decimal::<{ Fence::DIGITS }>(fence.number()))),
        };
        (line_at.saturating_add(at), patch)
    }
}

impl Edit<'_> {
    /// What to write over the value, and where, for the hold of the owner who asks.
    pub fn over(&self) -> Option<(usize, Patch)> {
        self.over.map(|over| over.change.patch(over.line_at))
    }

    /// What to write over the value, and where, for each hold that ran out.
    pub fn ends<'v>(&'v self, value: &'v [u8]) -> impl Iterator<Item = (usize, Patch)> + 'v {
        let mut from = 0;
        std::iter::from_fn(move || {
            let run_out = self.next_run_out(value, from)?;
            from = run_out.end;
            Some(Change::End.patch(run_out.start))
        })
    }

    pub fn patch(&self, value: &mut [u8]) {
        let mut from = 0;
        while let Some(run_out) = self.next_run_out(value, from) {
            from = run_out.end;
            let (at, patch) = Change::End.patch(run_out.start);
            patch.write(value, at);
        }
        if let Some((at, patch)) = self.over() {
            patch.write(value, at);
        }
    }

    /// The first line at or behind `from` that must be ended.
    fn next_run_out(&self, value: &[u8], from: usize) -> Option<Range<usize>> {
        let Clearing::End(now) = self.clearing else { return None };
        let (now, mut start) = (line::digits_of(Deadline::from_millis(now.millis())), from);
        loop {
            let (line, _) = Line::first_of(value.get(start..)?)?;
            let end = start.saturating_add(line.len());
            if line.has_run_out(now) {
                return Some(start..end);
            }
            start = end;
        }
    }

    /// What to write behind the end.
    pub fn appended(&self) -> Option<Value> {
        self.added.map(|grant| Value::of_line(&grant))
    }

    /// The whole new value, if the value is not edited in its place.
    pub fn rewritten(&self, value: &[u8]) -> Option<Vec<u8>> {
        let Clearing::Rewrite { now, limit } = self.clearing else { return None };
        let now = line::digits_of(Deadline::from_millis(now.millis()));
        let mut kept = Vec::with_capacity(value.len().saturating_add(line::LONGEST));
        let (mut rest, mut at) = (value, 0_usize);
        while let Some((line, behind)) = Line::first_of(rest) {
            let len = line.len();
            let own = self.over.filter(|over| over.line_at == at).map(|over| over.change);
            if line.deadline >= now && own != Some(Change::End) {
                let line_at = kept.len();
                kept.extend_from_slice(rest.get(..len).unwrap_or_default());
                let cut = limit.filter(|limit| line::digits_of(*limit) < line.deadline);
                let cut = cut.map(|limit| Change::Lease(limit, line.hold().share));
                for change in [cut, own].into_iter().flatten() {
                    let (at, patch) = change.patch(line_at);
                    patch.write(&mut kept, at);
                }
            }
            (rest, at) = (behind, at.saturating_add(len));
        }
        if let Some(line) = self.appended() {
            kept.extend_from_slice(line.as_bytes());
        }
        Some(kept)
    }
}
