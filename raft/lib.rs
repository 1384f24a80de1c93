//! Durability of the ledger: commands are written down before anybody hears that they were applied.
//!
//! Owns the log, its snapshots, and the files they live in. Refuses to know what a command means: that is
//! [`smc_mesh::ledger`], which this package applies and adds nothing to. Refuses to touch a directory that
//! it does not understand: another program's, a newer format's, a damaged one.
//!
//! [`ReplicatedLedger`] is the seam. Today [`LocalLedger`] stands behind it, one replica with a synced log in
//! RocksDB; a Raft group takes its place without its callers noticing.
//!
//! ```text
//! propose → queue (bounded) → one synced batch → Ledger::apply → replies
//! ```

mod durable;
mod error;
mod local;
mod replicated;
mod shared;
mod store;

pub use durable::make_directory;
pub use error::StorageError;
pub use local::{LocalLedger, MAX_COMMANDS, MAX_PROPOSAL_BYTES};
pub use replicated::{Outcome, Pending, ProposeError, ReplicatedLedger};
pub use shared::SharedLedger;
pub use store::FORMAT_VERSION;

#[cfg(test)]
mod tests;
