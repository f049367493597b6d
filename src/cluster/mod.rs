//! What a node of a cluster is told of hash slots: by commands that move them, and by the server.
//! Nothing here knows a server.

mod command;
mod nodes;
mod slot;
mod slot_set;

pub(crate) use command::{Said, said};
pub(crate) use nodes::OwnSlots;
pub(crate) use slot::Slot;
pub(crate) use slot_set::SlotSet;
