//! What holds for the tree itself: which package and which module may use which, the length of
//! files and comments, the words of comments, and that the paths and tests that documents name
//! exist.
//!
//! Each rule has a file. A rule that fails names every place, and what to do.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod bounds;
mod documents;
mod files;
mod matches;
mod modules;
mod packages;
mod prose;
mod sources;
