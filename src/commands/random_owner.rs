//! The only place that draws random numbers.

use leasehold_core::command::acquire::MintedOwner;

/// A random UUID (version 4), as text.
pub(crate) fn mint_owner() -> MintedOwner {
    let mut text = [0; size_of::<MintedOwner>()];
    uuid::Builder::from_random_bytes(rand::random())
        .into_uuid()
        .hyphenated()
        .encode_lower(&mut text);
    text
}
