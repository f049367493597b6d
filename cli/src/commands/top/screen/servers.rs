//! A line for each server, and what about them needs attention.

use super::figures::{NONE, count, fine, of_limit, rate};
use super::table::{self, Cell, Column, fit, growing, right};
use super::{Scene, lines, split};
use crate::commands::top::model::{State, Watched};
use crate::commands::top::rows::{percent, warnings};
use crate::duration::show;
use crate::output::printable;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

const COLUMNS: [Column; 10] = [
    growing("SERVER", 19, 1),
    right("WAIT", 9, 0),
    right("GRANT/s", 7, 1),
    right("HAND/s", 6, 2),
    right("P50", 5, 3),
    right("P99", 5, 1),
    right("CLIENTS", 10, 4),
    right("MEM", 4, 4),
    right("HELD", 5, 5),
    right("TICKETS", 9, 6),
];

/// Includes a heading. At most a third of the screen.
pub(super) fn height(scene: &Scene<'_>, of: u16) -> u16 {
    let wanted = scene.model.servers.len().saturating_add(texts(scene).len()).saturating_add(1);
    let most = of.checked_div(3).unwrap_or_default().max(2);
    u16::try_from(wanted).unwrap_or(u16::MAX).min(most)
}

/// The warnings, each in its own line.
fn texts(scene: &Scene<'_>) -> Vec<String> {
    let mut texts = Vec::new();
    for (address, why) in scene.model.lost() {
        texts.push(format!("! {address}: {}", printable(why)));
    }
    for (number, server) in (1_usize..).zip(&scene.model.servers) {
        texts.extend(warnings(server).iter().map(|warning| format!("! {number}: {warning}")));
    }
    texts
}

pub(super) fn draw(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let fitted = fit(&COLUMNS, area.width);
    let (head, rest) = split(area, 1);
    fitted.head(&COLUMNS, theme, head, buffer);
    let servers = &scene.model.servers;
    let texts = texts(scene);
    // If there is not room for all, silent servers and warnings come first, because they need
    // attention.
    let wanted = servers.len().saturating_add(texts.len());
    let is_short = wanted > usize::from(rest.height);
    let mut order: Vec<_> = (1_usize..).zip(servers).collect();
    if is_short {
        order.sort_by_key(|(number, server)| (server.round().is_some(), *number));
    }
    let room = usize::from(rest.height).saturating_sub(usize::from(is_short));
    let for_texts = texts.len().min(room.div_ceil(2)).max(room.saturating_sub(order.len()));
    let for_servers = room.saturating_sub(for_texts.min(texts.len()));
    let mut lines = lines(rest);
    for ((number, server), line) in order.iter().take(for_servers).zip(&mut lines) {
        match trouble(scene, server) {
            Some(trouble) => {
                let text = format!("{number} {} {trouble}", short(&server.address));
                table::write(buffer, line.x, line.y, &text, line.width, theme.warning(), theme);
            }
            None => fitted.row(&COLUMNS, &cells(scene, *number, server), theme, line, buffer),
        }
    }
    for (text, line) in texts.iter().take(for_texts).zip(&mut lines) {
        table::write(buffer, line.x, line.y, text, line.width, theme.warning(), theme);
    }
    let shown = order.len().min(for_servers).saturating_add(texts.len().min(for_texts));
    if let Some(line) = lines.next().filter(|_| is_short) {
        let more = wanted.saturating_sub(shown);
        let text = format!("and {more} more lines of servers: a higher window shows them");
        table::write(buffer, line.x, line.y, &text, line.width, theme.aside(), theme);
    }
}

/// What replaces the figures of a server that is silent or late.
fn trouble(scene: &Scene<'_>, server: &Watched) -> Option<String> {
    let ago = |since| show(scene.now.saturating_duration_since(since));
    match (&server.state, &server.latest) {
        (State::Silent { since, why }, _) => Some(format!("DOWN for {}: {why}", ago(*since))),
        (State::Answers, Some(round)) => {
            let is_late = scene.now.saturating_duration_since(round.at) > scene.late_after;
            is_late.then(|| format!("LATE: it has not answered for {}", ago(round.at)))
        }
        (State::Asked | State::Answers, _) => None,
    }
}

fn cells(scene: &Scene<'_>, number: usize, server: &Watched) -> Vec<Cell> {
    let theme = scene.theme;
    let name = format!("{number} {}", short(&server.address));
    let Some(round) = server.round() else {
        return vec![(name, theme.plain()), ("asked".to_owned(), theme.aside())];
    };
    let facts = &round.facts;
    let none = || NONE.to_owned();
    let with_module = |text: String| if facts.module.is_some() { text } else { none() };
    let memory = percent(facts.memory, facts.most_memory);
    let style_of = |used: u64, most: Option<u64>, limit: u64| {
        let is_near = percent(used, most).is_some_and(|percent| percent >= limit);
        if is_near { theme.warning() } else { theme.plain() }
    };
    let waits = facts.most_waiters.map(|_| (fine(facts.wait_p50), fine(facts.wait_p99)));
    let (p50, p99) = waits.unwrap_or_else(|| (none(), none()));
    vec![
        (name, theme.plain()),
        (
            with_module(of_limit(facts.waiters, facts.most_waiters)),
            style_of(facts.waiters, facts.most_waiters, 80),
        ),
        (with_module(rate(server.rates.grants)), theme.plain()),
        (with_module(rate(server.rates.hand_offs)), theme.plain()),
        (p50, theme.plain()),
        (p99, theme.plain()),
        (
            of_limit(facts.clients, facts.most_clients),
            style_of(facts.clients, facts.most_clients, 75),
        ),
        (
            memory.map_or_else(none, |percent| format!("{percent}%")),
            style_of(facts.memory, facts.most_memory, 90),
        ),
        (with_module(count(facts.held)), theme.plain()),
        (with_module(of_limit(facts.tickets, facts.most_tickets)), theme.plain()),
    ]
}

/// The address without its scheme.
pub(super) fn short(address: &str) -> &str {
    address.split_once("://").map_or(address, |(_, rest)| rest)
}
