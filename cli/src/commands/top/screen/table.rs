//! Tables that fit the width: the least important columns are left out first, and columns that grow share the rest.

use super::theme::Theme;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;
use ratatui_core::text::Span;

pub(super) struct Column {
    pub(super) title: &'static str,
    /// The minimum width.
    pub(super) width: u16,
    /// Its share of the remaining width; 0: it does not grow.
    pub(super) grows: u16,
    pub(super) is_right: bool,
    /// The highest rank is left out first, 0 never.
    pub(super) rank: u8,
}

pub(super) const fn left(title: &'static str, width: u16, rank: u8) -> Column {
    Column { title, width, grows: 0, is_right: false, rank }
}

pub(super) const fn right(title: &'static str, width: u16, rank: u8) -> Column {
    Column { title, width, grows: 0, is_right: true, rank }
}

pub(super) const fn growing(title: &'static str, width: u16, grows: u16) -> Column {
    Column { title, width, grows, is_right: false, rank: 0 }
}

/// The columns that fit: index, first cell, width.
pub(super) struct Fitted(Vec<(usize, u16, u16)>);

const GAP: u16 = 1;

pub(super) fn fit(columns: &[Column], width: u16) -> Fitted {
    let mut kept: Vec<(usize, &Column)> = columns.iter().enumerate().collect();
    let needed = |kept: &[(usize, &Column)]| {
        let widths = kept.iter().map(|(_, column)| column.width.saturating_add(GAP));
        widths.fold(0_u16, u16::saturating_add).saturating_sub(GAP)
    };
    while needed(&kept) > width
        && let Some(rank) =
            kept.iter().map(|(_, column)| column.rank).max().filter(|rank| *rank > 0)
    {
        kept.retain(|(_, column)| column.rank < rank);
    }
    let rest = width.saturating_sub(needed(&kept));
    let parts = kept.iter().map(|(_, column)| column.grows).fold(0, u16::saturating_add);
    let mut left = rest;
    let mut x = 0_u16;
    let mut fitted = Vec::new();
    for (index, column) in &kept {
        let more = rest.saturating_mul(column.grows).checked_div(parts).unwrap_or_default();
        let more = more.min(left);
        left = left.saturating_sub(more);
        let width = column.width.saturating_add(more);
        fitted.push((*index, x, width));
        x = x.saturating_add(width).saturating_add(GAP);
    }
    Fitted(fitted)
}

pub(super) type Cell = (String, Style);

impl Fitted {
    pub(super) fn width(&self, index: usize) -> Option<u16> {
        self.0.iter().find(|(column, ..)| *column == index).map(|(.., width)| *width)
    }

    pub(super) fn head(&self, columns: &[Column], theme: Theme, area: Rect, buffer: &mut Buffer) {
        let cells: Vec<Cell> =
            columns.iter().map(|column| (column.title.to_owned(), theme.heading())).collect();
        self.row(columns, &cells, theme, area, buffer);
    }

    /// Draws the cells into the first line of the area.
    pub(super) fn row(
        &self,
        columns: &[Column],
        cells: &[Cell],
        theme: Theme,
        area: Rect,
        buffer: &mut Buffer,
    ) {
        for (index, x, width) in &self.0 {
            let (Some(column), Some((text, style))) = (columns.get(*index), cells.get(*index))
            else {
                continue;
            };
            let x = area.x.saturating_add(*x);
            let width = (*width).min(area.right().saturating_sub(x));
            let free = width.saturating_sub(width_of(text));
            let x = if column.is_right { x.saturating_add(free) } else { x };
            write(buffer, x, area.y, text, width, *style, theme);
        }
    }
}

pub(super) fn width_of(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}

/// Writes the text, and marks text that is cut off. Returns where it ends.
pub(super) fn write(
    buffer: &mut Buffer,
    x: u16,
    y: u16,
    text: &str,
    width: u16,
    style: Style,
    theme: Theme,
) -> u16 {
    let area = *buffer.area();
    let width = width.min(area.right().saturating_sub(x));
    if width == 0 || y >= area.bottom() {
        return x;
    }
    if width_of(text) <= width {
        return buffer.set_stringn(x, y, text, usize::from(width), style).0;
    }
    let (end, _) = buffer.set_stringn(x, y, text, usize::from(width.saturating_sub(1)), style);
    buffer.set_stringn(end, y, theme.more().to_string(), 1, style).0
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] =
        [growing("NAME", 4, 3), growing("HOLDER", 4, 1), right("LEFT", 6, 1), left("BAR", 8, 2)];

    #[test]
    fn columns_are_left_out_and_what_grows_gets_the_rest() {
        let fitted = |width| fit(&COLUMNS, width).0;
        assert_eq!(fitted(25), [(0, 0, 4), (1, 5, 4), (2, 10, 6), (3, 17, 8)]);
        assert_eq!(fitted(33), [(0, 0, 10), (1, 11, 6), (2, 18, 6), (3, 25, 8)]);
        assert_eq!(fitted(24), [(0, 0, 10), (1, 11, 6), (2, 18, 6)]);
        assert_eq!(fitted(3), [(0, 0, 4), (1, 5, 4)]);
    }

    #[test]
    fn what_is_cut_off_is_shown_to_be() {
        let theme = Theme::of(|_| None);
        let mut buffer = Buffer::empty(Rect::new(0, 0, 6, 1));
        write(&mut buffer, 0, 0, "漢字漢字", 5, Style::new(), theme);
        assert_eq!(buffer, Buffer::with_lines(["漢字~ "]));
        write(&mut buffer, 4, 0, "abc", 9, Style::new(), theme);
        assert_eq!(buffer, Buffer::with_lines(["漢字a~"]));
    }
}
