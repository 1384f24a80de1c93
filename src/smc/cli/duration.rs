//! Spans of time on the command line: `30s`, `5m`, `48h`, `2d`.
//!
//! Owns the limit to whole seconds, which is what the ledger counts in, and the printing.

use std::time::Duration;

use smc_types::duration::{InvalidDuration, parse_with_days};
use thiserror::Error;

/// A text that is not a span of whole seconds.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum InvalidSpan {
    #[error(transparent)]
    Duration(#[from] InvalidDuration),
    #[error("{0:?} is not a whole number of seconds")]
    Fraction(Duration),
}

/// Reads a duration, days included, of whole seconds.
pub(super) fn parse(text: &str) -> Result<Duration, InvalidSpan> {
    let span = parse_with_days(text)?;
    if span.subsec_nanos() == 0 { Ok(span) } else { Err(InvalidSpan::Fraction(span)) }
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
    fn a_span_is_a_duration_of_whole_seconds() {
        for (text, seconds) in [("30s", 30), ("1h30m", 5_400), ("1.5h", 5_400), ("2d", 172_800), ("0s", 0)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse("1500ms"), Err(InvalidSpan::Fraction(Duration::from_millis(1_500))));
        for bad in ["", "5", "s", "5x", "-1s", "5 m"] {
            assert!(matches!(parse(bad), Err(InvalidSpan::Duration(_))), "{bad:?}");
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
