//! What the keys do, and what the columns mean.

use super::{Scene, lines, table};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

const TEXT: [&str; 20] = [
    "up down PgUp PgDn Home End   select a lock, or scroll      (also k j g G)",
    "Enter                        open it: its holders, its queue    Esc: back",
    "s  r                         sort by the next column; the other way round",
    "/                            only locks whose name or holder has this text",
    "p                            pause, so that one can read       q: quit",
    "",
    "!       stuck: somebody has waited for 10s, or waits for a hold without an end",
    "S       the number of the server, as in the list above",
    "HELD    since the grant      LEASE, LEFT  until the hold ends, unless renewed;",
    "                             the bar is full at the longest that was seen of it",
    "QUEUE   how many wait        WAITED  for how long the next one has waited",
    "WAIT/s  how many began to wait, or were refused, in a second",
    "",
    "WAIT    all who wait, and how many may      GRANT/s HAND/s  grants and hand-offs",
    "P50 P99 half, and 99 of 100, of the waits since the start took no longer",
    "CLIENTS of maxclients        MEM  of maxmemory",
    "DOWN    it does not answer; it is asked again   LATE  its figures are old",
    "",
    "Little is asked of each server: 500 keys a round, so that on a large one locks",
    "that nobody waits for come in bit by bit. leasehold ls has all of them at once.",
];

pub(super) fn draw(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
    for (text, line) in TEXT.iter().zip(lines(area)) {
        table::write(buffer, line.x, line.y, text, line.width, scene.theme.plain(), scene.theme);
    }
}
