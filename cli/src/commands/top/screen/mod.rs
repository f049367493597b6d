//! The screen. It depends only on what is known, on what the user looks at, and on its size.
//!
//! ```text
//!   leasehold top …                          a line: how many servers answer, how many locks are waited for, stuck
//!   servers                                  a line each, and what about them needs attention
//!   LOCKS, or one lock with its queue        as much as there is room for
//!   LOG                                      the entries of LOCK.LOG, the newest last
//!   keys                                     a line
//! ```

mod events;
pub(crate) mod figures;
mod help;
mod lock;
mod locks;
mod servers;
mod table;
mod theme;

pub(crate) use theme::Theme;

use super::model::Model;
use super::rows::{Row, rows};
use super::view::{Page, View};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use std::time::{Duration, Instant};

/// A smaller screen can show nothing useful.
const SMALLEST: (u16, u16) = (30, 6);

/// Everything that the screen depends on.
pub(crate) struct Scene<'a> {
    pub(crate) model: &'a Model,
    pub(crate) view: &'a View,
    pub(crate) theme: Theme,
    pub(crate) now: Instant,
    /// A server that has been silent for longer is shown as late.
    pub(crate) late_after: Duration,
}

impl Scene<'_> {
    /// The locks that are shown, in order.
    pub(crate) fn rows(&self) -> Vec<Row<'_>> {
        let view = self.view;
        rows(self.model, view.sort, view.is_reversed, &view.filter, self.now)
    }

    pub(crate) fn draw(&self, buffer: &mut Buffer) {
        let area = *buffer.area();
        if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
            let text = format!("leasehold top needs {} x {}", SMALLEST.0, SMALLEST.1);
            table::write(buffer, 0, 0, &text, area.width, self.theme.plain(), self.theme);
            return;
        }
        let (top, rest) = split(area, 1);
        let (rest, keys) = split(rest, rest.height.saturating_sub(1));
        let rows = self.rows();
        self.title(&rows, top, buffer);
        self.keys(keys, buffer);
        if self.view.has_help {
            return help::draw(self, rest, buffer);
        }
        let height = servers::height(self, rest.height);
        let (servers, rest) = split(rest, height);
        servers::draw(self, servers, buffer);
        let (middle, log) = split(rest, rest.height.saturating_sub(events::height(rest.height)));
        match &self.view.page {
            Page::Locks => {
                locks::draw(self, &rows, middle, buffer);
                events::draw(self, None, log, buffer);
            }
            Page::Lock { id, name, from } => {
                lock::draw(self, id, name, *from, middle, buffer);
                events::draw(self, Some((&id.0, name)), log, buffer);
            }
        }
    }

    fn title(&self, rows: &[Row<'_>], area: Rect, buffer: &mut Buffer) {
        let servers = &self.model.servers;
        let answering = servers.iter().filter(|server| server.round().is_some()).count();
        let known = servers.len().saturating_add(self.model.lost.len());
        let waited_for = rows.iter().filter(|row| row.waiters() > 0).count();
        let stuck = rows.iter().filter(|row| row.is_stuck()).count();
        let losses = self.model.losses;
        let mut text = format!(
            " leasehold top   servers {answering} of {known}   waited for {waited_for}   stuck {stuck}   losses {losses}"
        );
        if self.view.paused.is_some() {
            text.push_str("  PAUSED");
        }
        buffer.set_style(area, self.theme.title());
        table::write(buffer, area.x, area.y, &text, area.width, self.theme.title(), self.theme);
    }

    fn keys(&self, area: Rect, buffer: &mut Buffer) {
        let text = if self.view.is_typing {
            format!(" filter: {}_   (Enter keeps it, Esc ends it)", self.view.filter)
        } else if self.view.has_help {
            " any key goes back   q quit".to_owned()
        } else if self.view.opened().is_some() {
            " Esc back   up/down scroll   p pause   ? help   q quit".to_owned()
        } else {
            " up/down move  Enter open  s sort  r reverse  / filter  p pause  ? help  q quit"
                .to_owned()
        };
        buffer.set_style(area, self.theme.title());
        table::write(buffer, area.x, area.y, &text, area.width, self.theme.title(), self.theme);
    }
}

/// The first lines of an area, and the rest.
fn split(area: Rect, height: u16) -> (Rect, Rect) {
    let height = height.min(area.height);
    let rest = Rect {
        y: area.y.saturating_add(height),
        height: area.height.saturating_sub(height),
        ..area
    };
    (Rect { height, ..area }, rest)
}

fn lines(area: Rect) -> impl Iterator<Item = Rect> {
    (area.y..area.bottom()).map(move |y| Rect { y, height: 1, ..area })
}

#[cfg(test)]
mod tests;
