//! Which runtime something belongs to.
//!
//! A client in a static is used from several runtimes at once. Each drives its own connections and
//! has its own keeper, because one may stand still, or end, while the others go on.

use tokio::runtime::{Handle, Id};

/// A runtime; none outside of any. A runtime that has ended may have had the same id as one that
/// was started after it, so whatever is found by this may be a leftover that has stopped working.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Home(Option<Id>);

impl Home {
    /// The runtime that this is called on.
    pub(crate) fn here() -> Self {
        Self(Handle::try_current().ok().map(|runtime| runtime.id()))
    }
}
