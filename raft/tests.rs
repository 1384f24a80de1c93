//! Tests of the replicated ledger: on files, and among replicas.

mod asking;
mod clocks;
pub(crate) mod commands;
mod files;
mod group;
mod membership;
mod reception;
mod recovery;
mod replicas;
mod scaling;
mod suite;
mod switch;
mod torn;
