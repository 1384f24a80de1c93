//! The fields of an encoded protobuf message, one after the other, in place.
//!
//! Owns the wire format (protobuf.dev/programming-guides/encoding). Groups, which proto3 does not have, are
//! refused.

use std::ops::Range;

use prost::encoding::{WireType, decode_key, decode_varint};

/// The bytes are no protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// A place in the bytes of a request, which the bound on its length keeps below 4 GiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn new(start: usize, end: usize) -> Result<Self, Malformed> {
        let at = |at: usize| u32::try_from(at).map_err(|_| Malformed);
        Ok(Self { start: at(start)?, end: at(end)? })
    }

    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// A string, bytes or a message.
    Bytes(Span),
    /// A number; 0 for one of a fixed length, of which no request uses any.
    Number(u64),
}

/// The fields of a message that is part of `encoded`.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    encoded: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Fields<'a> {
    /// The fields of the whole.
    pub(super) fn all(encoded: &'a [u8]) -> Self {
        Self::from(encoded, 0)
    }

    /// The fields of the whole that begin at `at` or later.
    pub(super) fn from(encoded: &'a [u8], at: usize) -> Self {
        Self { encoded, at, end: encoded.len() }
    }

    /// The fields of an embedded message.
    pub(super) fn within(encoded: &'a [u8], message: Span) -> Self {
        let Range { start, end } = message.range();
        Self { encoded, at: start, end }
    }

    /// Where the next field begins.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// The next field: its number and value.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Value)>, Malformed> {
        let mut rest = self.encoded.get(self.at..self.end).ok_or(Malformed)?;
        if rest.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = decode_key(&mut rest).map_err(|_| Malformed)?;
        let fixed = |length: usize, rest: &[u8]| rest.len().checked_sub(length).ok_or(Malformed);
        let value = match wire_type {
            WireType::Varint => Value::Number(decode_varint(&mut rest).map_err(|_| Malformed)?),
            WireType::LengthDelimited => {
                let length = decode_varint(&mut rest).map_err(|_| Malformed)?;
                let length = usize::try_from(length).map_err(|_| Malformed)?;
                let start = self.end - rest.len();
                let left = fixed(length, rest)?;
                self.at = self.end - left;
                return Ok(Some((number, Value::Bytes(Span::new(start, self.at)?))));
            }
            WireType::SixtyFourBit => {
                self.at = self.end - fixed(8, rest)?;
                return Ok(Some((number, Value::Number(0))));
            }
            WireType::ThirtyTwoBit => {
                self.at = self.end - fixed(4, rest)?;
                return Ok(Some((number, Value::Number(0))));
            }
            WireType::StartGroup | WireType::EndGroup => return Err(Malformed),
        };
        self.at = self.end - rest.len();
        Ok(Some((number, value)))
    }
}
