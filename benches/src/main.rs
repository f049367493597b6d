//! `make bench`: measures Leasehold and what its users might use instead.
//!
//! One run measures one server: the one that `LEASEHOLD_SERVER` names, or the first in PATH. `docs/benchmarks.md` says
//! what is measured and how. The full form writes its tables to `target/benchmarks/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a measurement stops at the first surprise"
)]

mod bench;

fn main() {
    bench::run(std::env::args().skip(1));
}
