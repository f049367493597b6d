//! What a client sends, and the reply.
//!
//! May import `clients` and what is below it.

pub(crate) mod call;
pub(crate) mod command_table;
pub(crate) mod entry;
pub(crate) mod guarded;
pub(crate) mod guarded_keys;
pub(crate) mod held_reply;
pub(crate) mod keys;
pub(crate) mod random_owner;
pub(crate) mod register;
