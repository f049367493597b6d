//! The holders of a lock: what its value says of them, as one owner sees them, and the write that changes what it says.
//!
//! A hold ends at its own deadline or with the key, whichever is sooner. If one line is not written as the module
//! writes lines, the value is not a list of holds: it is a foreign lock, and the whole value is its owner. So nobody is
//! let in beside a hold whose line was torn.

use super::edit::{Change, Clearing, Edit, Over, Write};
use super::fence::{Fence, FenceClock};
use super::hold::{Grant, Hold, NotALock, Stored};
use super::lease::{Deadline, Moment};
use super::line::{self, Digits, Line, Tolerance};
use super::owner::Owner;
use super::share::Share;

/// How many bytes of holds that are over may stay in the value, however few holds are in force.
const DEAD_BYTES_LEFT: u32 = 256;

/// How many holds that ran out are ended in their place at once. If there are more, rewriting the value is quicker.
const MOST_ENDED: u32 = 64;

/// No older client's lock has a longer value.
const LONGEST_FOREIGN: usize = 8_192;

#[derive(Clone, Copy, Debug)]
pub struct Holders<'v> {
    /// The hold of the owner who looks. In a value without lines, the only hold, no matter whose.
    hold: Option<Hold<'v>>,
    others: u32,
    /// The smallest share of the others.
    tolerance: Share,
    lines: Option<Lines>,
}

/// Whether others held the lock when it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherHolders {
    None,
    /// Others held the lock, and still do.
    Some,
}

/// What is known of a value that has a line for each hold.
#[derive(Clone, Copy, Debug)]
struct Lines {
    /// Where the line of the owner's hold begins.
    own_at: u32,
    /// How many bytes the lines of holds in force take, and the other lines.
    live: u32,
    dead: u32,
    /// The latest deadline of the others, whatever the key's expiry.
    others_end: Deadline,
    /// How many lines are over by their deadline alone: by a clock that is behind, they are in force once more.
    run_out: u32,
    /// When the first hold ends, if there is one.
    next_end: Option<Deadline>,
    limit: Option<Deadline>,
    now: Moment,
}

impl<'v> Holders<'v> {
    pub const NOBODY: Self =
        Self { hold: None, others: 0, tolerance: Share::UNLIMITED, lines: None };

    /// What a key's value and expiry say at this moment: time decides, as in [`Hold::in_force`]. Teaches the fence
    /// clock their fences.
    pub(super) fn read(
        value: &'v [u8],
        limit: Option<Deadline>,
        asker: Owner<'_>,
        now: Moment,
        fences: &mut FenceClock,
    ) -> Self {
        if Self::may_be_several(value)
            && let Some(survey) = Survey::of(value, limit, asker, now)
        {
            learn(value, line::fence_of(survey.newest), now, fences);
            return survey.holders(limit, now);
        }
        let hold = Hold::read(value, limit);
        if let Some(fence) = hold.fence {
            fences.observe(fence, now);
        }
        let Some(hold) = hold.in_force(now) else { return Self::NOBODY };
        let is_own = hold.is_held_by(asker);
        Self {
            hold: Some(hold),
            others: u32::from(!is_own),
            tolerance: if is_own { Share::UNLIMITED } else { hold.share },
            lines: None,
        }
    }

    /// Whether the value may have a line for each hold, judged by one byte.
    pub(super) fn may_be_several(value: &[u8]) -> bool {
        value.get(Fence::DIGITS) == Some(&b' ')
    }

