//! L1: who certainly holds the lock when it is granted.
//!
//! ```text
//!   live holds + 1 ≤ the smallest share among them and the asker
//! ```
//!
//! Each hold counts until the earliest moment at which it can have ended, with the most holders that
//! it can have tolerated until then. So every counted holder was certainly there. A grant that they
//! exclude until after its reply is impossible.

use super::Rules;
use super::deletes::Deletes;

/// A hold that was granted, with the least that is certain about it.
pub(super) struct Held {
    pub(super) owner: u32,
    pub(super) fence: u64,
    /// When its first request was sent, in microseconds.
    pub(super) asked: u64,
    /// Its earliest beginning.
    pub(super) begun: i64,
    /// The last moment at which it certainly existed.
    pub(super) last: i64,
    /// Its earliest end.
    pub(super) free: i64,
    /// The most holders that it tolerated at first, and the moments from which it tolerated more.
    pub(super) tolerance: u32,
    pub(super) loosened: Vec<(i64, u32)>,
    /// The records that show this.
    pub(super) proof: Vec<u32>,
}

/// An owner that is granted the lock.
pub(super) struct Asker {
    pub(super) owner: u32,
    /// When it was told, in microseconds and in milliseconds.
    pub(super) told: u64,
    pub(super) told_millis: i64,
    /// The least and the most holders that it tolerates.
    pub(super) tightest: u32,
    pub(super) loosest: u32,
    /// It may have asked for several locks. Then one new fence grants all of them, even those that it held before.
    pub(super) of_several: bool,
}

/// The earliest moment of a grant.
pub(super) struct Admitted {
    pub(super) at: i64,
    /// The grant requires that somebody deleted the lock.
    deleted: bool,
}

/// The holds that may matter to later grants.
#[derive(Default)]
pub(super) struct Holders {
    all: Vec<Held>,
    /// The last grant: when its first request was sent, and its earliest moment.
    last: Option<(u64, i64)>,
}

/// Earlier than any end of a hold.
const NEVER: i64 = i64::MIN;

impl Held {
    fn tolerates(&self, at: i64) -> u32 {
        let loosened = self.loosened.iter().filter(|(from, _)| *from <= at);
        loosened.map(|(_, tolerance)| *tolerance).fold(self.tolerance, u32::max)
    }

    /// Whether the same owner may have got the next hold in place of this one, because the next
    /// tolerates fewer or is for several locks.
    fn gives_way_to(&self, asker: &Asker) -> bool {
        asker.of_several || asker.tightest < self.tolerates(i64::MAX)
    }
}

impl Holders {
    /// The earliest moment at which the asker may have been granted the lock. Ignores a hold if data
    /// may have been lost since it was granted.
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
        // Otherwise somebody deleted it, after the last certain moment of each hold that was in the way.
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

    /// The fences of the holders that were in the way at that moment, and the records that show it.
    pub(super) fn blame(&self, asker: &Asker, rules: &Rules, at: i64) -> (Vec<u64>, Vec<u32>) {
        let in_the_way: Vec<_> = self.counted(asker, rules).filter(|held| held.free > at).collect();
        let fences = in_the_way.iter().map(|held| held.fence).collect();
        (fences, in_the_way.iter().flat_map(|held| held.proof.iter().copied()).collect())
    }

    /// Forgets the holders that were gone when the asker was granted the lock. If that needed a
    /// deletion, it may have ended any of the holds, so all are forgotten.
    pub(super) fn settle(&mut self, asker: &Asker, admitted: &Admitted) {
        let stays = |held: &Held| held.free > admitted.at && held.owner != asker.owner;
        self.all.retain(|held| !admitted.deleted && stays(held));
    }

    /// After an impossible grant, later grants are compared only with that grant.
    pub(super) fn begin_anew(&mut self, held: Held) {
        self.last = None;
        self.all = vec![held];
    }

    pub(super) fn add(&mut self, held: Held) {
        self.last = Some((held.asked, held.begun));
        self.all.push(held);
    }
}

/// Whether the asker is admitted at `at`, if a deletion has ended every hold that was last certain by `gone`.
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
