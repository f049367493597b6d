//! The entries of `LOCK.LOG`, the newest last, as in a log file.

use super::figures::time;
use super::servers::short;
use super::{Scene, lines, split, table};
use crate::commands::top::model::Seen;
use crate::output::printable;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use std::time::Duration;

/// A quarter of the height below the servers; none if that would leave too little for the locks.
pub(super) fn height(of: u16) -> u16 {
    let part = of.checked_div(4).unwrap_or_default();
    if part < 2 { 0 } else { part.min(12) }
}

/// `of` limits the events to a server and the name of a lock.
pub(super) fn draw(scene: &Scene<'_>, of: Option<(&str, &str)>, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let theme = scene.theme;
    let (head, rest) = split(area, 1);
    let events: Vec<_> = scene
        .model
        .events
        .iter()
        .filter(|seen| {
            of.is_none_or(|(server, name)| seen.address == server && seen.event.name == name)
        })
        .collect();
    let mut title = "LOG  (! somebody may have worked without the lock)".to_owned();
    if scene.model.missed > 0 {
        title.push_str(&format!(", {} came too fast to be seen", scene.model.missed));
    }
    table::write(buffer, head.x, head.y, &title, head.width, theme.heading(), theme);
    if events.is_empty() {
        let text = "  nothing was noted";
        table::write(buffer, rest.x, rest.y, text, rest.width, theme.aside(), theme);
    }
    let from = events.len().saturating_sub(usize::from(rest.height));
    for (seen, line) in events.iter().skip(from).zip(lines(rest)) {
        let style = if seen.event.is_loss() { theme.warning() } else { theme.plain() };
        let text = text(scene, seen);
        table::write(buffer, line.x, line.y, &text, line.width, style, theme);
    }
}

fn text(scene: &Scene<'_>, seen: &Seen) -> String {
    let event = &seen.event;
    let ago = seen.at.map(|at| scene.now.saturating_duration_since(at));
    let ago = ago.map_or(String::new(), |ago| format!("{} ago", time(Some(ago))));
    let mark = if event.is_loss() { "!" } else { " " };
    let owner = if event.owner.is_empty() { String::new() } else { format!(" of {}", event.owner) };
    let text = format!(
        "{mark} {ago:>10}  {} {}{owner}{}",
        event.what,
        event.name,
        meant(&event.what, event.millis)
    );
    let text = printable(&text);
    match scene.model.servers.len() {
        0 | 1 => text,
        _ => format!("{text}  ({})", short(&seen.address)),
    }
}

/// What the milliseconds of an event mean.
pub(crate) fn meant(event: &str, millis: Option<u64>) -> String {
    let Some(duration) = millis.map(Duration::from_millis) else { return String::new() };
    let duration = time(Some(duration));
    match event {
        "late-release" | "late-extend" => format!(", {duration} late"),
        "deleted" | "overwritten" | "disconnected" => format!(", {duration} before its end"),
        "long-wait" => format!(", after {duration}"),
        _ => String::new(),
    }
}
