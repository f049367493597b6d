//! Persistence under faults: a server is killed, its disk is full, its files are damaged, it saves all the time, or it is
//! loading what another one sends.
//!
//! What was answered stays true as far as the files go, nothing is answered that is not so, and fences grow in any case:
//! see `docs/safety.md`.

mod book;
mod busy;
mod disk;
mod killed;
mod loading;
mod saving;
mod truncated;

const LONG: u64 = 60_000;
