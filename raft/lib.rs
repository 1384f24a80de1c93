//! The ledger, replicated with Raft: a command is durable on a quorum of replicas before its outcome is
//! returned.
//!
//! Owns openraft, its log and snapshots, their files, and the transport between replicas. Does not
//! interpret commands: it applies them with [`smc_authority::ledger`]. Does not touch a directory that it
//! cannot use: of another program or replica, in a newer format, or damaged.
//!
//! [`ReplicatedLedger`] is the interface, [`Group`] its implementation. A single replica is a group of one.
//!
//! ```text
//! propose → batch → leader → log of a quorum, synced → Ledger::apply on every replica → outcome here
//! ```

mod check_quorum;
mod foreign_disk;
#[cfg(all(any(test, fuzzing), feature = "rocks"))]
pub mod fuzzing;
mod group;
mod majority_read;
mod membership;
mod peer_rpc;
mod recovery;
mod replicated;
mod runtime;
mod state;
mod storage;
mod timing;
mod transport;
mod types;
mod wire;

pub use foreign_disk::has_foreign_disk;
pub use group::{
    Claim, ClaimError, Connections, Contact, FoundingRegister, Group, GroupError, GroupStatus, MAX_COMMANDS,
    MAX_PROPOSAL_BYTES, Member, MembershipError, Place, Replaced, Settings,
};
pub use peer_rpc::{AskError, NotAnswered, PeerHandler};
pub use recovery::backup::{Backup, BackupError, read as read_backup};
pub use recovery::disk_summary::{DiskSummary, Remains, remains};
pub use recovery::{Inspection, RecoveryError, inspect, recover, restore};
pub use replicated::{ProposeError, ReplicatedLedger};
pub use state::shared::SharedLedger;
pub use storage::Storage;
pub use storage::disk::Failure;
pub use storage::error::StorageError;
pub use storage::group_id::GroupId;
pub use storage::memory::MemoryDisk;
#[cfg(feature = "rocks")]
pub use storage::rocks::FORMAT_VERSION;
pub use timing::Timing;
pub use transport::tls::{GroupSecret, NotDerived, TlsError};
pub use types::Replica;

#[cfg(test)]
#[cfg(feature = "rocks")]
mod tests;
