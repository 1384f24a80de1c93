//! The outcome of an applied command.
//!
//! Owns the replies and the rejections. Every replica computes the same outcome; it is not stored.

use std::sync::Arc;

use smc_types::ids::{NamespacedName, ReplicaId, ServiceAccountId, TrustDomain};
use smc_types::time::Timestamp;
use thiserror::Error;

use super::placement::ReplicaPhase;
use super::rules::Rules;
use crate::pki::SerialNumber;

/// The effect of an applied command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The authority is founded.
    Founded,
    /// The certificate is on record and may be handed out.
    Recorded,
    /// The certificate is claimed.
    Claimed {
        /// Whether it was unclaimed before.
        first: bool,
        /// The earlier certificates of the proxy, which are refused from now on, sorted.
        released: Vec<SerialNumber>,
    },
    /// The certificates are refused from now on.
    Released {
        /// The certificates that this command released, sorted.
        serials: Vec<SerialNumber>,
    },
    /// The ended records are deleted.
    Pruned {
        /// The number of deleted records.
        certificates: usize,
    },
    /// The certificates of identities or gateways are deleted.
    Forgotten {
        /// The number of identities or gateways.
        identities: usize,
    },
    /// The authority has changed as requested.
    AuthorityChanged,
    /// The authority already was as requested.
    AuthorityUnchanged,
    /// The ledger has the time as proposed.
    TimeAgreed,
    /// The keys are sealed as requested.
    Rekeyed {
        /// The number of replaced keys. The others belong to certificates that are no longer
        /// current.
        keys: usize,
    },
    /// A replica came to another phase, or was forgotten.
    PlacementChanged,
    /// The replica is in that phase already, or not on record.
    PlacementUnchanged,
    /// The rules are in use from the next command on.
    RulesBegun,
    /// These rules, or later ones, were in use already.
    RulesUnchanged,
}

/// The outcome of one applied command.
pub type Outcome = Result<Reply, Rejection>;

