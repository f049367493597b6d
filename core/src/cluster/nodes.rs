//! Reads the slots of the answering node from `CLUSTER NODES`.

use super::{Slot, SlotSet};

/// The fields of a line: id, address, flags, primary, ping, pong, epoch, link, and slots.
const FLAGS: usize = 2;
const SLOTS: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnSlots {
    /// The slots that the node has and is not migrating away.
    pub settled: SlotSet,
    /// The slots being imported or migrated: `[7-<-source]` and `[7->-target]`.
    pub open: SlotSet,
}

impl OwnSlots {
    /// `None` if no line is about the node itself.
    pub fn read(nodes: &[u8]) -> Option<Self> {
        let nodes = str::from_utf8(nodes).ok()?;
        let line = nodes.lines().find(|line| {
            let flags = line.split(' ').nth(FLAGS).unwrap_or_default();
            flags.split(',').any(|flag| flag == "myself")
        })?;
        let mut own = Self { settled: SlotSet::new(), open: SlotSet::new() };
        for word in line.split(' ').skip(SLOTS) {
            if let Some(open) = word.strip_prefix('[') {
                let slot = open.split('-').next().and_then(|slot| Slot::read(slot.as_bytes()));
                slot.into_iter().for_each(|slot| own.open.insert(slot));
            } else {
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                if let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) {
                    let slots = (first..=last).map_while(Slot::new);
                    slots.for_each(|slot| own.settled.insert(slot));
                }
            }
        }
        own.settled.remove_all(&own.open);
        Some(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(set: &SlotSet) -> Vec<u16> {
        (0..Slot::COUNT).filter(|&number| set.contains(Slot::new(number).unwrap())).collect()
    }

    #[test]
    fn the_line_of_the_node_itself_is_read() {
        let own = OwnSlots::read(
            b"a 127.0.0.1:1@11 master - 0 1 1 connected 0-99 [100-<-b]\n\
              b 127.0.0.1:2@12,host,shard-id=x myself,master - 0 0 2 connected 100-102 104 110-111 \
              [104->-a] [200-<-a]\n\
              c 127.0.0.1:3@13 slave a 0 1 1 connected\n",
        )
        .unwrap();
        assert_eq!(numbers(&own.settled), [100, 101, 102, 110, 111]);
        assert_eq!(numbers(&own.open), [104, 200]);
    }

    #[test]
    fn a_node_without_slots_has_none_and_what_is_no_list_is_not_read() {
        let own = OwnSlots::read(b"c 127.0.0.1:3@13 myself,slave a 0 1 1 connected\n").unwrap();
        assert!(own.settled.is_empty() && own.open.is_empty());
        for text in ["", "a b", "a 127.0.0.1:1@11 master - 0 1 1 connected 0-99", "myself"] {
            assert!(OwnSlots::read(text.as_bytes()).is_none(), "{text:?}");
        }
        let odd = OwnSlots::read(b"a b myself - 0 0 1 connected x 5-x 9-7 16383-20000 [ [x->-a]");
        assert_eq!(numbers(&odd.unwrap().settled), [16_383]);
    }
}
