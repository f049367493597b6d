//! What a client sends, and the reply.
//!
//! May import `clients` and what is below it.

pub(crate) mod call;
pub(crate) mod command_table;
pub(crate) mod entry;
pub(crate) mod getkeys;
pub(crate) mod guarded;
pub(crate) mod held_reply;
pub(crate) mod register;
