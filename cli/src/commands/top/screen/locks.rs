//! The locks: which are stuck, who holds them, for how long, and how many wait.

use super::figures::{bar, count, rate, time};
use super::table::{self, Cell, Column, fit, growing, left, right};
use super::{Scene, lines, split};
use crate::commands::top::rows::Row;
use crate::commands::top::told::Hold;
use crate::output::printable;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

const COLUMNS: [Column; 10] = [
    left("", 1, 0),
    right("S", 2, 3),
    growing("LOCK", 12, 3),
    growing("HOLDER", 10, 2),
    right("HELD", 6, 2),
    left("LEASE", 8, 4),
    right("LEFT", 7, 0),
    right("QUEUE", 5, 0),
    right("WAITED", 6, 1),
    right("WAIT/s", 6, 5),
];
/// The index of the column with the lease.
const LEASE: usize = 5;

pub(super) fn draw(scene: &Scene<'_>, rows: &[Row<'_>], area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let (head, rest) = split(area, 1);
    let (titles, rest) = split(rest, 1);
    let height = usize::from(rest.height);
    let selected = scene.view.selected(rows);
    // The selected lock stays visible.
    let from = selected.saturating_sub(height.saturating_sub(1));
    let shown = rows.len().saturating_sub(from).min(height);
    let text = headline(scene, rows, from, shown);
    table::write(buffer, head.x, head.y, &text, head.width, theme.heading(), theme);
    let fitted = fit(&COLUMNS, area.width);
    fitted.head(&COLUMNS, theme, titles, buffer);
    let width = fitted.width(LEASE).unwrap_or_default();
    for ((index, row), line) in rows.iter().enumerate().skip(from).zip(lines(rest)) {
        let is_selected = index == selected;
        fitted.row(&COLUMNS, &cells(scene, row, is_selected, width), theme, line, buffer);
        if is_selected {
            buffer.set_style(line, theme.selected());
        }
    }
    if rows.is_empty() && height > 0 {
        let text = nothing(scene);
        table::write(buffer, rest.x, rest.y, text, rest.width, theme.aside(), theme);
    }
}

/// What is shown, and whether it is everything.
fn headline(scene: &Scene<'_>, rows: &[Row<'_>], from: usize, shown: usize) -> String {
    let view = scene.view;
    let mut text = format!("LOCKS by {}", view.sort.name());
    if view.is_reversed {
        text.push_str(" reversed");
    }
    if shown < rows.len() {
        let (first, last) = (from.saturating_add(1), from.saturating_add(shown));
        text.push_str(&format!(", {first}-{last} of {}", rows.len()));
    } else {
        text.push_str(&format!(", {}", rows.len()));
    }
    if !view.filter.is_empty() {
        text.push_str(&format!(", with \"{}\"", printable(&view.filter)));
    }
    let part = scene.model.part();
    if !part.is_all() {
        let percent = part.looked_at.saturating_mul(100).checked_div(part.keys.max(1));
        text.push_str(&format!(", a part: {} % of keys seen", percent.unwrap_or_default()));
        if part.left_out > 0 {
            text.push_str(&format!(", {} locks left out", count(part.left_out)));
        }
    }
    text
}

fn nothing(scene: &Scene<'_>) -> &'static str {
    let servers = &scene.model.servers;
    if !servers.iter().any(|server| server.round().is_some()) {
        "  no server answers yet"
    } else if scene.view.filter.is_empty() {
        "  no lock is held, and none was waited for"
    } else {
        "  no lock matches the filter: Esc ends it"
    }
}

fn cells(scene: &Scene<'_>, row: &Row<'_>, is_selected: bool, width: u16) -> Vec<Cell> {
    let theme = scene.theme;
    let is_stuck = row.is_stuck();
    let style = match row.waiters() {
        _ if is_stuck => theme.warning(),
        0 => theme.plain(),
        _ => theme.strong(),
    };
    let mark = match (is_stuck, is_selected) {
        (true, _) => "!",
        (false, true) => ">",
        (false, false) => "",
    };
    let (holder, lease, left) = match &row.lock.hold {
        Hold::Held { hold, holders } => {
            let others = holders.saturating_sub(1);
            let owner = printable(&hold.owner);
            let owner = if others > 0 { format!("{owner} +{others}") } else { owner };
            match row.left {
                Some(left) => {
                    let all = row.lease.unwrap_or(left);
                    (owner, bar(left, all, width, theme), time(Some(left)))
                }
                None => (owner, String::new(), "no end".to_owned()),
            }
        }
        Hold::Free => ("(free)".to_owned(), String::new(), String::new()),
        Hold::Unknown(why) => (format!("({why})"), String::new(), String::new()),
    };
    let queue = row.lock.waiters.map_or(super::figures::NONE.to_owned(), count);
    vec![
        (mark.to_owned(), style),
        (row.number.to_string(), theme.plain()),
        (printable(&row.lock.name), style),
        (holder, theme.plain()),
        (time(row.held), theme.plain()),
        (lease, theme.bar()),
        (left, theme.plain()),
        (queue, style),
        (time(row.waited), style),
        (rate(row.rate), theme.plain()),
    ]
}
