//! Placeholder.

pub mod interception;