    /// The hold of the owner who looks.
    pub const fn own(&self) -> Option<&Hold<'v>> {
        match &self.hold {
            Some(hold) if self.lines.is_some() || self.others == 0 => Some(hold),
            _ => None,
        }
    }

    /// The only hold of a lock whose value has no lines, no matter whose.
    pub const fn sole(&self) -> Option<&Hold<'v>> {
        match &self.hold {
            Some(hold) if self.lines.is_none() => Some(hold),
            _ => None,
        }
    }

    pub const fn is_free(&self) -> bool {
        self.hold.is_none() && self.others == 0
    }

    pub const fn next_end(&self) -> Option<Deadline> {
        match (&self.lines, &self.hold) {
            (Some(lines), _) => lines.next_end,
            (None, Some(hold)) => hold.deadline,
            (None, None) => None,
        }
    }

    /// **The rule** (L1): an owner may hold the lock if the number of holders is then no more than each of them
    /// tolerates. A hold that the owner has already does not count.
    pub fn admit(&self, share: Share, max_holders: usize) -> bool {
        let holders = usize::try_from(self.others).unwrap_or(usize::MAX).saturating_add(1);
        holders <= max_holders && share.min(self.tolerance).tolerates(holders)
    }

    /// Whether others hold the lock when the owner who looks is granted it.
    pub(super) const fn others(&self) -> OtherHolders {
        if self.others > 0 { OtherHolders::Some } else { OtherHolders::None }
    }

    /// The write that grants the lock to the owner who looks. The grant replaces the owner's hold, if it has one.
    pub(super) fn granted<'r>(&self, grant: &Grant<'r>) -> Write<'r> {
        match &self.lines {
            Some(lines) if self.others > 0 => {
                let former = self.own().map(|_| Change::End);
                lines.edit(former, Some(*grant), Some(grant.deadline))
            }
            _ => {
                let Grant { owner, fence, deadline, share } = *grant;
                Write::Hold { owner, fence, deadline: Some(deadline), share }
            }
        }
    }

    pub(super) fn ended<'r>(&self) -> Write<'r> {
        match &self.lines {
            Some(lines) if self.others > 0 => lines.edit(Some(Change::End), None, None),
            _ => Write::Delete,
        }
    }

    pub(super) fn extended<'r>(&self, deadline: Deadline) -> Write<'r> {
        match (&self.lines, self.own()) {
            (Some(lines), Some(own)) => lines.lease(deadline, own.share),
            _ => Write::Expire(deadline),
        }
    }

    /// The write that gives the hold of the owner who looks a longer lease, or a larger share.
    pub(super) fn renewed<'r>(
        &self,
        owner: Owner<'r>,
        longer: Option<Deadline>,
        share: Share,
    ) -> Write<'r> {
        match (self.own(), longer) {
            (Some(&Hold { fence: Some(fence), deadline, share: former, .. }), _)
                if former < share =>
            {
                // A key without an expiry gets the latest expiry there is.
                let latest = Deadline::from_millis(line::LATEST);
                let deadline = longer.or(deadline).unwrap_or(latest);
                match &self.lines {
                    Some(lines) => lines.lease(deadline, share),
                    None => Write::Hold { owner, fence, deadline: Some(deadline), share },
                }
            }
            (_, Some(longer)) => self.extended(longer),
            (_, None) => Write::Keep,
        }
    }

    pub(super) fn raised<'r>(&self, owner: Owner<'r>, fence: Fence) -> Write<'r> {
        let deadline = self.own().and_then(|own| own.deadline);
        match &self.lines {
            Some(lines) => lines.edit(Some(Change::Fence(fence)), None, deadline),
            None => Write::Hold { owner, fence, deadline, share: Share::EXCLUSIVE },
        }
    }
}

impl Lines {
    fn lease<'r>(&self, deadline: Deadline, share: Share) -> Write<'r> {
        self.edit(Some(Change::Lease(deadline, share)), None, Some(deadline))
    }

    /// The key expires with the last hold. If somebody gave the key an earlier expiry, the other holds must not outlast
    /// it. Nobody is let in beside a line that could come into force again, on a server whose clock is set back or on a
    /// promoted replica whose clock is behind (L1).
    fn edit<'r>(
        &self,
        change: Option<Change>,
        added: Option<Grant<'r>>,
        own_end: Option<Deadline>,
    ) -> Write<'r> {
        let others_end = self.limit.map_or(self.others_end, |limit| limit.min(self.others_end));
        let expiry = own_end.map_or(others_end, |own_end| own_end.max(others_end));
        let would_outlast = others_end < self.others_end && others_end < expiry;
        let is_untidy = self.dead > (self.live / 2).saturating_add(DEAD_BYTES_LEFT);
        let (has_room, is_added) = (self.run_out <= MOST_ENDED, added.is_some());
        let clearing = if would_outlast || (is_added && (is_untidy || !has_room)) {
            Clearing::Rewrite { now: self.now, limit: self.limit }
        } else if is_added && self.run_out > 0 {
            Clearing::End(self.now)
        } else {
            Clearing::Nothing
        };
        let line_at = usize::try_from(self.own_at).unwrap_or(usize::MAX);
        let over = change.map(|change| Over { line_at, change });
        Write::Edit(Edit { over, added, expiry, clearing })
    }
}

