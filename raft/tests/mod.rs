//! What the ledger promises: on files, and among replicas.

mod commands;
mod files;
mod group;
mod replicas;
mod suite;
mod switch;
