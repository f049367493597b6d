//! What a page shows in its blocks.

use super::ROOT;
use std::fs;
use std::path::Path;

const FENCE: &str = "```";

/// The blocks of this language under this heading, one after another.
pub(super) fn blocks(page: &str, heading: &str, language: &str) -> String {
    let text = fs::read_to_string(Path::new(ROOT).join(page)).unwrap();
    let mut found = String::new();
    let (mut here, mut block) = (false, None);
    for line in text.lines() {
        match (block, line.strip_prefix(FENCE)) {
            (Some(_), Some(_)) => block = None,
            (Some(said), None) if here && said == language => {
                found.push_str(line);
                found.push('\n');
            }
            (Some(_), None) => {}
            (None, Some(said)) => block = Some(said),
            (None, None) if line.starts_with('#') => {
                here = line.trim_start_matches('#').trim() == heading;
            }
            (None, None) => {}
        }
    }
    assert!(!found.is_empty(), "{page} has no {language} under {heading}");
    found
}