impl<'v> Stored<'v> {
    /// The holders of the lock, as this owner sees them. The fence clock learns the fences of the value, so that no
    /// look at a value misses them.
    #[inline]
    pub fn holders(
        self,
        asker: Owner<'_>,
        now: Moment,
        fences: &mut FenceClock,
    ) -> Result<Holders<'v>, NotALock> {
        match self {
            Self::Nothing => Ok(Holders::NOBODY),
            Self::OtherType => Err(NotALock),
            Self::Text { value, deadline } => {
                Ok(Holders::read(value, deadline, asker, now, fences))
            }
        }
    }

    /// The holds in force, oldest first. The fence clock learns their fences, too.
    pub fn holds(self, now: Moment, fences: &mut FenceClock) -> Result<Holds<'v>, NotALock> {
        match self {
            Self::Nothing => Ok(Holds::NONE),
            Self::OtherType => Err(NotALock),
            Self::Text { value, deadline } => {
                let (holds, newest) = Holds::read(value, deadline, now);
                learn(value, newest, now, fences);
                Ok(holds)
            }
        }
    }

    /// Whether the lock may be granted, judged without reading the holds: nobody holds it, or its holders may tolerate
    /// others.
    pub fn may_be_granted(self, now: Moment) -> bool {
        match self {
            Self::Nothing => true,
            Self::OtherType => false,
            Self::Text { value, deadline } => {
                Holders::may_be_several(value)
                    || deadline.is_some_and(|deadline| deadline.has_passed(now))
            }
        }
    }

    /// The text as it is, to be kept and compared. `None` for a long text that is not a list of holds: no client locks
    /// with such a text, and keeping it would copy other programs' data each time that they change it.
    pub fn seen(self) -> Option<(&'v [u8], Option<Deadline>)> {
        match self {
            Self::Text { value, deadline } => {
                let is_kept = value.len() <= LONGEST_FOREIGN || Holders::may_be_several(value);
                is_kept.then_some((value, deadline))
            }
            Self::Nothing | Self::OtherType => None,
        }
    }
}

/// The result of reading every line once.
struct Survey<'v> {
    newest: Digits,
    own: Option<(usize, Line<'v>)>,
    others: usize,
    tolerance: Tolerance,
    next_end: Digits,
    others_end: Digits,
    live: usize,
    dead: usize,
    run_out: usize,
}

impl<'v> Survey<'v> {
    /// `None` if any line is not written as the module writes lines.
    fn of(value: &'v [u8], limit: Option<Deadline>, asker: Owner<'_>, now: Moment) -> Option<Self> {
        let mut survey = Self {
            newest: 0,
            own: None,
            others: 0,
            tolerance: Tolerance::UNLIMITED,
            next_end: Digits::MAX,
            others_end: 0,
            live: 0,
            dead: 0,
            run_out: 0,
        };
        let now = over_at(limit, now);
        let mut rest = value;
        while !rest.is_empty() {
            let (line, behind) = Line::first_of(rest)?;
            survey.newest = survey.newest.max(line.fence);
            if line.deadline < now {
                survey.dead = survey.dead.wrapping_add(line.len());
                survey.run_out = survey.run_out.wrapping_add(usize::from(line.has_run_out(now)));
            } else if line.is_of(asker) {
                let at = value.len().saturating_sub(rest.len());
                survey.next_end = survey.next_end.min(line.deadline);
                // A foreign client may have written an owner twice: the earlier line then counts as another owner's
                // hold.
                if let Some((_, former)) = survey.own.replace((at, line)) {
                    survey.count_other(&former);
                }
            } else {
                survey.count_other(&line);
            }
            rest = behind;
        }
        survey.live = value.len().saturating_sub(survey.dead);
        Some(survey)
    }

    #[inline(always)]
    fn count_other(&mut self, line: &Line<'_>) {
        self.others = self.others.wrapping_add(1);
        self.next_end = self.next_end.min(line.deadline);
        self.others_end = self.others_end.max(line.deadline);
        self.tolerance = self.tolerance.min(line.tolerance());
    }

    fn holders(self, limit: Option<Deadline>, now: Moment) -> Holders<'v> {
        let next_end = (self.live > 0).then(|| line::deadline_of(self.next_end));
        let lines = Lines {
            own_at: narrow(self.own.map_or(0, |(at, _)| at)),
            live: narrow(self.live),
            dead: narrow(self.dead),
            others_end: line::deadline_of(self.others_end),
            run_out: narrow(self.run_out),
            next_end: next_end.map(|end| limit.map_or(end, |limit| limit.min(end))),
            limit,
            now,
        };
        Holders {
            hold: self.own.map(|(_, line)| until(line.hold(), limit)),
            others: narrow(self.others),
            tolerance: self.tolerance.share(),
            lines: Some(lines),
        }
    }
}

