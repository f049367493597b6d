//! Durations as people write them: `30s`, `1m30s`, `500ms`, `2h`. A number alone means seconds.

use std::time::Duration;

/// The longest first, in the order in which they are shown.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || "a duration is a number and its unit: 500ms, 30s, 5m, 2h, 1d, 1m30s".to_owned();
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let unit = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, from_unit) = rest.split_at_checked(unit).ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let end = from_unit.find(|c: char| c.is_ascii_digit()).unwrap_or(from_unit.len());
        let (unit, behind) = from_unit.split_at_checked(end).ok_or_else(wrong)?;
        let part = if unit == "ms" {
            Some(Duration::from_millis(number))
        } else {
            let seconds = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds);
            number.checked_mul(seconds.ok_or_else(wrong)?).map(Duration::from_secs)
        };
        sum = part.and_then(|part| sum.checked_add(part)).ok_or_else(wrong)?;
        rest = behind;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(sum) }
}

/// Shows the two largest units, or milliseconds below a second.
pub(crate) fn show(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds == 0 {
        return match duration.subsec_millis() {
            0 => "0s".to_owned(),
            millis => format!("{millis}ms"),
        };
    }
    let mut left = seconds;
    let mut parts = Vec::new();
    for (unit, length) in UNITS {
        let count = left.checked_div(length).unwrap_or_default();
        left = left.checked_rem(length).unwrap_or_default();
        if count > 0 {
            parts.push(format!("{count}{unit}"));
        } else if !parts.is_empty() {
            break;
        }
    }
    parts.truncate(2);
    parts.concat()
}

pub(crate) fn in_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_they_are_written() {
        let read = |text| parse(text).map(|duration| duration.as_millis());
        assert_eq!(read("0"), Ok(0));
        assert_eq!(read("30"), Ok(30_000));
        assert_eq!(read("30s"), Ok(30_000));
        assert_eq!(read("500ms"), Ok(500));
        assert_eq!(read("1h30m"), Ok(5_400_000));
        assert_eq!(read("1d"), Ok(86_400_000));
        assert_eq!(read("1m30s5ms"), Ok(90_005));
        for wrong in ["", "s", "5x", "-1", "1.5s", "5 s", "s5", "99999999999999999999s", "5sm"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_are_shown_by_their_two_largest_units() {
        let shown = |millis| show(Duration::from_millis(millis));
        assert_eq!(shown(0), "0s");
        assert_eq!(shown(999), "999ms");
        assert_eq!(shown(1_999), "1s");
        assert_eq!(shown(90_000), "1m30s");
        assert_eq!(shown(3_601_000), "1h");
        assert_eq!(shown(90_061_000), "1d1h");
    }
}
