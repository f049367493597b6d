//! One lock: all its holders and waiters.

use super::figures::{NONE, bar, count, rate, share, time};
use super::servers::short;
use super::table::{self, Cell, Column, Fitted, fit, growing, left, right};
use super::{Scene, lines, split};
use crate::commands::top::model::Watched;
use crate::commands::top::rows::{Id, held_for};
use crate::commands::top::told::{Holder, Lock, Round, Waiter};
use crate::output::printable;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use std::time::Duration;

const HOLDERS: [Column; 6] = [
    growing("HOLDER", 12, 1),
    right("FENCE", 16, 2),
    right("HELD", 6, 1),
    left("LEASE", 12, 3),
    right("LEFT", 7, 0),
    right("SHARE", 7, 4),
];
const LEASE: usize = 3;

const WAITERS: [Column; 7] = [
    right("", 3, 0),
    growing("WAITER", 12, 1),
    right("CLIENT", 8, 3),
    right("WAITED", 7, 0),
    right("PATIENCE", 8, 1),
    right("SHARE", 7, 4),
    left("KIND", 6, 2),
];

/// A line of the scrolled area.
enum Line {
    Heading(String),
    Holder(Vec<Cell>),
    Waiter(Vec<Cell>),
    Titles { of_waiters: bool },
    Text(String),
}

pub(super) fn draw(
    scene: &Scene<'_>,
    id: &Id,
    name: &str,
    from: usize,
    area: Rect,
    buffer: &mut Buffer,
) {
    let theme = scene.theme;
    let (head, rest) = split(area, 1);
    let server = scene.model.server(&id.0);
    let title = format!("LOCK {} on {}", printable(name), short(&id.0));
    table::write(buffer, head.x, head.y, &title, head.width, theme.heading(), theme);
    let (holders, waiters) = (fit(&HOLDERS, area.width), fit(&WAITERS, area.width));
    let content = content(scene, server, &id.1, &holders);
    // The last page stays on the screen.
    let last = content.len().saturating_sub(usize::from(rest.height));
    let from = from.min(last);
    for (line, area) in content.into_iter().skip(from).zip(lines(rest)) {
        match line {
            Line::Heading(text) => {
                table::write(buffer, area.x, area.y, &text, area.width, theme.heading(), theme);
            }
            Line::Text(text) => {
                table::write(buffer, area.x, area.y, &text, area.width, theme.plain(), theme);
            }
            Line::Titles { of_waiters: true } => waiters.head(&WAITERS, theme, area, buffer),
            Line::Titles { of_waiters: false } => holders.head(&HOLDERS, theme, area, buffer),
            Line::Holder(cells) => holders.row(&HOLDERS, &cells, theme, area, buffer),
            Line::Waiter(cells) => waiters.row(&WAITERS, &cells, theme, area, buffer),
        }
    }
}

fn content(scene: &Scene<'_>, server: Option<&Watched>, key: &[u8], fitted: &Fitted) -> Vec<Line> {
    let Some((server, round)) = server.and_then(|server| Some((server, server.round()?))) else {
        return vec![Line::Text("its server does not answer: nothing is known of it".to_owned())];
    };
    let Some(opened) = server.opened(key) else {
        return vec![Line::Text("it is asked for".to_owned())];
    };
    let age = scene.now.saturating_duration_since(round.at);
    let lock = round.locks.iter().find(|lock| lock.key == key);
    let mut content = Vec::new();
    content.extend(lock.map(|lock| Line::Text(contention(lock, server.contention(key)))));
    if opened.holders.is_empty() {
        content.push(Line::Text("It is free.".to_owned()));
    } else {
        content.push(Line::Titles { of_waiters: false });
        let width = fitted.width(LEASE).unwrap_or_default();
        let lease = server.lease(key);
        let longest = opened.holders.iter().filter_map(|holder| holder.left).max().max(lease);
        for hold in &opened.holders {
            content.push(Line::Holder(holder(scene, round, hold, age, longest, width)));
        }
    }
    let Some(waiting) = lock.and_then(|lock| lock.waiters) else {
        content.push(Line::Text("Who waits for it polls, and is not known.".to_owned()));
        return content;
    };
    let shown = u64::try_from(opened.waiters.len()).unwrap_or(u64::MAX);
    let all = waiting.max(shown);
    let part = if shown < all { format!(", the first {shown} of them") } else { String::new() };
    content.push(Line::Heading(format!("QUEUE {}{part}", count(all))));
    if shown > 0 {
        content.push(Line::Titles { of_waiters: true });
    }
    for (place, each) in (1_usize..).zip(&opened.waiters) {
        content.push(Line::Waiter(waiter(scene, place, each, age)));
    }
    content
}

fn contention(lock: &Lock, per_second: Option<u64>) -> String {
    let told = &lock.contention;
    let over = told.waits.saturating_sub(lock.waiters.unwrap_or_default());
    let millis = u64::try_from(told.wait_total.as_millis()).unwrap_or(u64::MAX);
    let mean = millis.checked_div(over).map(Duration::from_millis);
    format!(
        "{} waits and {} refused so far, {}/s; a wait took {}, the longest {}",
        count(told.waits),
        count(told.refused),
        rate(per_second),
        time(mean),
        time(Some(told.wait_longest)),
    )
}

fn holder(
    scene: &Scene<'_>,
    round: &Round,
    hold: &Holder,
    age: Duration,
    lease: Option<Duration>,
    width: u16,
) -> Vec<Cell> {
    let theme = scene.theme;
    let left = hold.left.map(|left| left.saturating_sub(age));
    let held = held_for(round.facts.clock, hold.fence).map(|held| held.saturating_add(age));
    let bar = left.map(|left| bar(left, lease.unwrap_or(left), width, theme));
    vec![
        (printable(&hold.owner), theme.strong()),
        (hold.fence.to_string(), theme.plain()),
        (time(held), theme.plain()),
        (bar.unwrap_or_default(), theme.bar()),
        (left.map_or("no end".to_owned(), |left| time(Some(left))), theme.plain()),
        (share(hold.share), theme.plain()),
    ]
}

fn waiter(scene: &Scene<'_>, place: usize, waiter: &Waiter, age: Duration) -> Vec<Cell> {
    let theme = scene.theme;
    let patience = waiter.patience.map(|patience| patience.saturating_sub(age));
    let client = if waiter.client > 0 { waiter.client.to_string() } else { NONE.to_owned() };
    vec![
        (place.to_string(), theme.aside()),
        (printable(&waiter.owner), theme.plain()),
        (client, theme.plain()),
        (time(Some(waiter.waited.saturating_add(age))), theme.plain()),
        (patience.map_or("no end".to_owned(), |left| time(Some(left))), theme.plain()),
        (share(Some(waiter.share)), theme.plain()),
        (waiter.kind.clone(), theme.plain()),
    ]
}
