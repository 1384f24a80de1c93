//! The ledger: the certificates that the mesh's authority issued, and which of them were claimed
//! and released.
//!
//! Owns the commands and their effect on the state. `apply` is deterministic: it reads no clock,
//! draws no randomness, makes no key and signs nothing. The time, the serial numbers and the
//! (sealed) keys come in the command, so that the same log gives byte-identical states everywhere
//! (docs/design/ledger.md). Raft stores and replicates the log.
//!
//! ```text
//! rules, authority, record, placement ◄ outcome ◄ bounds, command, time, places ◄ state, forgotten ◄
//! agreement, signed, rekey, proxies, services, gateways, ca_rotation, replicas ◄ apply
//! ```

mod agreement;
mod announcement;
mod apply;
mod authority;
mod bounds;
mod ca_rotation;
mod command;
mod forgotten;
mod gateways;
mod outcome;
mod placement;
mod places;
mod proxies;
mod record;
mod rekey;
mod replicas;
mod rules;
mod services;
mod signed;
mod state;
mod time;
mod typed;

pub use announcement::Announcement;
pub use authority::{Authority, CaCertificate, FormerIssuing, FormerRoot, NextRoot, SignedFor};
pub use bounds::{
    CLOCK_TOLERANCE, MAX_ACKNOWLEDGING, MAX_CERTIFICATES_PER_PROXY, MAX_CONTROLLER_CERTIFICATES,
    MAX_FORGOTTEN_TOGETHER, MAX_FORMER_ISSUING, MAX_GATEWAYS, MAX_NAMES, MAX_PEM_LEN, MAX_PROXY_CERTIFICATES,
    MAX_REKEYED_TOGETHER, MAX_RELEASED_PER_PROXY, MAX_RELEASED_TOGETHER, MAX_REPLICAS, MAX_SEALED_LEN,
    MAX_SERVICE_ACCOUNTS, MAX_SERVICE_ACCOUNTS_PER_NAMESPACE, MAX_SUPERSEDED, MAX_UNCLAIMED_PER_PROXY,
    PRUNE_MARGIN, RELEASED_KEPT, TIME_KEPT, TIME_TO_CLAIM, UNUSED_KEPT,
};
pub use command::{
    AcknowledgeRoot, AgreeOnTime, CancelRoot, Command, EndControllerIssuer, ForgetGateway, ForgetReplica,
    ForgetService, GENERATION, HastenRoot, NameRoot, Operation, PHASES, RecordControllerCertificate,
    RecordGatewayCertificate, RecordProxyCertificate, RecordServiceCertificate, RotateIssuing,
    SetReplicaPhase, SignWithNextRoot, TrustRoot,
};
pub use outcome::{Outcome, Rejection, Reply};
pub use placement::{Placement, ReplicaPhase, ReplicaRecord};
pub use record::{
    ControllerCertificateRecord, GatewayCertificateRecord, KeyOwner, ProxyCertificateRecord,
    ProxyCertificateState, RekeyedKey, ServiceCertificateRecord, SupersededCertificate,
};
pub use rules::Rules;
pub use signed::Signed;
pub use state::{Ledger, ProxyCertificateCounts, StateHash};
pub use time::median;
pub use typed::{
    AuthorityChange, ClaimProxyCertificate, ForgetServices, InitAuthority, LedgerOperation, Prune, Rekey,
    ReleaseProxy, ReleaseProxyCertificates, RetireCa, UseRules,
};

#[cfg(test)]
mod tests;
