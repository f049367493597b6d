//! A documented reply and a live one: alike, although fences, deadlines and UUIDs differ on every run.
//!
//! A documented fence stands for one live fence, in replies and in commands, throughout a transcript;
//! and what is documented as larger is larger. The same goes for deadlines, and without the order for
//! UUIDs and the ids of connections. What is left of a lease or of patience, and how long somebody has
//! waited, is about what the page says. All else is exact.

use std::collections::HashMap;

const FENCE_DIGITS: usize = 16;
const DEADLINE_DIGITS: usize = 13;
const UUID_PARTS: [usize; 5] = [8, 4, 4, 4, 12];

/// The fields that tell a duration.
const DURATIONS: [&str; 6] = ["ttl", "waited", "patience", "wait-total", "wait-longest", "ms"];

/// How far a duration may be off, in milliseconds.
const SLACK: u64 = 2_000;

/// What documented names stand for in this run.
#[derive(Default)]
pub(super) struct Dictionary {
    live: HashMap<String, String>,
}

impl Dictionary {
    /// A documented word of a command, as it has to be sent in this run.
    pub(super) fn translate(&self, documented: &str) -> String {
        let live = |piece| self.live.get(piece).map_or(piece, String::as_str);
        pieces(documented).into_iter().map(live).collect()
    }

    /// Compares a reply, and learns from it. `is_lease` says that a bare integer is what is left of a
    /// lease, as the reply of PTTL is.
    pub(super) fn accepts(&mut self, documented: &str, live: &str, is_lease: bool) -> bool {
        let (said, seen) = (pieces(documented), pieces(live));
        let mut field = "";
        let mut accepts_one = |at: usize| {
            let (said_one, seen_one) = (said[at], seen[at]);
            let is_integer = at > 1 && said[at - 2..at] == ["integer", ") "];
            let is_duration = is_lease || DURATIONS.contains(&field);
            let same = match [said_one, seen_one].map(number) {
                [Some(_), Some(_)] if said_one.len() == seen_one.len() && is_name(said_one) => {
                    self.stands_for(said_one, seen_one)
                }
                [Some(_), Some(_)] if is_integer && field == "client" => {
                    self.stands_for(said_one, seen_one)
                }
                [Some(said), Some(seen)] if is_integer && is_duration => {
                    said.abs_diff(seen) <= SLACK
                }
                _ if is_uuid(said_one) && is_uuid(seen_one) => self.stands_for(said_one, seen_one),
                _ => said_one == seen_one,
            };
            if at > 0 && said[at - 1].ends_with('"') {
                field = said_one;
            }
            same
        };
        said.len() == seen.len() && (0..said.len()).all(&mut accepts_one)
    }

    /// Two documented numbers that were in the wrong order, if there are any.
    pub(super) fn disorder(&self) -> Option<String> {
        [FENCE_DIGITS, DEADLINE_DIGITS].into_iter().find_map(|digits| {
            let is_one = |said: &str| said.len() == digits && is_name(said);
            let mut pairs: Vec<_> = self.live.iter().filter(|(said, _)| is_one(said)).collect();
            pairs.sort();
            pairs.windows(2).find(|pair| pair[0].1 >= pair[1].1).map(|pair| {
                let [(small, live_small), (large, live_large)] = [pair[0], pair[1]];
                format!(
                    "{small} < {large} on the page, but {live_small} >= {live_large} in this run"
                )
            })
        })
    }

    fn stands_for(&mut self, said: &str, seen: &str) -> bool {
        self.live.entry(said.to_owned()).or_insert_with(|| seen.to_owned()) == seen
    }
}

/// Words, and what is between them.
fn pieces(text: &str) -> Vec<&str> {
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let pieces = text.as_bytes().chunk_by(|&one, &next| is_of_word(one) == is_of_word(next));
    pieces.map(|piece| str::from_utf8(piece).unwrap()).collect()
}

fn number(piece: &str) -> Option<u64> {
    piece.parse().ok()
}

/// Whether a number is one of those that differ on every run.
fn is_name(piece: &str) -> bool {
    [FENCE_DIGITS, DEADLINE_DIGITS].contains(&piece.len()) && number(piece).is_some()
}

fn is_uuid(piece: &str) -> bool {
    let parts = piece.split('-');
    parts.clone().map(str::len).eq(UUID_PARTS)
        && parts.flat_map(str::chars).all(|c| c.is_ascii_hexdigit())
}

#[test]
fn only_what_differs_on_every_run_may_differ() {
    const FENCE: &str = "(integer) 1795233601234567";
    const UUID: &str = "5d0c6f1e-8a36-4c38-9f0e-3b1a4f0f6a51";
    let mut dictionary = Dictionary::default();
    for (documented, live, is_accepted) in [
        (FENCE, "(integer) 1800000000000001", true),
        (FENCE, "(integer) 1800000000000002", false),
        (FENCE, "(nil)", false),
        ("(integer) 1", "(integer) 1800000000000001", false),
        ("\"ttl\"\n6) (integer) 29998", "\"ttl\"\n6) (integer) 28001", true),
        ("\"ttl\"\n6) (integer) 29998", "\"ttl\"\n6) (integer) 27000", false),
        ("\"waiters\"\n6) (integer) 0", "\"waiters\"\n6) (integer) 1", false),
        ("(integer) 30000", "(integer) 29999", false),
        ("\"client\"\n(integer) 31", "\"client\"\n(integer) 7", true),
        ("\"client\"\n(integer) 31", "\"client\"\n(integer) 8", false),
        (UUID, "00000000-0000-4000-8000-000000000001", true),
        (UUID, UUID, false),
    ] {
        let accepts = dictionary.accepts(documented, live, false);
        assert_eq!(accepts, is_accepted, "{documented} and {live}");
    }
    assert!(dictionary.accepts("(integer) 30000", "(integer) 29999", true));
    assert!(!dictionary.accepts("(integer) 30000", "(integer) -2", true));
    let told = dictionary.translate("x 1795233601234567 1795233601234568 31");
    assert_eq!(told, "x 1800000000000001 1795233601234568 7");
    assert_eq!(dictionary.disorder(), None);
    assert!(dictionary.accepts("1795233601234569", "1800000000000000", false));
    assert!(dictionary.disorder().is_some());
}
