//! Expressions of policy, against the `regex` crate: a value of a header matches either the expression or
//! what is written down as its complement.
//!
//! The first line is the expression, every other one a value.

use std::fmt::Write as _;

use regex::bytes::{Regex, RegexBuilder};
use smc_model::regex::{HeaderPattern, Pattern};

/// Reads an expression, and judges the values.
pub(crate) fn run(input: &[u8]) {
    let mut lines = input.split(|byte| *byte == b'\n');
    let Some(Ok(text)) = lines.next().map(str::from_utf8) else { return };
    if let Ok(path) = Pattern::prefix(text) {
        full(path.as_str());
    }
    let Ok(header) = HeaderPattern::new(text) else { return };
    let (matching, other) =
        (full(header.matching().as_str()), header.other().map(|other| full(other.as_str())));
    for value in lines {
        // No value holds these (RFC 9110 §5.5), and Envoy passes on no others.
        if value.iter().any(|byte| matches!(byte, 0 | b'\r')) {
            continue;
        }
        let left = other.as_ref().is_some_and(|other| other.is_match(value));
        assert_ne!(matching.is_match(value), left, "{text:?} on {:?}", String::from_utf8_lossy(value));
    }
}

/// The stack for building an expression, in bytes.
const STACK: usize = 128 << 20;

/// The nesting that the crate takes. RE2 counts groups, and takes 1,000 of them. A complement has at most 500
/// (`MAX_DEPTH` in `src/model/regex/complement.rs`), for each of which the crate counts the group,
/// its alternatives and the sequence in it.
const NESTING: u32 = 2000;

/// A full match on bytes, as Envoy does it.
fn full(text: &str) -> Regex {
    let text = as_the_crate_writes_it(text);
    let mut builder = RegexBuilder::new(&format!(r"\A(?:{text})\z"));
    builder.unicode(false).size_limit(1 << 27).nest_limit(NESTING);
    // The crate descends once a group, which takes more than the stack of a test where nothing is optimised.
    let building = std::thread::Builder::new().stack_size(STACK).spawn(move || builder.build()).unwrap();
    building.join().unwrap().unwrap_or_else(|error| panic!("{text:?} is taken, and cannot be built: {error}"))
}

/// An expression of RE2 in the words of the `regex` crate: `\C` is a byte of any value, and a backslash
/// makes every punctuation mark mean itself, also `<` and `>`.
fn as_the_crate_writes_it(text: &str) -> String {
    let mut written = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            written.push(character);
            continue;
        }
        match characters.next() {
            Some('C') => written.push_str(r"[\x00-\xff]"),
            Some(mark) if mark.is_ascii_punctuation() => {
                // Writing into a text cannot fail.
                let _ = write!(written, r"\x{:02x}", u32::from(mark));
            }
            Some(escaped) => written.extend(['\\', escaped]),
            None => written.push('\\'),
        }
    }
    written
}
