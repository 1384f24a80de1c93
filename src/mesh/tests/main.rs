//! Tests of the translation as a whole: from objects to the bytes that Envoys receive.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod golden;
mod properties;
mod provenance;
mod translation;
