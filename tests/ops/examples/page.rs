//! What a page shows in its blocks.

use crate::ROOT;
use std::fs;
use std::path::Path;

const FENCE: &str = "```";

pub(super) struct Block {
    /// The last heading before it.
    pub(super) heading: String,
    pub(super) language: String,
    pub(super) text: String,
}

/// All of this page.
pub(super) fn all_blocks(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(Path::new(ROOT).join(page)).unwrap();
    let mut found = Vec::new();
    let (mut heading, mut block) = (String::new(), None);
    for line in text.lines() {
        match (line.strip_prefix(FENCE), block.take()) {
            (Some(_), Some(whole)) => found.push(whole),
            (None, Some(Block { heading, language, text })) => {
                block = Some(Block { heading, language, text: format!("{text}{line}\n") });
            }
            (Some(language), None) => {
                let (heading, language) = (heading.clone(), language.to_owned());
                block = Some(Block { heading, language, text: String::new() });
            }
            (None, None) if line.starts_with('#') => {
                line.trim_start_matches('#').trim().clone_into(&mut heading);
            }
            (None, None) => {}
        }
    }
    found
}

/// The blocks of this language under this heading, one after another.
pub(super) fn blocks(page: &str, heading: &str, language: &str) -> String {
    let is_it = |block: &Block| block.heading == heading && block.language == language;
    let found: Vec<_> =
        all_blocks(page).into_iter().filter(is_it).map(|block| block.text).collect();
    assert!(!found.is_empty(), "{page} has no {language} under {heading}");
    found.concat()
}
