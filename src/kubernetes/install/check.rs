//! Whether SMC can be installed into a cluster, and whether it works there.
//!
//! Owns what is looked at ([`facts`], [`key`], [`rights`], [`members`], [`stuck`]), the rules as plain
//! functions ([`rules`]) and how their answers are shown ([`report`]).

pub mod facts;
pub mod key;
pub mod members;
pub mod report;
pub mod rights;
pub mod rules;
pub mod stuck;
