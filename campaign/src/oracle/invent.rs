//! Invents random small histories: the replies of a lock, sometimes altered.

use super::chance::Chance;
use crate::checker::{Rules, Span};
use crate::record::{EVERY_LOCK, Op, Outcome, Record};

const OWNERS: u32 = 3;

#[derive(Clone, Copy, Default)]
struct Owner {
    /// When its last reply had been read.
    told: i64,
    /// The fence that the owner believes it holds.
    fence: u64,
}

/// What may happen to leases in some spans.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Lost,
    Forgotten,
}

#[derive(Clone, Copy, PartialEq)]
struct Hold {
    owner: u32,
    fence: u64,
    deadline: i64,
    tolerance: u32,
    /// The server has forgotten the lease, but grants the lock to nobody whom the hold does not
    /// tolerate meanwhile.
    is_forgotten: bool,
}

struct Scene<'c> {
    chance: &'c mut Chance,
    now: i64,
    owners: [Owner; OWNERS as usize],
    /// The shares that its owners may ask for.
    shares: &'static [u8],
    holds: Vec<Hold>,
    /// The holds before the last change.
    former: Vec<Hold>,
    last: u64,
    loses_replies: bool,
    records: Vec<Record>,
    spans: Vec<Span>,
}

/// Every hold is exclusive.
pub(super) const EXCLUSIVE: &[u8] = &[1];

/// Readers, writers, and users of pools.
pub(super) const SHARED: &[u8] = &[0, 0, 1, 2, 2, 3];

/// Histories in which only replies are lost.
pub(super) fn history(chance: &mut Chance, shares: &'static [u8]) -> (Vec<Record>, Rules) {
    let (records, _) = invented(chance, None, shares);
    (records, excused(Vec::new(), None, chance.below(2).into()))
}

/// Histories in which the server loses data, or forgets leases.
pub(super) fn disturbed(chance: &mut Chance, shares: &'static [u8]) -> (Vec<Record>, Rules) {
    let fate = if chance.one_in(2) { Fate::Lost } else { Fate::Forgotten };
    let (records, mut spans) = invented(chance, Some(fate), shares);
    if chance.one_in(3) {
        // Without its span the history may be wrong.
        spans.pop();
    }
    (records, excused(spans, Some(fate), chance.below(2).into()))
}

/// Right histories that are too long for the search.
pub(super) fn answered(chance: &mut Chance, shares: &'static [u8]) -> (Vec<Record>, Rules) {
    let fate = [None, Some(Fate::Lost), Some(Fate::Forgotten)][chance.below(3) as usize];
    let count = 10 + chance.below(100) as usize;
    let (records, spans) = answers(chance, fate, count, shares);
    (records, excused(spans, fate, 0))
}

fn invented(
    chance: &mut Chance,
    fate: Option<Fate>,
    shares: &'static [u8],
) -> (Vec<Record>, Vec<Span>) {
    let count = 3 + chance.below(7) as usize;
    let (mut records, spans) = answers(chance, fate, count, shares);
    for _ in 0..chance.below(8) {
        spoil(&mut records, chance);
    }
    (records, spans)
}

fn answers(
    chance: &mut Chance,
    fate: Option<Fate>,
    count: usize,
    shares: &'static [u8],
) -> (Vec<Record>, Vec<Span>) {
    let deletes = chance.one_in(3);
    let loses_replies = chance.one_in(3);
    let mut scene = Scene {
        chance,
        now: 10,
        owners: [Owner::default(); OWNERS as usize],
        shares,
        holds: Vec::new(),
        former: Vec::new(),
        last: 0,
        loses_replies,
        records: Vec::new(),
        spans: Vec::new(),
    };
    while scene.records.len() < count {
        scene.now += i64::from(scene.chance.below(4));
        if deletes && scene.chance.one_in(5) {
            scene.delete();
        } else {
            scene.ask();
        }
        if let Some(fate) = fate.filter(|_| scene.chance.one_in(6)) {
            scene.is_disturbed(fate);
        }
    }
    (scene.records, scene.spans)
}

