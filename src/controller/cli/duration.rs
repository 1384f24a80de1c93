//! Spans of time as people write them: `30s`, `5m`, `48h`, `1h30m`.
//!
//! Owns reading and printing whole seconds. Fractions, and numbers without a unit, are refused.

use std::time::Duration;

use smc_types::text::truncated;
use thiserror::Error;

/// A text that names no span of time.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a duration such as 30s, 5m or 48h")]
pub(super) struct InvalidDuration(String);

/// Reads numbers with the units `s`, `m`, `h`, `d`, one after another.
pub(super) fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration(truncated(text, 40));
    let mut rest = text;
    let mut seconds: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
        let (number, tail) = rest.split_at(digits);
        let unit = match tail.as_bytes().first() {
            Some(b's') => 1,
            Some(b'm') => 60,
            Some(b'h') => 3_600,
            Some(b'd') => 86_400,
            _ => return Err(invalid()),
        };
        let part =
            number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(invalid)?;
        seconds = seconds.checked_add(part).ok_or_else(invalid)?;
        rest = &tail[1..];
    }
    if text.is_empty() { Err(invalid()) } else { Ok(Duration::from_secs(seconds)) }
}

/// Prints a span by its two largest units: `3d4h`, `5m20s`.
pub(super) fn print(span: Duration) -> String {
    let seconds = span.as_secs();
    let units =
        [(seconds / 86_400, 'd'), (seconds / 3_600 % 24, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let first = units.iter().position(|&(count, _)| count > 0).unwrap_or(3);
    let shown = units[first..].iter().take(2).filter(|&&(count, _)| count > 0);
    let text = shown.map(|(count, unit)| format!("{count}{unit}")).collect::<Vec<_>>().concat();
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_they_are_written() {
        for (text, seconds) in
            [("30s", 30), ("5m", 300), ("48h", 172_800), ("1h30m", 5_400), ("2d", 172_800), ("0s", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in
            ["", "5", "s", "5x", "1.5h", "-1s", "5 m", "99999999999999999999s", "18446744073709551615m", "é"]
        {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn durations_print_by_their_two_largest_units() {
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (3_725, "1h2m"), (90_000, "1d1h"), (86_405, "1d")]
        {
            assert_eq!(print(Duration::from_secs(seconds)), text);
        }
    }
}
