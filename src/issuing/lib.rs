//! Certificates: issuing and renewing them, the CA's upkeep, and the server's own TLS.
//!
//! Owns private keys while they are in memory, and their sealing. The rules (names, lifetimes, renewal,
//! admission) are [`smc_authority::rules`], and the record is [`smc_authority::ledger`].
//!
//! ```text
//! issue: key and signature → sealed key + record → ledger (committed) → the certificate is handed out
//! ```
//!
//! `rcgen` draws keys from ring's system generator and not from [`smc_host::env::Env`]: two runs of one
//! seed issue certificates with equal serial numbers, names and times but different keys.

mod builtin;
pub mod ca_keeper;
mod clock;
mod commit;
mod error;
pub mod group_time;
pub mod issuer;
mod patience;
mod profile;
mod proxy_certificates;
mod pruning;
pub mod renewal;
pub mod restore;
pub mod seal;
mod status;
pub mod tls;
pub mod verify;

use std::time::Duration;

pub use builtin::{BuiltinCa, CaSettings, Rotate};
pub use clock::ClockError;
pub use commit::timed;
pub use error::{CaError, CaOperation};
pub use issuer::{Announcement, ControllerNames, IssuedController, IssuedProxy, IssuedService, Issuer};
pub use patience::until_available;
pub use proxy_certificates::ProxyCertificates;
pub use status::{AuthorityStatus, CaState, CaStatus, Introduction, Issued, IssuedKind, RootRotation};

/// The longest sleep of a task that waits for a time of the wall clock, which may jump without waking a
/// timer.
const RECHECK: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests;
