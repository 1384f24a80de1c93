//! The ledger: what the mesh's authority issued, who claimed it, what was released.
//!
//! Owns the commands and what each does to the state. `apply` is deterministic: it reads no clock, draws no
//! randomness, makes no key and signs nothing; the time, the serials and the (sealed) keys come in the
//! command, so that the same log gives byte-identical states everywhere (DESIGN §2). Refuses to store or
//! replicate: the package `raft` does that and adds no meaning.

mod announcement;
mod apply;
mod authority;
mod bounds;
mod command;
mod record;
mod resealing;
mod rotating;
mod signed;
mod state;

pub use announcement::Announcement;
pub use authority::{Authority, CaCertificate, FormerIssuing, FormerRoot, NextRoot, SignedFor};
pub use bounds::{
    MAX_ACKNOWLEDGING, MAX_CERTIFICATES_PER_PROXY, MAX_CONTROLLER_CERTIFICATES, MAX_FORMER_ISSUING,
    MAX_NAMES, MAX_PEM_LEN, MAX_PROXY_CERTIFICATES, MAX_RELEASED_TOGETHER, MAX_RESEALED_TOGETHER,
    MAX_SEALED_LEN, MAX_SERVICE_ACCOUNTS, MAX_SUPERSEDED, PRUNE_MARGIN, RELEASED_KEPT,
};
pub use command::{Command, Operation, Rejection, Reply};
pub use record::{
    ControllerCertificateRecord, ProxyCertificateRecord, ProxyCertificateState, ServiceCertificateRecord,
    SupersededCertificate,
};
pub use resealing::{Owner, ResealedKey};
pub use signed::Signed;
pub use state::{Ledger, ProxyCertificateCounts, StateHash};

#[cfg(test)]
mod tests;