/// For a place in a string, or a count of its lines. No server's string is longer than 4 GB.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The time before which a deadline is over.
fn over_at(limit: Option<Deadline>, now: Moment) -> Digits {
    let is_over = limit.is_some_and(|limit| limit.has_passed(now)) || now.millis() > line::LATEST;
    if is_over { Digits::MAX } else { line::digits_of(Deadline::from_millis(now.millis())) }
}

fn until<'v>(hold: Hold<'v>, limit: Option<Deadline>) -> Hold<'v> {
    let deadline = match (hold.deadline, limit) {
        (Some(own), Some(limit)) => Some(own.min(limit)),
        (own, limit) => own.or(limit),
    };
    Hold { deadline, ..hold }
}

#[derive(Clone, Debug)]
pub struct Holds<'v> {
    sole: Option<Hold<'v>>,
    lines: &'v [u8],
    limit: Option<Deadline>,
    over_at: Digits,
}

impl<'v> Holds<'v> {
    pub const NONE: Self = Self { sole: None, lines: &[], limit: None, over_at: 0 };

    /// The holds of a value that are in force at this moment, and the newest fence of all holds.
    pub(super) fn read(
        value: &'v [u8],
        limit: Option<Deadline>,
        now: Moment,
    ) -> (Self, Option<Fence>) {
        if let Some(newest) = newest_of_lines(value) {
            let over_at = over_at(limit, now);
            return (Self { lines: value, limit, over_at, ..Self::NONE }, line::fence_of(newest));
        }
        let hold = Hold::read(value, limit);
        (Self { sole: hold.in_force(now), ..Self::NONE }, hold.fence)
    }

    pub fn in_force(value: &'v [u8], limit: Option<Deadline>, now: Moment) -> Self {
        Self::read(value, limit, now).0
    }

    /// All holds of a value, over or not.
    pub fn all(value: &'v [u8]) -> Self {
        if newest_of_lines(value).is_some() {
            return Self { lines: value, ..Self::NONE };
        }
        Self { sole: Some(Hold::read(value, None)), ..Self::NONE }
    }
}

impl Holds<'_> {
    /// These holds, in a key with this expiry.
    pub(super) fn until(self, limit: Option<Deadline>) -> Self {
        let sole = self.sole.map(|hold| Hold { deadline: limit, ..hold });
        Self { sole, limit, ..self }
    }
}

impl<'v> Iterator for Holds<'v> {
    type Item = Hold<'v>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(sole) = self.sole.take() {
            return Some(sole);
        }
        while let Some((line, behind)) = Line::first_of(self.lines) {
            self.lines = behind;
            if line.deadline >= self.over_at {
                return Some(until(line.hold(), self.limit));
            }
        }
        None
    }
}

/// The newest fence in a value, if the module wrote the value.
pub fn newest_fence(value: &[u8]) -> Option<Fence> {
    match newest_of_lines(value) {
        Some(newest) => line::fence_of(newest),
        None => Hold::read(value, None).fence,
    }
}

/// `None` if the value is empty, or any line is not written as the module writes lines.
fn newest_of_lines(value: &[u8]) -> Option<Digits> {
    let (mut rest, mut newest) = (value, None);
    while !rest.is_empty() {
        let (line, behind) = Line::first_of(rest)?;
        (newest, rest) = (newest.max(Some(line.fence)), behind);
    }
    newest
}

/// Teaches the fence clock the fences of a value.
pub fn learn_from(value: &[u8], now: Moment, fences: &mut FenceClock) {
    learn(value, newest_fence(value), now, fences);
}

/// If the newest fence is not credible, the others are learned one by one: it must not hide them.
pub(super) fn learn(value: &[u8], newest: Option<Fence>, now: Moment, fences: &mut FenceClock) {
    let Some(newest) = newest else { return };
    fences.observe(newest, now);
    if !FenceClock::is_credible(newest, now) {
        let others = Holds::all(value).filter_map(|hold| hold.fence);
        others.filter(|fence| *fence != newest).for_each(|fence| fences.observe(fence, now));
    }
}

#[cfg(test)]
mod tests;
