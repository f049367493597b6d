//! How many may hold a lock at a time.

/// The most holders at a time that a hold tolerates, itself included. The smallest share of all holds counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    pub const EXCLUSIVE: Self = Self(1);

    pub const UNLIMITED: Self = Self(u32::MAX);

    /// The largest share with a limit.
    pub const LARGEST: u32 = 99_999;

    /// 0 means no limit. `None` above [`Share::LARGEST`].
    pub fn new(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::UNLIMITED),
            1..=Self::LARGEST => Some(Self(number)),
            _ => None,
        }
    }

    /// The number that clients give, and that is written.
    pub const fn number(self) -> u32 {
        if self.0 == Self::UNLIMITED.0 { 0 } else { self.0 }
    }

    /// Whether this many may hold the lock.
    pub fn tolerates(self, holders: usize) -> bool {
        self == Self::UNLIMITED || u32::try_from(holders).is_ok_and(|holders| holders <= self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_of_holders_or_0_for_no_limit() {
        assert_eq!(Share::new(0), Some(Share::UNLIMITED));
        assert_eq!(Share::new(1), Some(Share::EXCLUSIVE));
        assert_eq!(Share::new(99_999).map(Share::number), Some(99_999));
        assert_eq!(Share::new(100_000), None);
        assert_eq!(Share::UNLIMITED.number(), 0);
        assert!(Share::EXCLUSIVE < Share::new(5).unwrap());
        assert!(Share::new(99_999).unwrap() < Share::UNLIMITED);
    }
}
