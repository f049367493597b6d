//! L1: who holds the lock for certain when it is granted.
//!
//! ```text
//!   live holds + 1 ≤ the smallest share among them and the one who asks
//! ```
//!
//! Each hold is known by the earliest moment at which it can have ended, and by the most that it can
//! have tolerated until then. So whoever is counted was there, and a grant that they rule out until
//! after its reply cannot have been.

use super::Rules;
use super::deletes::Deletes;

/// A hold that was granted, as it must have been at least.
pub(super) struct Held {
    pub(super) owner: u32,
    pub(super) fence: u64,
    /// The moment of its first record, in microseconds.
    pub(super) asked: u64,
    /// When it began, at the earliest.
    pub(super) begun: i64,
    /// The last moment that was reached in it.
    pub(super) last: i64,
    /// When it ended, at the earliest.
    pub(super) free: i64,
    /// The most holders that it tolerated at first, and from later moments on.
    pub(super) tolerance: u32,
    pub(super) loosened: Vec<(i64, u32)>,
    /// The records that show that.
    pub(super) proof: Vec<u32>,
}

/// One who is granted the lock.
pub(super) struct Asker {
    pub(super) owner: u32,
    /// When it was told, in microseconds and in milliseconds.
    pub(super) told: u64,
    pub(super) told_millis: i64,
    /// The least and the most holders that it tolerates.
    pub(super) tightest: u32,
    pub(super) loosest: u32,
    /// It may have asked for several locks, and is granted all of them by a new fence if it held some.
    pub(super) of_several: bool,
}

/// When a grant was made, at the earliest.
pub(super) struct Admitted {
    pub(super) at: i64,
    /// Somebody must have deleted the lock for that.
    deleted: bool,
}

/// The holds that may matter to later grants.
#[derive(Default)]
pub(super) struct Holders {
    all: Vec<Held>,
    /// The last grant: the moment of its first record, and when it was made at the earliest.
    last: Option<(u64, i64)>,
}

/// No hold has ended before this moment.
const NEVER: i64 = i64::MIN;

impl Held {
    fn tolerates(&self, at: i64) -> u32 {
        let loosened = self.loosened.iter().filter(|(from, _)| *from <= at);
        loosened.map(|(_, tolerance)| *tolerance).fold(self.tolerance, u32::max)
    }

    /// Whether the same owner may have got the next hold in place of this one, because it tolerates
    /// fewer or asks for several locks.
    fn gives_way_to(&self, asker: &Asker) -> bool {
        asker.of_several || asker.tightest < self.tolerates(i64::MAX)
    }
}

impl Holders {
    /// The earliest moment at which one may have been granted the lock. Where data may have been
    /// lost since a hold was granted, that hold does not count.
    pub(super) fn admit(
        &self,
        asker: &Asker,
        rules: &Rules,
        deletes: &mut Deletes<'_>,
    ) -> Admitted {
        // Grants are made in the order of their fences.
        let last = self.last.filter(|(asked, _)| !rules.is_lossy(*asked, asker.told));
        let mut floor = last.map_or(NEVER, |(_, begun)| begun);
        let live: Vec<&Held> =
            self.counted(asker, rules).filter(|held| held.free > floor).collect();
        if let Some(own) = live.iter().find(|held| held.owner == asker.owner) {
            floor = floor.max(own.last);
        }
        if fits(&live, asker, floor, NEVER) {
            return Admitted { at: floor, deleted: false };
        }
        let changes = live
            .iter()
            .flat_map(|held| held.loosened.iter().map(|(from, _)| *from).chain([held.free]));
        let mut changes: Vec<_> = changes.filter(|at| *at > floor).collect();
        changes.sort_unstable();
        let free = changes.iter().find(|at| fits(&live, asker, **at, NEVER));
        let free = *free.expect("a lock that nobody holds is granted");
        // Or it was deleted, after the last moment that was reached in any hold that was in the way.
        let by = asker.told_millis.min(free - 1);
        let mut lasts: Vec<_> = live.iter().map(|held| held.last).collect();
        lasts.sort_unstable();
        let last = lasts.iter().find(|last| fits(&live, asker, by, **last));
        let last = *last.expect("a lock that was deleted is granted");
        let at = deletes.free(last, free, asker.told_millis);
        Admitted { at: floor.max(at), deleted: free > asker.told_millis && at < free }
    }

    fn counted(&self, asker: &Asker, rules: &Rules) -> impl Iterator<Item = &Held> {
        self.all.iter().filter(|held| !rules.is_lossy(held.asked, asker.told))
    }

    /// The fences of those who were in the way at that moment, and the records that show it.
    pub(super) fn blame(&self, asker: &Asker, rules: &Rules, at: i64) -> (Vec<u64>, Vec<u32>) {
        let in_the_way: Vec<_> = self.counted(asker, rules).filter(|held| held.free > at).collect();
        let fences = in_the_way.iter().map(|held| held.fence).collect();
        (fences, in_the_way.iter().flat_map(|held| held.proof.iter().copied()).collect())
    }

    /// Forgets who has gone when this one was granted the lock. Of those who were there, a deletion
    /// may have ended any hold.
    pub(super) fn settle(&mut self, asker: &Asker, admitted: &Admitted) {
        let stays = |held: &Held| held.free > admitted.at && held.owner != asker.owner;
        self.all.retain(|held| !admitted.deleted && stays(held));
    }

    /// After a grant that cannot have been, what follows is compared with it alone.
    pub(super) fn begin_anew(&mut self, held: Held) {
        self.last = None;
        self.all = vec![held];
    }

    pub(super) fn add(&mut self, held: Held) {
        self.last = Some((held.asked, held.begun));
        self.all.push(held);
    }
}

/// Whether one is admitted at this moment, if a deletion has ended every hold of which nothing was
/// seen after `gone`.
fn fits(live: &[&Held], asker: &Asker, at: i64, gone: i64) -> bool {
    let (mut holders, mut tolerance) = (1, asker.loosest);
    for held in live.iter().filter(|held| held.free > at && held.last > gone) {
        if held.owner != asker.owner {
            holders += 1;
            tolerance = tolerance.min(held.tolerates(at));
        } else if !held.gives_way_to(asker) {
            return false;
        }
    }
    holders <= tolerance
}
