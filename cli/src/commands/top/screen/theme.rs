//! Colours and styles. Words and marks carry every meaning; colours only draw attention. No two meanings differ only by
//! red and green.

use ratatui_core::style::{Color, Modifier, Style};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Theme {
    has_colours: bool,
    has_blocks: bool,
}

impl Theme {
    /// From the environment: `NO_COLOR`, a terminal without colours, a locale without block characters.
    pub(crate) fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        let terminal = variable("TERM").unwrap_or_default();
        let is_plain =
            terminal.starts_with("vt") || terminal.ends_with("-m") || terminal == "linux-mono";
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(&variable);
        let locale = locale.into_iter().flatten().find(|value| !value.is_empty());
        let locale = locale.unwrap_or_default().to_lowercase();
        Self {
            has_colours: !is_set("NO_COLOR") && !is_plain,
            has_blocks: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    fn coloured(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    pub(super) fn plain(self) -> Style {
        Style::new()
    }

    pub(super) fn title(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn aside(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Yellow, which people who cannot tell red from green see as well.
    pub(super) fn warning(self) -> Style {
        self.coloured(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    pub(super) fn bar(self) -> Style {
        self.coloured(Color::Cyan)
    }

    pub(super) fn full(self) -> char {
        if self.has_blocks { '█' } else { '#' }
    }

    pub(super) fn empty(self) -> char {
        if self.has_blocks { '░' } else { '.' }
    }

    /// The mark of text that is cut off.
    pub(super) fn more(self) -> char {
        if self.has_blocks { '…' } else { '~' }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_how_things_look() {
        let theme = |set: &'static [(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, v)| v);
            Theme::of(|name| value(name).map(|value| (*value).to_owned()))
        };
        let usual = theme(&[("TERM", "xterm-256color"), ("LANG", "C.UTF-8")]);
        assert_eq!(usual, Theme { has_colours: true, has_blocks: true });
        assert_eq!(usual.warning().fg, Some(Color::Yellow));
        let without = theme(&[("NO_COLOR", "1"), ("LC_ALL", "C"), ("LANG", "C.UTF-8")]);
        assert_eq!(without, Theme { has_colours: false, has_blocks: false });
        assert_eq!((without.warning().fg, without.full()), (None, '#'));
        assert!(theme(&[("NO_COLOR", ""), ("TERM", "xterm")]).has_colours);
        assert!(!theme(&[("TERM", "vt100")]).has_colours);
    }
}
