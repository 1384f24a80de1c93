//! The ledger in Raft: commands are durable on a quorum of replicas before anybody hears that they were applied.
//!
//! Owns openraft, its log and snapshots, the files they live in, and the transport between replicas. Refuses to know
//! what a command means: that is [`smc_mesh::ledger`], which this package applies and adds nothing to. Refuses to
//! touch a directory that it does not understand: another program's or replica's, a newer format's, a damaged one.
//!
//! [`ReplicatedLedger`] is the seam; [`Group`] stands behind it. One replica is a group of one.
//!
//! ```text
//! propose → batch → leader → log of a quorum, synced → Ledger::apply on every replica → answered here
//! ```

mod backup;
mod barrier;
mod contact;
mod database;
mod disk;
mod durable;
mod error;
mod forming;
mod group;
mod housekeeping;
mod identity;
mod log;
mod machine;
mod membership;
mod memory;
mod peers;
pub mod private_file;
mod proposer;
mod recovery;
mod replicated;
mod rocks;
mod runtime;
mod sessions;
mod shared;
mod snapshots;
mod storage;
mod transport;
mod types;
mod waiters;
mod wire;

pub use backup::{Backup, BackupError, read as read_backup};
pub use disk::Failure;
pub use durable::{make_directory, sync_name};
pub use error::StorageError;
pub use group::{
    Connections, Group, GroupError, GroupStatus, MAX_COMMANDS, MAX_PROPOSAL_BYTES, Member, MembershipError,
    Settings, Timing,
};
pub use identity::GroupId;
pub use memory::MemoryDisk;
pub use recovery::{RecoveryError, Remains, recover, restore, survey};
pub use replicated::{Outcome, Pending, ProposeError, ReplicatedLedger};
pub use rocks::FORMAT_VERSION;
pub use runtime::Draw;
pub use shared::SharedLedger;
pub use storage::Storage;
pub use transport::tls::{GroupSecret, NotDerived, TlsError};
pub use transport::{Io, Listener, Network, Tcp};
pub use types::{Replica, ReplicaId};

#[cfg(test)]
mod tests;
