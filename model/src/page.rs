//! What the docs show of the model, and where.

use crate::cases::Case;
use crate::search::Found;
use crate::timeline;
use std::fmt::Write;

/// A part of a page that is written by the tests.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The page, from the root of the repository.
    pub page: &'static str,
    /// Between which lines it stands.
    pub marks: (&'static str, &'static str),
}

/// The shortest ways to broken promises.
pub const TIMELINES: Part = Part {
    page: "docs/verification/timelines.md",
    marks: ("<!-- timelines: written by the tests of model/ -->", "<!-- end of timelines -->"),
};

/// How many worlds there are.
pub const FIGURES: Part = Part {
    page: "docs/verification/worlds.md",
    marks: ("<!-- worlds: written by the tests of model/ -->", "<!-- end of worlds -->"),
};

impl Part {
    /// What the page says there now.
    pub fn of<'p>(&self, page: &'p str) -> Option<&'p str> {
        let (_, rest) = page.split_once(self.marks.0)?;
        Some(rest.split_once(self.marks.1)?.0)
    }

    /// The page with something else there.
    pub fn replaced(&self, page: &str, text: &str) -> Option<String> {
        let (before, rest) = page.split_once(self.marks.0)?;
        let (_, after) = rest.split_once(self.marks.1)?;
        Some(format!("{before}{}{text}{}{after}", self.marks.0, self.marks.1))
    }
}

/// All timelines.
pub fn timelines(broken: &[(&Case, Found)]) -> String {
    let mut text = "\n".to_owned();
    for (number, (case, found)) in (1..).zip(broken) {
        let table = found.broken.as_ref().map(timeline::of).unwrap_or_default();
        // A string refuses nothing.
        let _ = write!(
            text,
            "\n**{number}. {}** ({})\n\n```\n{table}```\n",
            case.says,
            case.setting.in_words()
        );
    }
    text.push('\n');
    text
}

/// A row for each case.
pub fn figures(kept: &[(&Case, Found)], broken: &[(&Case, Found)]) -> String {
    let mut text = "\n\n| Case | Looks at | Assumes | Worlds | Steps | Breaks after |\n|---|---|---|---|---|---|\n".to_owned();
    for (case, found) in kept.iter().chain(broken) {
        let promises: Vec<_> = case.promises.iter().map(|promise| promise.number()).collect();
        let breaks = match &found.broken {
            None => "never".to_owned(),
            Some(broken) => format!("{} steps", broken.way.len()),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {}, {} | {} | {} | {breaks} |",
            case.says.trim_end_matches('.'),
            promises.join(", "),
            case.setting.in_words(),
            case.setting.pace(),
            grouped(found.worlds),
            grouped(found.steps),
        );
    }
    text.push('\n');
    text
}

/// `1,234,567`
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && digits.len().saturating_sub(place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
