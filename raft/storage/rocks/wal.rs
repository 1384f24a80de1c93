//! Reads RocksDB's write-ahead log as far as needed to find its end.
//!
//! ```text
//! log       blocks of 32 KiB, each with fragments, and less than seven bytes of padding
//! fragment  checksum (4), length (2), type (1), then as many bytes as the length says
//! record    one full fragment, or a first one, any number of middle ones and a last one; it begins with
//!           the sequence number of its first change (8) and the number of its changes (4), then the
//!           changes, each with its type (1) first
//! ```
//!
//! Owns that reading, after RocksDB's documentation of the format; numbers are little-endian. A gap, where
//! the readable part ends, may be cut off by the caller. So whatever is intact but of a type that this
//! program does not write is an error, not a gap: RocksDB writes other types with other options, and newer
//! versions of it with others again. RocksDB itself judges whether the changes can be read.

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;

use std::ops::Range;

use crc::{CRC_32_ISCSI, Crc, Table};
use thiserror::Error;

const BLOCK: usize = 32 * 1024;
const HEADER: usize = 7;

/// The header of logs whose files RocksDB reuses: it ends with the number of the log.
const RECYCLABLE_HEADER: usize = HEADER + 4;

/// How much of a record is read: its numbers, and the type of its first change.
const START: usize = 13;

/// The types of changes that this program writes (`kType…` in RocksDB's `db/dbformat.h`): deletions (0),
/// values (1) and deleted ranges (15) in the default column family, the same in another one (4, 5, 14), and
/// log data (3).
const CHANGES: [u8; 7] = [0, 1, 3, 4, 5, 14, 15];

const CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// The part of a log without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Readable {
    /// Its length in bytes from the beginning: whole records.
    pub(super) length: usize,
    /// The highest sequence number with which the next record may begin; `None` before the first record.
    pub(super) next: Option<u64>,
}

/// Something intact in a log that this program does not write. Where the log ends is then not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum UnknownContent {
    #[error("has a record of the unknown type {kind} at byte {at}")]
    Record { kind: u8, at: usize },
    #[error("has a change of the unknown type {kind} in the record that ends at byte {end}")]
    Change { kind: u8, end: usize },
}

/// Reads a log that continues records up to `next`, as the log before it gave it.
pub(super) fn readable(log: &[u8], next: Option<u64>) -> Result<Readable, UnknownContent> {
    let mut readable = Readable { length: 0, next };
    let mut at = 0;
    // The start of the record that the last fragment left open.
    let mut open: Option<Vec<u8>> = None;
    while let Some((kind, payload)) = fragment(log, &mut at)? {
        let mut record = match (kind, open.take()) {
            (Kind::Full | Kind::First, None) => Vec::new(),
            (Kind::Middle | Kind::Last, Some(record)) => record,
            _ => break,
        };
        let wanted = START.saturating_sub(record.len()).min(payload.len());
        record.extend_from_slice(log.get(payload.start..payload.start + wanted).unwrap_or_default());
        if matches!(kind, Kind::First | Kind::Middle) {
            open = Some(record);
            continue;
        }
        let Some((first, changes, change)) = start(&record) else { break };
        if let Some(kind) = change.filter(|kind| !CHANGES.contains(kind)) {
            return Err(UnknownContent::Change { kind, end: at });
        }
        if readable.next.is_some_and(|next| first > next) {
            break;
        }
        readable = Readable { length: at, next: Some(first.saturating_add(u64::from(changes))) };
    }
    Ok(readable)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Full,
    First,
    Middle,
    Last,
}

/// The fragment at `at`, which is moved behind it: its kind, and the range of its payload. `None` if there
/// is no intact one.
fn fragment(log: &[u8], at: &mut usize) -> Result<Option<(Kind, Range<usize>)>, UnknownContent> {
    let left = BLOCK - *at % BLOCK;
    let (begin, left) = if left < HEADER { (*at + left, BLOCK) } else { (*at, left) };
    let header = log.get(begin..begin + HEADER).and_then(|header| header.split_first_chunk::<4>());
    let Some((checksum, &[low, high, kind])) = header else { return Ok(None) };
    let length = usize::from(u16::from_le_bytes([low, high]));
    // The checksum also covers the type, and the log number in a longer header.
    let intact = |header: usize| {
        let checked = log.get(begin + HEADER - 1..begin + header + length);
        header + length <= left
            && checked.is_some_and(|bytes| CRC32C.checksum(bytes) == unmask(u32::from_le_bytes(*checksum)))
    };
    let kind = match kind {
        1 => Kind::Full,
        2 => Kind::First,
        3 => Kind::Middle,
        4 => Kind::Last,
        _ if intact(HEADER) || intact(RECYCLABLE_HEADER) => {
            return Err(UnknownContent::Record { kind, at: begin });
        }
        _ => return Ok(None),
    };
    if !intact(HEADER) {
        return Ok(None);
    }
    *at = begin + HEADER + length;
    Ok(Some((kind, begin + HEADER..*at)))
}

/// RocksDB masks its checksums, so that the checksum of data with checksums in it is of use.
fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(0xa282_ead8).rotate_left(15)
}

/// The sequence number of a record, the number of its changes, and the type of the first one, if there is
/// one.
fn start(record: &[u8]) -> Option<(u64, u32, Option<u8>)> {
    let (first, rest) = record.split_first_chunk()?;
    let (changes, rest) = rest.split_first_chunk()?;
    Some((u64::from_le_bytes(*first), u32::from_le_bytes(*changes), rest.first().copied()))
}

#[cfg(test)]
mod tests;
