//! An object as one line of text, from which it can be read again.
//!
//! Owns the form in which a source keeps an object: the object's own Kubernetes JSON, without white space and
//! with sorted keys. A later version of SMC reads it as it reads any object, so there is no format of
//! domain objects to keep stable.

use std::io::{self, Write};
use std::sync::Arc;

use serde_json::Value;

use super::{Declaration, Origin};
use crate::Rules;
use crate::kinds;

/// The object as compact JSON; `None` if that takes more than `max` bytes. YAML aliases repeat text, so it
/// may be longer than its file.
pub fn write(value: &Value, max: usize) -> Option<Arc<str>> {
    let mut text = Bounded { bytes: Vec::new(), max };
    serde_json::to_writer(&mut text, value).ok()?;
    String::from_utf8(text.bytes).ok().map(Arc::from)
}

/// Reads an object again from its [`Declaration::json`]; `None` if the text is of no kind that is read. Its
/// problems were reported when it was read first.
pub fn read(rules: &Rules, origin: Origin, json: &str) -> Option<Declaration> {
    let (reference, object, _) = kinds::read(json, rules)?;
    Some(Declaration { origin, reference, object, json: Some(json.into()) })
}

/// What a value takes in memory beside its text: the place of a text or a small structure in a list that
/// grew, or of a field. An estimate from above (`an_object_takes_no_more_memory_than_its_estimate`).
const VALUE_BYTES: usize = 96;

/// The bytes that an object takes that is held as this text, and as what was read of it. An estimate from
/// above, which follows from the text alone.
pub fn held_bytes(json: &str) -> usize {
    let (mut values, mut in_text, mut escaped) = (1_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_text = !in_text,
            b',' | b'[' | b'{' if !in_text => values += 1,
            _ => {}
        }
    }
    2 * json.len() + VALUE_BYTES * values
}

/// Refuses what would exceed `max` bytes.
struct Bounded {
    bytes: Vec<u8>,
    max: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
