//! Durations as people write them: `48h`, `1h30m`, `1.5h`, `250ms`.
//!
//! Owns their one reading. The grammar is Go's (`time.ParseDuration`), which MeshConfig's users write,
//! without a sign and without the bare `0`; the command line has days on top.

use std::time::Duration;

use thiserror::Error;

use crate::text::truncated;

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a duration such as 30s, 5m or 48h")]
pub struct InvalidDuration(String);

/// Go's units, in nanoseconds. Go accepts both signs for micro.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3_600 * SECOND),
];

const SECOND: u128 = 1_000_000_000;

/// A day of 24 hours, which Go does not know.
const DAY: (&str, u128) = ("d", 86_400 * SECOND);

/// The longest text that is read, in bytes; no duration in use is longer.
const MAX_LENGTH: usize = 32;

/// Reads decimal numbers with Go's units, one after another in any order. What is finer than a nanosecond is
/// cut off, as Go does.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    sum(text, &UNITS).ok_or_else(|| InvalidDuration(truncated(text, 40)))
}

/// Reads what [`parse`] reads, and days (`2d`).
pub fn parse_with_days(text: &str) -> Result<Duration, InvalidDuration> {
    let units = [&UNITS[..], &[DAY]].concat();
    sum(text, &units).ok_or_else(|| InvalidDuration(truncated(text, 40)))
}

fn sum(text: &str, units: &[(&str, u128)]) -> Option<Duration> {
    if text.is_empty() || text.len() > MAX_LENGTH {
        return None;
    }
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut total: u128 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| !is_number(c))?);
        let (name, tail) = tail.split_at(tail.find(is_number).unwrap_or(tail.len()));
        let &(_, unit) = units.iter().find(|(unit, _)| *unit == name)?;
        total = total.checked_add(nanoseconds(number, unit)?)?;
        rest = tail;
    }
    let seconds = u64::try_from(total / SECOND).ok()?;
    Some(Duration::new(seconds, u32::try_from(total % SECOND).ok()?))
}

/// A decimal number of units, such as `48`, `1.5`, `.5` or `5.`, in nanoseconds.
fn nanoseconds(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u128>().ok() };
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = digits(fraction)?.checked_mul(unit)? / scale;
    digits(whole)?.checked_mul(unit)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, expected) in [
            ("48h", Duration::from_hours(48)),
            ("1h30m", Duration::from_mins(90)),
            ("30m1h", Duration::from_mins(90)),
            ("1.5h", Duration::from_mins(90)),
            ("1h0m0s", Duration::from_hours(1)),
            (".5m", Duration::from_secs(30)),
            ("5.s", Duration::from_secs(5)),
            ("0s", Duration::ZERO),
            ("60000ms", Duration::from_mins(1)),
            ("1.25ms", Duration::from_micros(1_250)),
            ("7us", Duration::from_micros(7)),
            ("7\u{b5}s", Duration::from_micros(7)),
            ("7\u{3bc}s", Duration::from_micros(7)),
            ("1.9ns", Duration::from_nanos(1)),
            // A float would be off: the fraction is not a sum of powers of two.
            ("0.1s", Duration::from_millis(100)),
            ("18446744073709551615s", Duration::from_secs(u64::MAX)),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
            assert_eq!(parse_with_days(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn only_the_command_line_has_days() {
        for (text, hours) in [("2d", 48), ("1d12h", 36), ("0.5d", 12)] {
            assert_eq!(parse_with_days(text), Ok(Duration::from_hours(hours)), "{text}");
            assert_eq!(parse(text), Err(InvalidDuration(text.to_owned())));
        }
    }

    #[test]
    fn every_other_text_is_no_duration() {
        let long = "0".repeat(32) + "s";
        for text in [
            "",
            " ",
            "0",
            "48",
            "h",
            ".h",
            ".",
            "-1h",
            "+1h",
            "1h30",
            "1..5h",
            "1.5.5h",
            "1h 30m",
            " 1h",
            "1H",
            "5x",
            "5 m",
            "1e3s",
            "1,5h",
            "1w",
            "é",
            "5é",
            "18446744073709551616s",
            "18446744073709551615m",
            "99999999999999999999999999999h",
            &long,
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(parse_with_days(text), Err(error.clone()), "{text:?}");
            assert!(error.to_string().len() < 100, "{error}");
        }
    }
}
