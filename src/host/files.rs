//! Files and directories that survive a loss of power, and files that only their owner can read.
//!
//! Owns the order of writing, syncing and renaming.

mod durable;
pub mod private;

pub use durable::{FileError, make_directory, sync_name};