/// The reason why a command was not applied. It changed nothing but the ledger's time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Rejection {
    /// There is an authority already.
    #[error("the authority of {0} is already founded")]
    AlreadyFounded(TrustDomain),
    /// There is no authority yet.
    #[error("the authority is not founded yet")]
    NotFounded,
    /// The serial number is taken.
    #[error("serial number {0} is taken")]
    DuplicateSerial(SerialNumber),
    /// The certificate's issuer is not a CA of this mesh.
    #[error("certificate {serial} is signed by {issuer}, which is not an issuing CA of this mesh")]
    UnknownIssuer {
        /// The certificate.
        serial: SerialNumber,
        /// Its issuer.
        issuer: SerialNumber,
    },
    /// The certificate's issuer is a CA of this mesh that no longer signs such certificates.
    #[error("certificate {serial} is signed by {issuer}, which no longer signs for this mesh")]
    RetiredIssuer {
        /// The certificate.
        serial: SerialNumber,
        /// Its issuer.
        issuer: SerialNumber,
    },
    /// The proposer's clock is far from the time that the group agreed on.
    #[error(
        "the clock of the replica that proposed it says {at}, and the group agreed on {group} (seconds since 1970)",
        at = .at.0, group = .group.0
    )]
    WrongClock {
        /// The proposer's clock.
        at: Timestamp,
        /// The agreed time.
        group: Timestamp,
    },
    /// The certificate is not valid at the time that the group agreed on.
    #[error("certificate {0} is not valid now, by the time of the group")]
    NotValidNow(SerialNumber),
    /// The identity's current certificate is not due for renewal.
    #[error("the current certificate of {account}, {current}, is not due for renewal")]
    NotDue {
        /// The identity.
        account: ServiceAccountId,
        /// Its current certificate.
        current: SerialNumber,
    },
    /// An agreement on the time without a clock.
    #[error("no majority of clocks agrees on the time")]
    NoClock,
    /// The group has not agreed on a time.
    #[error("the replicas of the group have not agreed on a time yet")]
    NoAgreedTime,
    /// The operation belongs to rules that have not begun.
    #[error("the ledger does not use the rules {} yet", .0.generation())]
    RulesNotBegun(Rules),
    /// The CA is not valid at the command's time.
    #[error("the CA {0} is expired or not yet valid")]
    CaNotValid(SerialNumber),
    /// The CA that the proposer saw sign does not sign.
    #[error("the CA {expected} is not the one that signs: {current} is")]
    CaConflict {
        /// The CA that the proposer saw.
        expected: SerialNumber,
        /// The CA that signs.
        current: SerialNumber,
    },
    /// Another root is being introduced or retired.
    #[error("the root {0} is still being introduced or retired; one root is rotated at a time")]
    RootRotating(SerialNumber),
    /// The operation does not apply to this CA, or the CA is not on record.
    #[error("there is no CA {0} to which this operation applies")]
    UnknownCa(SerialNumber),
    /// Proxies may not trust the root yet.
    #[error("the proxies of replica {replica} have not acknowledged the root {root}")]
    NotAcknowledged {
        /// The root.
        root: SerialNumber,
        /// One of the replicas that have not acknowledged it.
        replica: u64,
    },
    /// A certificate that is alive depends on the CA.
    #[error("the CA {ca} is needed until {until} (seconds since 1970)", until = .until.0)]
    StillNeeded {
        /// The CA.
        ca: SerialNumber,
        /// The end of the last certificate that needs it.
        until: Timestamp,
    },
    /// The certificate's validity is empty or exceeds its issuer's.
    #[error("certificate {0} is not valid within the life of its issuer")]
    OutlivesIssuer(SerialNumber),
    /// The identity's current certificate is not the one that the proposer saw.
    #[error("the current certificate of {account} is now {current}")]
    ServiceCertificateConflict {
        /// The identity.
        account: ServiceAccountId,
        /// Its current certificate.
        current: SerialNumber,
    },
    /// The gateway's current certificate is not the one that the proposer saw.
    #[error("the current certificate of the gateway with the Secret {secret} is now {current}")]
    GatewayCertificateConflict {
        /// The gateway's Secret.
        secret: NamespacedName,
        /// Its current certificate.
        current: SerialNumber,
    },
    /// There is no proxy certificate with this serial number.
    #[error("there is no proxy certificate {0}")]
    UnknownProxyCertificate(SerialNumber),
    /// The certificate was not claimed in time.
    #[error("proxy certificate {0} was not used within a day of its issuance")]
    NotClaimedInTime(SerialNumber),
    /// The certificate was released.
    #[error("proxy certificate {0} was released")]
    Released(SerialNumber),
    /// A text or a list is too long.
    #[error("{what} has {len} bytes or entries, at most {max} are taken")]
    TooLong {
        /// The text or the list.
        what: &'static str,
        /// Its length.
        len: usize,
        /// The longest permitted length.
        max: usize,
    },
    /// There are too many records of one kind.
    #[error("the ledger is full: {max} {what} are on record")]
    Full {
        /// The kind.
        what: &'static str,
        /// The largest permitted number.
        max: usize,
    },
    /// There are too many proxy certificates, and the namespace has the most of those that give way.
    #[error(
        "the ledger is full: {max} proxy certificates are on record, and namespace {namespace} has the most that no \
         sidecar has used yet, {unclaimed}"
    )]
    LargestShare {
        /// The namespace.
        namespace: Arc<str>,
        /// The number of its unclaimed proxy certificates.
        unclaimed: usize,
        /// The largest permitted number of proxy certificates.
        max: usize,
    },
    /// Another process of the replica has joined since.
    #[error("another process of replica {0} has joined since")]
    StaleRun(ReplicaId),
    /// The replica cannot come to this phase from the one that it is in.
    #[error("replica {replica} cannot become {to}: {}", from.map_or_else(|| "it has not joined".to_owned(), |from| format!("it is {from}")))]
    IllegalPhase {
        /// The replica.
        replica: ReplicaId,
        /// Its phase, if it has joined.
        from: Option<ReplicaPhase>,
        /// The phase that was asked for.
        to: ReplicaPhase,
    },
}
