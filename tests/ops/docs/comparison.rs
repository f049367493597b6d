//! A documented reply and a live one: alike, although fences, deadlines and UUIDs differ on every run.
//!
//! A documented fence stands for one live fence, in replies and in commands, throughout a transcript;
//! and what is documented as larger is larger. The same goes for deadlines, and without the order for
//! UUIDs and the ids of connections. What is left of a lease or of patience, and how long somebody has
//! waited, is about what the page says. All else is exact.

use std::collections::HashMap;
use std::ops::RangeInclusive;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'t> {
    Number(&'t str),
    Uuid(&'t str),
    Other(char),
}

impl Dictionary {
    /// A documented word of a command, as it has to be sent in this run.
    pub(super) fn translate(&self, documented: &str) -> String {
        pieces(documented)
            .map(|piece| match piece {
                Piece::Number(name) | Piece::Uuid(name) => {
                    self.live.get(name).map_or(name, String::as_str).to_owned()
                }
                Piece::Other(c) => c.to_string(),
            })
            .collect()
    }

    /// Compares a reply, and learns from it. `is_lease` says that a bare integer is what is left of a
    /// lease, as the reply of PTTL is.
    pub(super) fn accepts(&mut self, documented: &str, live: &str, is_lease: bool) -> bool {
        let mut live_pieces = pieces(live);
        let mut before = String::new();
        for piece in pieces(documented) {
            let same = match (piece, live_pieces.next()) {
                (Piece::Number(said), Some(Piece::Number(seen))) => {
                    let is_integer = before.ends_with("(integer) ");
                    let field = last_string(&before);
                    if is_name(said) && said.len() == seen.len()
                        || is_integer && field == Some("client")
                    {
                        self.stands_for(said, seen)
                    } else if is_integer
                        && (is_lease || field.is_some_and(|field| DURATIONS.contains(&field)))
                    {
                        near(said).contains(&seen.parse().unwrap_or(u64::MAX))
                    } else {
                        said == seen
                    }
                }
                (Piece::Uuid(said), Some(Piece::Uuid(seen))) => self.stands_for(said, seen),
                (said, seen) => Some(said) == seen,
            };
            if !same {
                return false;
            }
            match piece {
                Piece::Number(text) | Piece::Uuid(text) => before.push_str(text),
                Piece::Other(c) => before.push(c),
            }
        }
        live_pieces.next().is_none()
    }

    /// Two documented numbers that were in the wrong order, if there are any.
    pub(super) fn disorder(&self) -> Option<String> {
        [FENCE_DIGITS, DEADLINE_DIGITS].into_iter().find_map(|digits| {
            let mut pairs: Vec<_> = self
                .live
                .iter()
                .filter(|(said, _)| is_name(said) && said.len() == digits)
                .collect();
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

/// Whether a number is one of those that differ on every run.
fn is_name(number: &str) -> bool {
    [FENCE_DIGITS, DEADLINE_DIGITS].contains(&number.len())
        && number.chars().all(|c| c.is_ascii_digit())
}

/// Which is the name of the field, if what follows is the value of one.
fn last_string(before: &str) -> Option<&str> {
    before.rsplit('"').nth(1)
}

fn near(said: &str) -> RangeInclusive<u64> {
    let said: u64 = said.parse().unwrap();
    said.saturating_sub(SLACK)..=said + SLACK
}

fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (piece, len) = match uuid(rest) {
            Some(uuid) => (Piece::Uuid(uuid), uuid.len()),
            None if digits > 0 => (Piece::Number(&rest[..digits]), digits),
            None => (Piece::Other(first), first.len_utf8()),
        };
        rest = &rest[len..];
        Some(piece)
    })
}

fn uuid(text: &str) -> Option<&str> {
    let candidate = text.get(..UUID_PARTS.iter().sum::<usize>() + UUID_PARTS.len() - 1)?;
    let parts = candidate.split('-');
    let is_uuid = parts.clone().map(str::len).eq(UUID_PARTS)
        && parts.flat_map(str::chars).all(|c| c.is_ascii_hexdigit());
    is_uuid.then_some(candidate)
}

#[test]
fn a_documented_fence_stands_for_one_live_fence() {
    let mut dictionary = Dictionary::default();
    assert!(dictionary.accepts("(integer) 1795233601234567", "(integer) 1800000000000001", false));
    assert!(!dictionary.accepts("(integer) 1795233601234567", "(integer) 1800000000000002", false));
    assert_eq!(dictionary.translate("1795233601234567"), "1800000000000001");
    assert_eq!(dictionary.translate("1795233601234568"), "1795233601234568");
    assert!(!dictionary.accepts("(integer) 1795233601234567", "(nil)", false));
    assert!(!dictionary.accepts("(integer) 1", "(integer) 1800000000000001", false));
}

#[test]
fn what_is_documented_as_larger_is_larger() {
    let mut dictionary = Dictionary::default();
    assert!(dictionary.accepts("1795233601234567", "1800000000000002", false));
    assert!(dictionary.accepts("1795233601234568", "1800000000000003", false));
    assert_eq!(dictionary.disorder(), None);
    assert!(dictionary.accepts("1795233601234569", "1800000000000002", false));
    assert!(dictionary.disorder().is_some());
}

#[test]
fn only_what_is_left_of_a_lease_may_be_off() {
    let mut dictionary = Dictionary::default();
    let map = |left: u64| format!("5) \"ttl\"\n6) (integer) {left}");
    assert!(dictionary.accepts(&map(29_998), &map(28_001), false));
    assert!(!dictionary.accepts(&map(29_998), &map(27_000), false));
    assert!(!dictionary.accepts(
        "5) \"waiters\"\n6) (integer) 0",
        "5) \"waiters\"\n6) (integer) 1",
        false
    ));
    assert!(!dictionary.accepts("(integer) 30000", "(integer) 29999", false));
    assert!(dictionary.accepts("(integer) 30000", "(integer) 29999", true));
    assert!(!dictionary.accepts("(integer) 30000", "(integer) -2", true));
}

#[test]
fn a_documented_connection_stands_for_one_live_connection() {
    let mut dictionary = Dictionary::default();
    let row = |client: u64| format!("\"client\"\n(integer) {client}\n\"waited\"\n(integer) 9");
    assert!(dictionary.accepts(&row(31), &row(7), false));
    assert!(!dictionary.accepts(&row(31), &row(8), false));
    assert_eq!(dictionary.translate("CLIENT KILL ID 31"), "CLIENT KILL ID 7");
}

#[test]
fn a_documented_uuid_stands_for_one_live_uuid() {
    let mut dictionary = Dictionary::default();
    let said = "5d0c6f1e-8a36-4c38-9f0e-3b1a4f0f6a51";
    let seen = "00000000-0000-4000-8000-000000000001";
    assert!(dictionary.accepts(&format!("1) \"{said}\""), &format!("1) \"{seen}\""), false));
    assert_eq!(dictionary.translate(said), seen);
    assert!(!dictionary.accepts(said, said, false));
}
