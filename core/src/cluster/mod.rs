//! What a cluster node is told of hash slots: by commands that move them, and by the server. Nothing here knows a
//! server.

mod command;
mod nodes;
mod slot;
mod slot_set;

pub use command::{Said, said};
pub use nodes::OwnSlots;
pub use slot::Slot;
pub use slot_set::SlotSet;
