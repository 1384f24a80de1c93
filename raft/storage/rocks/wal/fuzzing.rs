//! The reader of the write-ahead log as a target of the fuzzer.

#![allow(clippy::panic, reason = "a panic is how a target reports a finding")]

use super::{Readable, readable};

/// Reads a log. The first byte says from which sequence number on: any for 0.
pub(crate) fn log(input: &[u8]) {
    let Some((next, log)) = input.split_first() else { return };
    let next = Some(u64::from(*next)).filter(|next| *next > 0);
    let Ok(read) = readable(log, next) else { return };
    assert!(read.length <= log.len());
    // What is kept when the tail is cut has no gap, and is read as it was.
    assert_eq!(readable(&log[..read.length], next), Ok(read), "the readable part reads otherwise");
    // Less of the log is never more of a record.
    for part in [read.length / 2, read.length.saturating_sub(1), log.len() / 2] {
        let Ok(Readable { length, .. }) = readable(&log[..part], next) else {
            panic!("the whole can be read, and {part} bytes of it cannot");
        };
        assert!(length <= part.min(read.length));
    }
}
