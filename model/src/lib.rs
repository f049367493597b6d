//! A model of what Leasehold promises beyond one server, which is searched exhaustively and not by chance.
//!
//! The promises on one server are tried by the simulation in `leasehold-core`, by tests on real servers and by the campaign.
//! Beyond one server, what matters is which of two things comes first: a grant and its replication, a death and a
//! promotion, a lease that ends here and one that still runs there. Real servers and random schedules meet few of these
//! orders. This crate goes through all of them, for a world that is small enough:
//!
//! - two servers, a and b: either a primary and its replica, or two nodes of a cluster with one slot between them;
//! - two clients, alice and bob, who want one lock, and three grants of it;
//! - clocks that count whole seconds, and differ by as much as the case allows.
//!
//! ```text
//!   cases      which world, what is checked in it, and whether it must hold
//!     │
//!   search     every step from every world, breadth first, until there is none that was not seen
//!     │
//!   world      the two servers, the link between them, the slot, the two clients; which steps are possible
//!     │
//!   server     one server: its key, its fence clock, its history. It calls leasehold-core.
//! ```
//!
//! What is decided is decided by the code that ships: [`server`] hands the value of the key to `leasehold_core::lock`, and the
//! fence, the end of the lease, the quarantine and what is learned of other fences come from there. What the module does
//! around that, in `src`, is written once more here, and each [step](step::Step) has the name of the function that does it; a test
//! looks these functions up in the sources.
//!
//! A world that was seen is kept as it is. Keeping only a hash of each would be smaller, and it would leave it to chance whether two worlds
//! are taken for one. The search is a hundred lines, and needs nothing that the core does not. `stateright` has more to
//! offer (actors, linearizability, an explorer in the browser), but it keeps hashes of 64 bits, and brings a web server and forty
//! crates.
//!
//! Three things are not tried in every order, because nobody could see the difference. A replica receives what it was sent only once
//! its primary is gone, or may be replaced. Of two clients that hold nothing and will have new names, alice asks. And nothing is done
//! once all grants are made, since no promise can be broken any more.
//!
//! What is left out: queues, shares, tickets and bindings, which are of one server; more servers, clients and grants; clocks that
//! are set while a server runs; requests that arrive late.
//!
//! How to read it: [`cases`] first, then [`step`], [`world`] and [`server`]. `cargo test -p leasehold-model` runs all cases, plants mistakes in the
//! rules and sees that they are found, and compares what came of it with `docs/verification/`.

#![forbid(unsafe_code)]

pub mod both;
pub mod cases;
pub mod page;
pub mod search;
pub mod server;
pub mod setting;
pub mod step;
pub mod timeline;
pub mod world;

#[cfg(test)]
mod tests;
