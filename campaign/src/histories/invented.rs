//! Right histories: what a lock answers, as a user would describe it, whatever becomes of replies, keys and data.

use super::{ok, refused, span, unheard};
use crate::checker::{History, Rules, Span};
use crate::record::{EVERY_LOCK, Op, Record};
use testkit::Seed;

const OWNERS: usize = 3;

#[derive(Clone, Copy, Default)]
struct Owner {
    /// When its last reply had been read.
    told: u64,
    /// The fence that the owner believes it holds.
    fence: u64,
}

/// What may happen to leases in some spans.
#[derive(Clone, Copy)]
enum Fate {
    Lost,
    Forgotten,
}

#[derive(Clone, Copy, PartialEq)]
struct Hold {
    owner: u32,
    fence: u64,
    deadline: u64,
    tolerance: u32,
    /// The server has forgotten the lease, but grants the lock to nobody whom the hold does not
    /// tolerate meanwhile.
    is_forgotten: bool,
}

struct Scene {
    seed: Seed,
    now: u64,
    owners: [Owner; OWNERS],
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

/// Every hold is exclusive; or there are readers, writers, and users of pools.
const SHARES: [&[u8]; 2] = [&[1], &[0, 0, 1, 2, 2, 3]];

#[test]
fn what_a_lock_answers_is_right_however_long_it_goes_on() {
    for round in 0..20_000_u64 {
        // The sequences of neighbouring seeds must not overlap.
        let seed = Seed::of(round.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let (records, rules) = answered(seed, SHARES[round as usize % 2]);
        let history = History { records, ..History::default() };
        let violations = history.check(&rules).violations;
        if let Some(first) = violations.first() {
            panic!("round {round}, {rules:?}:\n{}", history.explain(first, &[]));
        }
    }
}

fn answered(mut seed: Seed, shares: &'static [u8]) -> (Vec<Record>, Rules) {
    let fate = *seed.pick(&[None, Some(Fate::Lost), Some(Fate::Forgotten)]);
    let count = 3 + seed.below(100);
    let (deletes, loses_replies) = (seed.below(3) == 0, seed.below(3) == 0);
    let mut scene = Scene {
        seed,
        now: 10,
        owners: [Owner::default(); OWNERS],
        shares,
        holds: Vec::new(),
        former: Vec::new(),
        last: 0,
        loses_replies,
        records: Vec::new(),
        spans: Vec::new(),
    };
    while scene.records.len() < count {
        scene.now += scene.below(4);
        if deletes && scene.below(5) == 0 {
            scene.delete();
        } else {
            scene.ask();
        }
        if let Some(fate) = fate.filter(|_| scene.below(6) == 0) {
            scene.is_disturbed(fate);
        }
    }
    let spans = scene.spans;
    let rules = match fate {
        None => Rules::default(),
        Some(Fate::Lost) => Rules { loss: spans, ..Rules::default() },
        Some(Fate::Forgotten) => Rules { forgotten: spans, ..Rules::default() },
    };
    (scene.records, rules)
}

impl Scene {
    fn below(&mut self, end: usize) -> u64 {
        self.seed.below(end) as u64
    }

    /// A moment of the request and a moment of the reply, with the present one in between.
    fn around(&mut self, earliest: u64) -> (u64, u64) {
        let (asked, told) = (self.now - self.below(6), self.now + self.below(6));
        (asked.max(earliest), told)
    }

    fn ask(&mut self) {
        let number = self.seed.below(OWNERS);
        let (owner, mut known) = (number as u32, self.owners[number]);
        self.now = self.now.max(known.told);
        let ttl = 1 + self.below(12);
        let op = *self.seed.pick(&[Op::Try, Op::Try, Op::Wait, Op::Extend, Op::Release, Op::Check]);
        let share = *self.seed.pick(self.shares);
        let tolerance = Record { share, ..ok(op, owner, 0, 0, (0, 0)) }.tolerance();
        let now = self.now;
        self.holds.retain(|hold| now < hold.deadline);
        let before = self.holds.clone();
        let mine = before.iter().position(|hold| hold.owner == owner && !hold.is_forgotten);
        let deadline = now + ttl;
        let fence = match (op, mine) {
            (Op::Try | Op::Wait, Some(mine)) if before[mine].tolerance <= tolerance => {
                let hold = &mut self.holds[mine];
                (hold.deadline, hold.tolerance) = (hold.deadline.max(deadline), tolerance);
                Some(hold.fence)
            }
            (Op::Try | Op::Wait, mine) => {
                let others = before.iter().enumerate().filter(|(index, _)| Some(*index) != mine);
                let tolerated =
                    others.clone().map(|(_, hold)| hold.tolerance).fold(tolerance, u32::min);
                let is_forgotten = before.iter().any(|hold| hold.owner == owner) && mine.is_none();
                let is_admitted = others.count() < tolerated as usize && !is_forgotten;
                is_admitted.then(|| {
                    mine.map(|mine| self.holds.remove(mine));
                    self.last += 1 + self.below(2);
                    let (fence, is_forgotten) = (self.last, false);
                    self.holds.push(Hold { owner, fence, deadline, tolerance, is_forgotten });
                    fence
                })
            }
            (Op::Extend, Some(mine)) => {
                self.holds[mine].deadline = deadline;
                Some(before[mine].fence)
            }
            (Op::Release, Some(mine)) => Some(self.holds.remove(mine).fence),
            (_, mine) => mine.map(|mine| before[mine].fence),
        };
        if self.holds != before {
            self.former = before;
        }
        let is_lost = self.loses_replies && self.below(4) == 0;
        let (asked, told) = self.around(known.told);
        known.told = told;
        // An owner that missed a reply knows no fence, so it names none afterwards.
        let told_fence = fence.filter(|_| !is_lost);
        let ttl = if matches!(op, Op::Release | Op::Check) { 0 } else { ttl as u32 };
        let record = ok(op, owner, told_fence.unwrap_or(known.fence), ttl, (asked, told));
        let record = Record { share, ..record };
        self.records.push(match fence {
            _ if is_lost => unheard(record),
            None => refused(record),
            Some(_) => record,
        });
        if let Some(fence) = told_fence {
            known.fence = if op == Op::Release { 0 } else { fence };
        }
        self.owners[number] = known;
    }

    /// Of this lock, or of every lock.
    fn delete(&mut self) {
        self.former = std::mem::take(&mut self.holds);
        let lock = if self.records.len().is_multiple_of(2) { 0 } else { EVERY_LOCK };
        let at = self.around(0);
        self.records.push(Record { lock, ..ok(Op::Delete, u32::MAX, 0, 0, at) });
    }

    /// The key is gone, or as before, or nothing has happened.
    fn is_disturbed(&mut self, fate: Fate) {
        self.now += self.below(4);
        let (from, to) = (self.now - self.below(3), self.now + self.below(3));
        self.spans.extend(span(from, to));
        match (fate, self.below(3)) {
            (_, 0) => {}
            (Fate::Forgotten, _) => self.holds.iter_mut().for_each(|hold| hold.is_forgotten = true),
            (Fate::Lost, 1) => self.holds.clear(),
            (Fate::Lost, _) => self.holds.clone_from(&self.former),
        }
    }
}
