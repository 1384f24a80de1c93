//! The format of RocksDB's write-ahead log, as far as it takes to find where it ends.
//!
//! ```text
//! log       blocks of 32 KiB, each with fragments, and less than seven bytes of padding
//! fragment  checksum (4), length (2), type (1), as many bytes as the length says
//! record    one fragment that is it all, or a first, any number of middle ones and a last; it begins with
//!           the sequence number of its first change (8) and the number of its changes (4)
//! ```
//!
//! Owns that reading, after RocksDB's documentation of its format, with little-endian numbers. Refuses to know what the changes
//! are: that they can be read is RocksDB's to judge.

use std::ops::Range;

use crc::{CRC_32_ISCSI, Crc, Table};

const BLOCK: usize = 32 * 1024;
const HEADER: usize = 7;
/// What of a record's beginning is of interest here: where its numbers end.
const NUMBERS: usize = 12;

const CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// How much of a log can be read without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Readable {
    /// So many bytes from the beginning: whole records.
    pub(super) length: usize,
    /// The highest sequence number that what follows may begin with; `None` if nothing was read yet.
    pub(super) next: Option<u64>,
}

/// Reads a log that follows on records up to `next`, as the log before it said.
pub(super) fn readable(log: &[u8], next: Option<u64>) -> Readable {
    let mut readable = Readable { length: 0, next };
    let mut at = 0;
    // The beginning of the record that the last fragment left open.
    let mut open: Option<Vec<u8>> = None;
    while let Some((kind, payload)) = fragment(log, &mut at) {
        let mut record = match (kind, open.take()) {
            (Kind::Full | Kind::First, None) => Vec::new(),
            (Kind::Middle | Kind::Last, Some(record)) => record,
            _ => break,
        };
        let wanted = NUMBERS.saturating_sub(record.len()).min(payload.len());
        record.extend_from_slice(log.get(payload.start..payload.start + wanted).unwrap_or_default());
        if matches!(kind, Kind::First | Kind::Middle) {
            open = Some(record);
            continue;
        }
        let Some((first, changes)) = numbers(&record) else { break };
        if readable.next.is_some_and(|next| first > next) {
            break;
        }
        readable = Readable { length: at, next: Some(first.saturating_add(u64::from(changes))) };
    }
    readable
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Full,
    First,
    Middle,
    Last,
}

/// The fragment at `at`, which is moved behind it: its kind, and where its payload is. `None` where there is no intact one.
fn fragment(log: &[u8], at: &mut usize) -> Option<(Kind, Range<usize>)> {
    let left = BLOCK - *at % BLOCK;
    let (begin, left) = if left < HEADER { (*at + left, BLOCK) } else { (*at, left) };
    let header = log.get(begin..begin + HEADER)?;
    let (checksum, rest) = header.split_first_chunk::<4>()?;
    let (length, kind) = rest.split_first_chunk::<2>()?;
    let payload = begin + HEADER..begin + HEADER + usize::from(u16::from_le_bytes(*length));
    if payload.end > begin + left {
        return None;
    }
    // The checksum covers the type as well.
    if unmask(u32::from_le_bytes(*checksum)) != CRC32C.checksum(log.get(begin + HEADER - 1..payload.end)?) {
        return None;
    }
    let kind = match kind {
        [1] => Kind::Full,
        [2] => Kind::First,
        [3] => Kind::Middle,
        [4] => Kind::Last,
        _ => return None,
    };
    *at = payload.end;
    Some((kind, payload))
}

/// RocksDB masks its checksums, so that one of data with checksums in it is of use.
fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(0xa282_ead8).rotate_left(15)
}

fn numbers(record: &[u8]) -> Option<(u64, u32)> {
    let (first, rest) = record.split_first_chunk()?;
    let (changes, _) = rest.split_first_chunk()?;
    Some((u64::from_le_bytes(*first), u32::from_le_bytes(*changes)))
}
