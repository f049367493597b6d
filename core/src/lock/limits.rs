//! The limits that an operator sets.

use super::lease::Ttl;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_ttl: Ttl,
    /// How many may hold a lock at a time, whatever their shares.
    pub max_holders: usize,
}
