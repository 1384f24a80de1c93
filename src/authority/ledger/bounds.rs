//! The bounds of the ledger.
//!
//! Owns how much the ledger takes, and the checks of a single value against a bound. Each bound
//! keeps a mistake or an attack from filling memory and disk, and lies well above the needs of a
//! large mesh.

use std::time::Duration;

use super::outcome::Rejection;
use crate::pki::{BACKDATE, SealedKey, SerialNumber, Validity};

/// The longest PEM text of one certificate chain, in bytes: two P-256 certificates take 1.5 KiB.
pub const MAX_PEM_LEN: usize = 16 * 1024;

/// The longest sealed key, in bytes: a P-256 key in PKCS#8 takes 138 and sealing adds 28; a KMS
/// adds its own envelope.
pub const MAX_SEALED_LEN: usize = 4 * 1024;

/// Identities with a service certificate. A Kubernetes cluster is built for 10,000 namespaces.
pub const MAX_SERVICE_ACCOUNTS: usize = 100_000;

/// Identities of one namespace with a service certificate. Who may make pods in a namespace may
/// give each another service account, so that without this bound one namespace could take the
/// places of all. Kubernetes is tested with 3,000 pods in a namespace, of which several usually
/// share an account.
pub const MAX_SERVICE_ACCOUNTS_PER_NAMESPACE: usize = 2_000;

/// Superseded service certificates kept per identity. Usually there is one; manual rotations add
/// more, and the oldest is deleted first. The last to end of each issuer is kept beyond this bound,
/// so that an issuer is trusted as long as any certificate it signed is alive; issuers are few, and
/// ended certificates are pruned.
pub const MAX_SUPERSEDED: usize = 4;

/// Proxy certificates on record. A Kubernetes cluster is built for 150,000 pods; a record takes
/// about 300 bytes in a snapshot, and 900 of memory with its indexes. From
/// [`Rules::Second`](super::Rules::Second) on, one that no sidecar uses gives way to a new one:
/// namespaces share the places that sidecars leave, which are 350,000 in such a cluster. Another
/// figure changes what old commands do, so it would begin with new rules.
pub const MAX_PROXY_CERTIFICATES: usize = 500_000;

/// Live certificates of one proxy, before the group has agreed on a time. Usually there is one; each
/// further bootstrap adds one.
pub const MAX_CERTIFICATES_PER_PROXY: usize = 64;

/// Unclaimed certificates of one proxy, once the group has agreed on a time. A pod's Envoy connects
/// with the latest bootstrap; a few earlier ones may be on their way. The first is forgotten to make
/// room, so that a pod that is made again and again fills nothing.
pub const MAX_UNCLAIMED_PER_PROXY: usize = 8;

/// Released certificates of one proxy that are remembered as such, once the group has agreed on a
/// time. An earlier one is unknown, and still refused.
pub const MAX_RELEASED_PER_PROXY: usize = 4;

/// How long after its issuance a proxy certificate can be claimed, once the group has agreed on a
/// time: longer than a node takes for the images of a pod. A bootstrap that was left lying about is
/// worth nothing after that.
pub const TIME_TO_CLAIM: Duration = Duration::from_hours(24);

/// How far a proposer's clock may be from the agreed time: [`TIME_KEPT`], twice the largest offset
/// of a replica that issues, and the time of a proposal on its way. A certificate is valid that long
/// before it is issued.
pub const CLOCK_TOLERANCE: Duration = BACKDATE;

/// How old the agreed time may be before a proposal brings a newer one: so that many proposals share
/// one agreement.
pub const TIME_KEPT: Duration = Duration::from_mins(1);

/// Proxy certificates that one command releases. One decision takes one sync of the log, and a
/// command stays within a few kilobytes.
pub const MAX_RELEASED_TOGETHER: usize = 256;

/// Service certificates that one command forgets: a command stays within some tens of kilobytes.
pub const MAX_FORGOTTEN_TOGETHER: usize = 256;

/// How long the service certificate of an identity is kept that no workload has: longer than a
/// workload that is moved or deployed again is away. What comes back later gets another key.
pub const UNUSED_KEPT: Duration = Duration::from_hours(1);

/// Private keys that one command replaces: a command stays within some tens of kilobytes.
pub const MAX_REKEYED_TOGETHER: usize = 256;

/// Controller certificates on record: a handful of replicas, renewed as often as every few seconds
/// in tests. The one that ends first is deleted to make room.
pub const MAX_CONTROLLER_CERTIFICATES: usize = 256;

/// Gateways with a certificate. A mesh has one, and one more while it moves to another Secret.
pub const MAX_GATEWAYS: usize = 16;

/// Former issuing CAs, each kept while a certificate it signed is alive: up to a year. Scheduled
/// rotation keeps one; manual rotations add more, and are refused beyond this bound.
pub const MAX_FORMER_ISSUING: usize = 16;

/// Replicas that have acknowledged a new root. A group has a handful; replicas that have left it
/// stay listed.
pub const MAX_ACKNOWLEDGING: usize = 64;

/// Replicas in the placement. A group has nine at most; one that leaves the group is forgotten.
pub const MAX_REPLICAS: usize = 64;

/// Names and addresses on the certificate of one controller or gateway.
pub const MAX_NAMES: usize = 64;

/// How long after its end a record is kept: longer than the clocks of replicas differ.
pub const PRUNE_MARGIN: Duration = Duration::from_hours(1);

/// How long a released certificate stays on record as released, unless it gives way to a new one.
/// After that its serial number is unknown, and still refused.
pub const RELEASED_KEPT: Duration = Duration::from_hours(7 * 24);

/// Checks that a validity is not empty and lies within the issuer's.
pub(super) fn check_within(
    serial: SerialNumber,
    validity: &Validity,
    issuer: &Validity,
) -> Result<(), Rejection> {
    let within = issuer.not_before <= validity.not_before
        && validity.not_before < validity.not_after
        && validity.not_after <= issuer.not_after;
    if within { Ok(()) } else { Err(Rejection::OutlivesIssuer(serial)) }
}

/// Checks the length of a text in bytes, or of a list in entries.
pub(super) fn check_len(what: &'static str, len: usize, max: usize) -> Result<(), Rejection> {
    if len > max { Err(Rejection::TooLong { what, len, max }) } else { Ok(()) }
}

/// Checks the number and the length of the names in a certificate.
pub(super) fn check_names<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> Result<(), Rejection> {
    check_len("the list of names", names.len(), MAX_NAMES)?;
    for name in names {
        check_len("a name", name.len(), 253)?;
    }
    Ok(())
}

/// Checks the size of a sealed key.
pub(super) fn check_key(key: &SealedKey) -> Result<(), Rejection> {
    check_len("the sealed key", key.sealed.len(), MAX_SEALED_LEN)?;
    check_len("the name of the key-encryption key", key.encryption_key.len(), 256)
}
