//! The key specifications of keys that are not the first.

use super::{assert_same, text_field};
use redis::Value;
use testkit::{field, int, strings};

/// The other keys stand behind `ALSO`, which is looked for from this word on, and behind their number.
#[track_caller]
pub(super) fn assert_are_behind_also(spec: &Value, from: usize) {
    let begin = field(spec, "begin_search").unwrap();
    assert_eq!(text_field(begin, "type").as_deref(), Some("keyword"));
    let keyword = field(begin, "spec").unwrap();
    assert_eq!(text_field(keyword, "keyword").as_deref(), Some("ALSO"));
    assert_eq!(field(keyword, "startfrom"), Some(&int(from)));
    let find = field(spec, "find_keys").unwrap();
    assert_eq!(text_field(find, "type").as_deref(), Some("keynum"));
    let numbers = field(find, "spec").unwrap();
    for (name, number) in [("keynumidx", 0), ("firstkey", 1), ("keystep", 1)] {
        assert_eq!(field(numbers, name), Some(&int(number)), "{name}");
    }
}

/// Where the keys of another command are, and what becomes of them, only that command says.
#[track_caller]
pub(super) fn assert_are_to_be_asked_for(spec: &Value) {
    let flags = strings(field(spec, "flags").unwrap());
    assert_same(flags, &["RW", "access", "update", "variable_flags"], "the other keys");
    for search in ["begin_search", "find_keys"] {
        let search = field(spec, search).unwrap();
        assert_eq!(text_field(search, "type").as_deref(), Some("unknown"));
    }
}
