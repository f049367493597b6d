//! Figures, as short as a table needs them.

use super::theme::Theme;
use crate::duration::show;
use std::time::Duration;

/// An unknown value.
pub(crate) const NONE: &str = "-";

pub(crate) fn time(time: Option<Duration>) -> String {
    time.map_or(NONE.to_owned(), show)
}

/// Shows microseconds for short waits.
pub(crate) fn fine(time: Duration) -> String {
    match time.as_micros() {
        0 => "0".to_owned(),
        micros @ 1..1_000 => format!("{micros}us"),
        _ => show(time),
    }
}

pub(crate) fn count(count: u64) -> String {
    let of = |unit: u64| count.checked_div(unit).unwrap_or_default();
    match count {
        0..10_000 => count.to_string(),
        10_000..10_000_000 => format!("{}k", of(1_000)),
        _ => format!("{}M", of(1_000_000)),
    }
}

/// From tenths.
pub(crate) fn rate(tenths: Option<u64>) -> String {
    let Some(tenths) = tenths else { return NONE.to_owned() };
    let whole = tenths.checked_div(10).unwrap_or_default();
    if tenths > 0 && whole < 100 { format!("{whole}.{}", tenths % 10) } else { count(whole) }
}

pub(crate) fn of_limit(used: u64, most: Option<u64>) -> String {
    most.map_or_else(|| count(used), |most| format!("{}/{}", count(used), count(most)))
}

/// A bar that shrinks with the time left.
pub(super) fn bar(left: Duration, all: Duration, width: u16, theme: Theme) -> String {
    let width = usize::from(width);
    let cells = u128::try_from(width).unwrap_or_default();
    let part = left.as_millis().saturating_mul(cells);
    // Rounded up: a lease that has not ended keeps one cell.
    let full = part.div_ceil(all.as_millis().max(1));
    let full = usize::try_from(full).unwrap_or(width).min(width);
    let mut bar = theme.full().to_string().repeat(full);
    bar.push_str(&theme.empty().to_string().repeat(width.saturating_sub(full)));
    bar
}

/// How many holders a hold tolerates, itself included.
pub(crate) fn share(share: Option<u64>) -> String {
    match share {
        None => NONE.to_owned(),
        Some(0) => "any".to_owned(),
        Some(1) => "alone".to_owned(),
        Some(count) => format!("of {count}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(rate(None), "-");
        assert_eq!([rate(Some(0)), rate(Some(5)), rate(Some(999))], ["0", "0.5", "99.9"]);
        assert_eq!([rate(Some(12_345)), rate(Some(1_234_567))], ["1234", "123k"]);
        assert_eq!([count(9_999), count(10_000), count(12_345_678)], ["9999", "10k", "12M"]);
        assert_eq!(fine(Duration::from_micros(812)), "812us");
        assert_eq!(fine(Duration::from_micros(1_812)), "1ms");
        assert_eq!(of_limit(7, Some(8_000)), "7/8000");
    }

    #[test]
    fn a_bar_runs_down() {
        let theme = Theme::of(|_| None);
        let bar = |left| bar(Duration::from_secs(left), Duration::from_secs(30), 6, theme);
        assert_eq!([bar(30), bar(29), bar(25)], ["######", "######", "#####."]);
        assert_eq!([bar(15), bar(1), bar(0)], ["###...", "#.....", "......"]);
        assert_eq!(bar(60), "######");
    }
}
