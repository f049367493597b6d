//! Who is told of changes; the fence clock, which is told to others.
//!
//! May import the files beside this folder, and `ffi`.

pub(crate) mod fence_clock;
pub(crate) mod listeners;
pub(crate) mod replicate;
