//! The pictures of docs/pictures: each can be read on a light page and on a dark one, and is shown with words for those who
//! do not see it.

use super::{page, pages};
use crate::ROOT;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Fewer letters than that say nothing.
const SHORTEST_WORDS: usize = 40;

/// By name.
fn pictures() -> BTreeMap<String, String> {
    let folder = Path::new(ROOT).join("docs/pictures");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |file: &Path| file.file_name().unwrap().to_str().unwrap().to_owned();
    files.map(|file| (name(&file), fs::read_to_string(&file).unwrap())).collect()
}

/// The words and the targets of the pictures that a page shows.
fn shown(name: &str) -> Vec<(String, String)> {
    let text = page(name).text;
    let parts = text
        .split("![")
        .skip(1)
        .filter_map(|rest| rest.split_once("]("))
        .map(|(words, rest)| (words.to_owned(), rest.split(')').next().unwrap().to_owned()));
    parts.collect()
}

#[test]
fn every_picture_is_shown_with_words_that_say_what_is_on_it() {
    let shown: Vec<_> = pages().iter().flat_map(|page| shown(&page.name)).collect();
    for name in pictures().keys() {
        let of_it =
            shown.iter().filter(|(_, target)| target.ends_with(&format!("pictures/{name}")));
        let words: Vec<_> = of_it.map(|(words, _)| words).collect();
        assert!(!words.is_empty(), "no page shows {name}");
        assert!(words.iter().all(|words| words.len() >= SHORTEST_WORDS), "{name}: {words:?}");
    }
}

/// A reader's browser says what it prefers, not what the page is like: so a picture brings its own background.
#[test]
fn every_picture_brings_its_background_and_its_title_and_needs_nothing_else() {
    let pictures = pictures();
    assert!(pictures.len() > 3, "{:?}", pictures.keys());
    for (name, text) in pictures {
        assert!(text.contains("<title>"), "{name} has no title");
        let first = text.lines().find(|line| line.starts_with("<rect ")).unwrap();
        let background = first.split('"').nth(1).unwrap();
        let filled = text.matches(&format!(".{background} {{ fill: #")).count();
        let styles = 1 + usize::from(text.contains("prefers-color-scheme: dark"));
        assert_eq!(filled, styles, "{name}: {first}");
        for other in ["<script", "href", "url(http", "@import", "<image"] {
            assert!(!text.contains(other), "{name} has {other}");
        }
    }
}