fn excused(spans: Vec<Span>, fate: Option<Fate>, late_millis: i64) -> Rules {
    let rules = Rules { late_millis, ..Rules::default() };
    match fate {
        None => rules,
        Some(Fate::Lost) => Rules { loss: spans, ..rules },
        Some(Fate::Forgotten) => Rules { forgotten: spans, ..rules },
    }
}

impl Scene<'_> {
    fn ask(&mut self) {
        let number = self.chance.below(OWNERS);
        let mut owner = self.owners[number as usize];
        self.now = self.now.max(owner.told);
        let ttl = 1 + self.chance.below(12);
        let ops = [Op::Try, Op::Try, Op::Wait, Op::Extend, Op::Release, Op::Check];
        let op = ops[self.chance.below(6) as usize];
        let share = self.shares[self.chance.below(self.shares.len() as u32) as usize];
        let tolerance = Record { share, ..record(0, 0) }.tolerance();
        let now = self.now;
        self.holds.retain(|hold| now < hold.deadline);
        let before = self.holds.clone();
        let mine = self.holds.iter().position(|hold| hold.owner == number && !hold.is_forgotten);
        let fence_of = |mine: Option<usize>| mine.map(|mine| before[mine].fence);
        let deadline = self.now + i64::from(ttl);
        let fence = match (op, mine) {
            (Op::Try | Op::Wait, Some(mine)) if self.holds[mine].tolerance <= tolerance => {
                let hold = &mut self.holds[mine];
                (hold.deadline, hold.tolerance) = (hold.deadline.max(deadline), tolerance);
                Some(hold.fence)
            }
            (Op::Try | Op::Wait, mine) => {
                let others = before.iter().enumerate().filter(|(index, _)| Some(*index) != mine);
                let tolerances = others.clone().map(|(_, hold)| hold.tolerance);
                let is_forgotten = before.iter().any(|hold| hold.owner == number) && mine.is_none();
                let admitted =
                    others.count() < tolerances.fold(tolerance, u32::min) as usize && !is_forgotten;
                admitted.then(|| {
                    mine.map(|mine| self.holds.remove(mine));
                    self.last += 1 + u64::from(self.chance.below(2));
                    let (owner, fence, is_forgotten) = (number, self.last, false);
                    self.holds.push(Hold { owner, fence, deadline, tolerance, is_forgotten });
                    self.last
                })
            }
            (Op::Extend, Some(mine)) => {
                self.holds[mine].deadline = deadline;
                Some(self.holds[mine].fence)
            }
            (Op::Release, Some(mine)) => Some(self.holds.remove(mine).fence),
            (Op::Check, mine) => fence_of(mine),
            _ => None,
        };
        if self.holds != before {
            self.former = before;
        }
        let lost = self.loses_replies && self.chance.one_in(4);
        let outcome = match fence {
            _ if lost => Outcome::Unknown,
            Some(_) => Outcome::Ok,
            None => Outcome::Refused,
        };
        let asked = (self.now - i64::from(self.chance.below(6))).max(owner.told);
        let told = self.now + i64::from(self.chance.below(6));
        // An owner that missed a reply knows no fence, so it names none afterwards.
        let known = if outcome == Outcome::Ok { fence.unwrap_or(0) } else { owner.fence };
        let ttl = if op == Op::Release || op == Op::Check { 0 } else { ttl };
        self.record(Record {
            fence: known,
            ttl,
            owner: number,
            op,
            outcome,
            share,
            ..record(asked, told)
        });
        owner.told = told;
        if outcome == Outcome::Ok {
            owner.fence = if op == Op::Release { 0 } else { known };
        }
        self.owners[number as usize] = owner;
    }

    fn delete(&mut self) {
        self.former = std::mem::take(&mut self.holds);
        let asked = self.now - i64::from(self.chance.below(6));
        let told = self.now + i64::from(self.chance.below(6));
        let op = Op::Delete;
        // A deletion of this lock or of every lock.
        let lock = if self.records.len().is_multiple_of(2) { 0 } else { EVERY_LOCK };
        self.record(Record { owner: u32::MAX, op, lock, ..record(asked, told) });
    }

    /// The key is gone, or as before, or nothing has happened.
    fn is_disturbed(&mut self, fate: Fate) {
        self.now += i64::from(self.chance.below(4));
        let moment = |at: i64| u64::try_from(at * 1_000).unwrap();
        let from = moment(self.now - i64::from(self.chance.below(3)));
        let to = moment(self.now + i64::from(self.chance.below(3)));
        self.spans.push(Span { from, to });
        match (fate, self.chance.below(3)) {
            (_, 0) => {}
            (Fate::Forgotten, _) => self.holds.iter_mut().for_each(|hold| hold.is_forgotten = true),
            (Fate::Lost, 1) => self.holds.clear(),
            (Fate::Lost, _) => self.holds.clone_from(&self.former),
        }
    }

    fn record(&mut self, record: Record) {
        self.records.push(record);
    }
}

