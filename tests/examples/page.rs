//! What a page shows in its blocks.

use crate::ROOT;
use std::fs;
use std::path::Path;

const FENCE: &str = "```";

/// The blocks of this language under this heading, one after another.
pub(super) fn blocks(page: &str, heading: &str, language: &str) -> String {
    each_block(page, heading, language).concat()
}

/// The same, each for itself.
pub(super) fn each_block(page: &str, heading: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(ROOT).join(page)).unwrap();
    let mut found = Vec::new();
    let (mut here, mut block) = (false, None);
    for line in text.lines() {
        match (block, line.strip_prefix(FENCE)) {
            (Some(_), Some(_)) => block = None,
            (Some(said), None) if here && said == language => {
                if let Some(last) = found.last_mut() {
                    *last = format!("{last}{line}\n");
                }
            }
            (Some(_), None) => {}
            (None, Some(said)) => {
                block = Some(said);
                if here && said == language {
                    found.push(String::new());
                }
            }
            (None, None) if line.starts_with('#') => {
                here = line.trim_start_matches('#').trim() == heading;
            }
            (None, None) => {}
        }
    }
    assert!(!found.is_empty(), "{page} has no {language} under {heading}");
    found
}
