//! Tests of the replicated ledger: on files, and among replicas.

mod clocks;
pub(crate) mod commands;
mod files;
mod group;
mod membership;
mod peer_rpc;
mod reception;
mod recovery;
mod replicas;
mod scaling;
mod suite;
mod switch;
mod torn;
