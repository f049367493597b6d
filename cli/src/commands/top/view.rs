//! What the user looks at, and what keys change about it.

use super::rows::{Id, Row, Sort};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) sort: Sort,
    pub(crate) is_reversed: bool,
    pub(crate) filter: String,
    /// Whether keys are letters of the filter.
    pub(crate) is_typing: bool,
    pub(crate) page: Page,
    pub(crate) has_help: bool,
    /// Since when the view is paused.
    pub(crate) paused: Option<Instant>,
    /// None selects the first lock.
    selected: Option<Id>,
    /// The last position of the selected lock, used when the lock is gone.
    position: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Page {
    #[default]
    Locks,
    /// One lock; `from` is the first visible line of its holders and waiters.
    Lock { id: Id, name: String, from: usize },
}

/// What a key means to the caller.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Meant {
    /// Nothing is left to do.
    Nothing,
    Quit,
    Interrupt,
    Suspend,
    Redraw,
}

/// How many lines a page key moves.
const PAGE: usize = 10;

impl View {
    pub(crate) fn of(sort: Sort, filter: String) -> Self {
        Self { sort, filter, ..Self::default() }
    }

    /// The index of the selected row.
    pub(crate) fn selected(&self, rows: &[Row<'_>]) -> usize {
        let found = self.selected.as_ref().and_then(|(server, key)| {
            rows.iter().position(|row| row.server == server && row.lock.key == *key)
        });
        let last = rows.len().saturating_sub(1);
        found.unwrap_or_else(|| if self.selected.is_some() { self.position.min(last) } else { 0 })
    }

    pub(crate) fn opened(&self) -> Option<&Id> {
        match &self.page {
            Page::Lock { id, .. } => Some(id),
            Page::Locks => None,
        }
    }

    /// `rows` are the rows that are shown.
    pub(crate) fn press(&mut self, key: KeyEvent, rows: &[Row<'_>], now: Instant) -> Meant {
        if key.kind == KeyEventKind::Release {
            return Meant::Nothing;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Meant::Interrupt,
                KeyCode::Char('z') => Meant::Suspend,
                KeyCode::Char('l') => Meant::Redraw,
                _ => Meant::Nothing,
            };
        }
        if self.is_typing {
            self.type_filter(key.code);
            return Meant::Nothing;
        }
        if std::mem::take(&mut self.has_help) {
            return if key.code == KeyCode::Char('q') { Meant::Quit } else { Meant::Nothing };
        }
        match key.code {
            KeyCode::Char('q') => return Meant::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.has_help = true,
            KeyCode::Char('p' | ' ') => {
                self.paused = if self.paused.is_some() { None } else { Some(now) };
            }
            code => match &mut self.page {
                Page::Locks => self.press_in_list(code, rows),
                Page::Lock { from, .. } => match code {
                    KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.page = Page::Locks,
                    code => *from = moved(*from, usize::MAX, code),
                },
            },
        }
        Meant::Nothing
    }

    fn press_in_list(&mut self, code: KeyCode, rows: &[Row<'_>]) {
        let position = self.selected(rows);
        match code {
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Enter | KeyCode::Right => {
                if let Some(row) = rows.get(position) {
                    (self.selected, self.position) = (Some(row.id()), position);
                    self.page = Page::Lock { id: row.id(), name: row.lock.name.clone(), from: 0 };
                }
            }
            code => {
                let to = moved(position, rows.len().saturating_sub(1), code);
                if let Some(row) = rows.get(to).filter(|_| to != position) {
                    (self.selected, self.position) = (Some(row.id()), to);
                }
                // At the top, the selection follows the first row again.
                if to == 0 {
                    self.selected = None;
                }
            }
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
    }
}

fn moved(from: usize, last: usize, code: KeyCode) -> usize {
    let to = match code {
        KeyCode::Down | KeyCode::Char('j') => from.saturating_add(1),
        KeyCode::Up | KeyCode::Char('k') => from.saturating_sub(1),
        KeyCode::PageDown => from.saturating_add(PAGE),
        KeyCode::PageUp => from.saturating_sub(PAGE),
        KeyCode::Home | KeyCode::Char('g') => 0,
        KeyCode::End | KeyCode::Char('G') if last < usize::MAX => last,
        _ => from,
    };
    to.min(last)
}
