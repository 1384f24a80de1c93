//! The certificate authority: keys, signatures, and certificates that leave only after their record is
//! committed.
//!
//! Owns private keys while they are in memory, and their sealing. The rules (names, lifetimes, renewal, who
//! is admitted) are [`smc_mesh::pki`], the record is [`smc_mesh::ledger`]; nothing is decided here.
//!
//! ```text
//! issue: key and signature → sealed key + record → ledger (committed) → the certificate is handed out
//! ```
//!
//! Key pairs come from `rcgen`, which draws from ring's system generator and not from [`crate::env::Env`]:
//! two runs of one seed issue certificates with equal serials, names and times but different keys.

pub mod builtin;
mod error;
mod manager;
mod profile;
pub mod rotation;
pub mod seal;
mod status;
pub mod tls;
pub mod verify;

pub use builtin::{BuiltinCa, CaSettings};
pub use error::CaError;
pub(crate) use manager::authority_changed;
pub use manager::{
    Announcement, CertificateManager, ControllerNames, IssuedController, IssuedProxy, IssuedService, Pending,
    Rotate,
};
pub use status::{AuthorityStatus, CaState, CaStatus, Introduction, Issued, IssuedKind, RootRotation};

#[cfg(test)]
pub(crate) mod tests;