pub(super) fn record(asked: i64, told: i64) -> Record {
    Record {
        asked: u64::try_from(asked * 1_000).unwrap(),
        told: u64::try_from(told * 1_000).unwrap(),
        fence: 0,
        ttl: 0,
        owner: 0,
        lock: 0,
        op: Op::Try,
        outcome: Outcome::Ok,
        server: 0,
        share: 1,
        set: 0,
        is_ticket: false,
        is_bound: false,
    }
}

/// Alters a record. The history may still be right.
fn spoil(records: &mut Vec<Record>, chance: &mut Chance) {
    let mut any = || chance.below(u32::try_from(records.len()).unwrap()) as usize;
    let (one, other) = (any(), any());
    // If all shares are 1, altering a share is left out.
    let kinds = if records.iter().any(|record| record.share != 1) { 9 } else { 8 };
    match chance.below(kinds) {
        0 => records[one].fence = records[other].fence,
        1 if records[one].outcome == Outcome::Ok && records[one].op != Op::Delete => {
            records[one].outcome = Outcome::Refused;
        }
        2 => {
            let fence = records[other].fence;
            if fence != 0 && records[one].op != Op::Delete {
                records[one].outcome = Outcome::Ok;
                records[one].fence = fence;
            }
        }
        3 => {
            let (fence, with) = (records[one].fence, records[other].fence);
            records[one].fence = with;
            records[other].fence = fence;
        }
        4 if records[one].ttl != 0 => records[one].ttl += chance.below(10),
        5 if records.len() > 2 => {
            records.remove(one);
        }
        // An earlier reply, or a later request.
        6 => records[one].told = records[one].asked,
        7 => records[one].asked = records[one].told,
        8 => records[one].share = records[other].share,
        _ => {}
    }
    for record in &mut *records {
        let tells = matches!(record.op, Op::Try | Op::Wait | Op::Check);
        // Every success has a fence.
        if tells && record.outcome == Outcome::Ok && record.fence == 0 {
            record.outcome = Outcome::Refused;
        }
        if record.op == Op::Delete {
            record.fence = 0;
        }
    }
    note_what_owners_believe(records);
}

/// Without a fence in the reply, a record has the fence that the owner believes it holds.
fn note_what_owners_believe(records: &mut [Record]) {
    let mut held = [0; OWNERS as usize];
    for record in records.iter_mut().filter(|record| record.op != Op::Delete) {
        let held = &mut held[record.owner as usize];
        let names_none = matches!(record.op, Op::Try | Op::Wait) && record.outcome != Outcome::Ok;
        if record.fence == 0 || names_none {
            record.fence = *held;
        }
        match record.outcome {
            Outcome::Ok if record.op == Op::Release => *held = 0,
            Outcome::Ok => *held = record.fence,
            _ => {}
        }
    }
}
