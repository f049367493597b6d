//! The only place that draws randomness.

use leasehold_core::command::acquire::MintedOwner;
use leasehold_core::plant::{Bug, planted};

/// A random UUID (version 4), as text.
pub(super) fn mint_owner() -> MintedOwner {
    let mut text = [0; size_of::<MintedOwner>()];
    let bytes = if planted(Bug::MintedOwnersRepeat) { [7; 16] } else { rand::random() };
    uuid::Builder::from_random_bytes(bytes).into_uuid().hyphenated().encode_lower(&mut text);
    text
}
