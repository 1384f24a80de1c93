//! What work costs in memory, counted by the allocator.
//!
//! Owns the allocator that counts, which a test makes its `#[global_allocator]`, and the question to it. Each
//! thread counts its own.

#![allow(unsafe_code, reason = "an allocator that counts is an unsafe trait's")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// The bytes that this thread has allocated and not freed, and the most that there were.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// The system's allocator, which counts.
#[derive(Debug)]
pub struct Counting;

fn count(bytes: isize) {
    // A thread that ends may free after its counter is gone.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        held.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The most bytes that `work` holds at once, beyond those that were held before. They are 0 unless
/// [`Counting`] is the program's allocator.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let (before, _) = HELD.get();
    HELD.set((before, before));
    let result = work();
    let (_, most) = HELD.get();
    (result, (most - before).unsigned_abs())
}

/// The bytes that are held by what `work` returns. They are 0 unless [`Counting`] is the program's allocator.
pub fn held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let (before, _) = HELD.get();
    let result = work();
    let (after, _) = HELD.get();
    (result, usize::try_from(after - before).unwrap_or_default())
}
