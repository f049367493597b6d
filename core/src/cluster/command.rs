//! What a command says of slots, whether or not the server will execute it.

use super::Slot;

/// What the command would do if the server executed it.
#[derive(Debug)]
pub enum Said<W> {
    Nothing,
    /// A slot may come to this node, or its migration away may be cancelled.
    MayCome(Slot),
    /// Several slots may come: all or none.
    MayComeTogether(Ranges<W>),
    /// Slots may leave.
    MayGo,
}

/// The slots that the rest of a command names, as ranges of a first and a last slot.
#[derive(Debug)]
pub struct Ranges<W> {
    words: W,
    /// Whether two words name a range. Otherwise one word names one slot.
    in_pairs: bool,
}

/// Reads the words of a command. `us` returns the name of this node, and is rarely called.
pub fn said<'w, W: Iterator<Item = &'w [u8]>>(
    mut words: W,
    us: impl FnOnce() -> &'w [u8],
) -> Said<W> {
    let name = words.next().unwrap_or_default();
    if !is(name, b"cluster") {
        return Said::Nothing;
    }
    let subcommand = words.next().unwrap_or_default();
    if is(subcommand, b"setslot") {
        let slot = words.next().and_then(Slot::read);
        let (what, whose) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let comes =
            is(what, b"importing") || is(what, b"stable") || (is(what, b"node") && is(whose, us()));
        return slot.filter(|_| comes).map_or(Said::MayGo, Said::MayCome);
    }
    if is(subcommand, b"addslots") {
        return Said::MayComeTogether(Ranges { words, in_pairs: false });
    }
    if is(subcommand, b"addslotsrange") {
        return Said::MayComeTogether(Ranges { words, in_pairs: true });
    }
    let goes: [&[u8]; 3] = [b"delslots", b"delslotsrange", b"flushslots"];
    if goes.iter().any(|command| is(subcommand, command)) { Said::MayGo } else { Said::Nothing }
}

fn is(word: &[u8], known: &[u8]) -> bool {
    word.eq_ignore_ascii_case(known)
}

/// Ends at the first word that is not a slot: the server refuses such a command as a whole.
impl<'w, W: Iterator<Item = &'w [u8]>> Iterator for Ranges<W> {
    type Item = (Slot, Slot);

    fn next(&mut self) -> Option<Self::Item> {
        let first = Slot::read(self.words.next()?)?;
        let last = if self.in_pairs { Slot::read(self.words.next()?)? } else { first };
        Some((first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: &[u8] = b"0123456789abcdef0123456789abcdef01234567";

    /// The meaning, and the slots.
    fn meaning(command: &str) -> String {
        let words = command.split(' ').map(str::as_bytes);
        match said(words, || US) {
            Said::Nothing => "nothing".to_owned(),
            Said::MayGo => "goes".to_owned(),
            Said::MayCome(slot) => format!("{} comes", slot.number()),
            Said::MayComeTogether(ranges) => ranges
                .map(|(first, last)| format!("{}-{} comes", first.number(), last.number()))
                .collect::<Vec<_>>()
                .join(", "),
        }
    }

    #[test]
    fn commands_that_move_slots_are_told_from_those_that_ask() {
        let us = String::from_utf8_lossy(US);
        for (command, expected) in [
            (&*format!("CLUSTER SETSLOT 7 node {us}"), "7 comes"),
            ("CLUSTER SETSLOT 7 STABLE", "7 comes"),
            (&format!("CLUSTER SETSLOT 7 IMPORTING {us}"), "7 comes"),
            ("cluster setslot 16383 importing somebodyelse timeout 5", "16383 comes"),
            ("CLUSTER SETSLOT 7 NODE somebodyelse", "goes"),
            (&format!("CLUSTER SETSLOT 7 MIGRATING {us}"), "goes"),
            ("CLUSTER SETSLOT 16384 STABLE", "goes"),
            ("CLUSTER SETSLOT", "goes"),
            ("cluster addslots 1 2", "1-1 comes, 2-2 comes"),
            ("cluster addslots 1 x 2", "1-1 comes"),
            ("CLUSTER ADDSLOTSRANGE 1 2 5 5", "1-2 comes, 5-5 comes"),
            ("CLUSTER ADDSLOTSRANGE 1 2 5", "1-2 comes"),
            ("cluster delslots 1", "goes"),
            ("cluster delslotsrange 1 2", "goes"),
            ("cluster FlushSlots", "goes"),
        ] {
            assert_eq!(meaning(command), expected, "{command}");
        }
        let others = ", ASKING, SET k v, cluster, cluster slots, cluster flushslot 1, node setslot";
        for command in others.split(", ") {
            assert_eq!(meaning(command), "nothing", "{command}");
        }
    }
}
