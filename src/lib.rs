//! Placeholder.

pub mod init;
