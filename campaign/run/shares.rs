//! How many holders at a time clients tolerate, lock by lock (`SHARE`).

use testkit::Seed;

const EXCLUSIVE: &[u8] = &[1];

/// Many readers, and a writer now and then.
const READERS: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 1];

const POOL: &[u8] = &[5];

/// Two versions of a program disagree about the size of a pool.
const PARTED_POOL: &[u8] = &[2, 3, 3, 3];

/// Anything, so that owners that ask again often tolerate more or fewer.
const MIXED: &[u8] = &[0, 1, 2, 3, 5];

/// What clients ask for.
#[derive(Clone, Copy)]
pub(crate) struct Shares {
    kinds: &'static [&'static [u8]],
    first: usize,
}

/// Locks of every kind, of which many are exclusive.
pub(crate) const ANY: Shares =
    Shares { kinds: &[EXCLUSIVE, READERS, EXCLUSIVE, MIXED, POOL], first: 0 };

/// No lock is always exclusive.
pub(crate) const SHARED: Shares = Shares { kinds: &[READERS, POOL, MIXED, PARTED_POOL], first: 0 };

impl Shares {
    /// The same kinds, which begin with another one.
    pub(crate) fn shuffled(self, seed: &mut Seed) -> Self {
        Self { first: seed.below(self.kinds.len()), ..self }
    }

    /// Whether nobody shares this lock.
    pub(crate) fn is_exclusive(self, lock: u32) -> bool {
        self.of(lock) == EXCLUSIVE
    }

    /// The shares that clients ask for at this lock.
    pub(crate) fn of(self, lock: u32) -> &'static [u8] {
        self.kinds[(lock as usize + self.first) % self.kinds.len()]
    }
}
