//! The commands of the replicated log.
//!
//! Owns their stored form, which is JSON. A released variant or field keeps its stored name and its
//! meaning; a new field comes with a serde default. A new variant, and a new rule for an old one,
//! comes behind a gate: an older version stops at a variant that it does not know, so a variant is
//! proposed only when every member of the group knows it. [`Operation::AgreeOnTime`] is such a gate.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use smc_types::ids::{NamespacedName, ProxyName, ServiceAccountId};
use smc_types::time::Timestamp;

use super::authority::{Authority, CaCertificate};
use super::placement::ReplicaPhase;
use super::record::{
    ControllerCertificateRecord, GatewayCertificateRecord, RekeyedKey, ServiceCertificateRecord,
};
use super::rules::Rules;
use crate::pki::{Fingerprint, SerialNumber, Validity};

/// The generation of commands that this version applies. Members tell each other theirs, and a
/// variant of a new generation is proposed when all tell it: [`PHASES`], and the
/// number of the rules for [`Operation::UseRules`].
pub const GENERATION: u32 = Rules::LATEST.generation();

/// The generation of commands with which [`Operation::SetReplicaPhase`] came.
pub const PHASES: u32 = 1;

/// One entry of the log: an operation and its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The proposing replica's clock. Until the group agrees on a time, the ledger's own time is the
    /// latest `at` of all commands.
    pub at: Timestamp,
    /// The operation.
    pub operation: Operation,
}

/// A change of the ledger. [`super::LedgerOperation`] gives each its type of reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Founds the authority. Of several replicas that start at once, one succeeds.
    InitAuthority(Box<Authority>),
    /// Makes a certificate the current one of an identity.
    RecordServiceCertificate(RecordServiceCertificate),
    /// Records a proxy certificate as unclaimed.
    RecordProxyCertificate(RecordProxyCertificate),
    /// Records a controller's own certificate.
    RecordControllerCertificate(RecordControllerCertificate),
    /// Marks a proxy certificate as claimed: a proxy has connected with it. Idempotent.
    ClaimProxyCertificate(SerialNumber),
    /// Releases every certificate of a proxy. From [`Rules::Second`] on, forgets those that no proxy
    /// has connected with. Idempotent.
    ReleaseProxy(ProxyName),
    /// Releases exactly these proxy certificates, at most [`super::MAX_RELEASED_TOGETHER`]; otherwise
    /// as [`Operation::ReleaseProxy`]. Skips serial numbers that are not on record. Idempotent.
    ReleaseProxyCertificates(Vec<SerialNumber>),
    /// Deletes the records that have ended at the command's time.
    Prune,
    /// Replaces the issuing CA under the same root, and deletes the key of the one before.
    RotateIssuing(RotateIssuing),
    /// Trusts a new root beside the one that signs. Requires that there is no former root and no
    /// other valid next root.
    TrustRoot(TrustRoot),
    /// Records that every proxy connected to a replica has acknowledged trust in the next root.
    AcknowledgeRoot(AcknowledgeRoot),
    /// Signs under the next root from now on, and deletes the key of the root before. Requires that
    /// all listed replicas have acknowledged the root, and that no service certificate from before
    /// its trust is alive.
    SignWithNextRoot(SignWithNextRoot),
    /// Ends the signing for controllers under the former root, and deletes the issuing CA's key.
    /// Requires that no proxy certificate signed under that root is alive.
    #[serde(rename = "end-vouching")]
    EndControllerIssuer(EndControllerIssuer),
    /// Deletes a former issuing CA, or ends the trust in a former root. Requires that nothing it
    /// signed is alive.
    RetireCa(SerialNumber),
    /// Replaces sealed private keys by the same keys under another key-encryption key, at most
    /// [`super::MAX_REKEYED_TOGETHER`].
    #[serde(rename = "reseal-keys")]
    Rekey(Vec<RekeyedKey>),
    /// Sets the ledger's time by the clocks of a majority of the replicas. The first one begins the
    /// rules that need it, and those that came with it: it is proposed when every member of the
    /// group tells its clock, and so knows them.
    AgreeOnTime(AgreeOnTime),
    /// Gives up a next root, which has signed nothing. Requires an agreed time.
    CancelRoot(CancelRoot),
    /// Ends the wait of a next root for the service certificates from before its trust. Requires an
    /// agreed time.
    HastenRoot(HastenRoot),
    /// Records that a replica has come to a phase. Idempotent. The first one is proposed when every
    /// member of the group says that it knows the operation; it and the next are known from then on.
    SetReplicaPhase(SetReplicaPhase),
    /// Deletes the phase of a replica that is no member of the group any more. Idempotent.
    ForgetReplica(ForgetReplica),
    /// Begins rules, from the next command on. Requires an agreed time. Proposed when every member of
    /// the group says that it knows them: one that does not stops here. Idempotent.
    UseRules(Rules),
    /// Deletes the service certificates of identities that no workload has, with their keys, at most
    /// [`super::MAX_FORGOTTEN_TOGETHER`]. Until when the CAs that signed them are needed is kept.
    /// Skips an identity whose current certificate is another one, or young ([`super::UNUSED_KEPT`]).
    /// Requires [`Rules::Third`]. Idempotent.
    ForgetServices(Vec<ForgetService>),
    /// Makes a certificate the current one of a gateway. Requires [`Rules::Fourth`].
    RecordGatewayCertificate(RecordGatewayCertificate),
    /// Deletes the record of a gateway. Skips one whose current certificate is another one. Requires
    /// [`Rules::Fourth`]. Idempotent.
    ForgetGateway(ForgetGateway),
    /// Records which object declares a trusted root. An object declares one root: it is taken from another
    /// one that it declared. Requires [`Rules::Fifth`]. Idempotent.
    NameRoot(NameRoot),
}

/// The fields of [`Operation::RecordServiceCertificate`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordServiceCertificate {
    /// The identity.
    pub account: ServiceAccountId,
    /// The current certificate that the proposer saw. The command is rejected if the current one
    /// differs, so that of two replicas that renew at the same moment both end up with the same
    /// certificate.
    pub replaces: Option<SerialNumber>,
    /// The certificate.
    pub record: Box<ServiceCertificateRecord>,
    /// Whether a person requests it. Otherwise the current certificate must be due, once the group
    /// has agreed on a time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requested: bool,
}

/// The fields of [`Operation::RecordProxyCertificate`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordProxyCertificate {
    /// The serial number.
    pub serial: SerialNumber,
    /// The proxy in the certificate's Common Name.
    pub proxy: ProxyName,
    /// The identity of the pod that the certificate is issued for; absent from the oldest commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountId>,
    /// The certificate's validity.
    pub validity: Validity,
    /// The serial number of the CA that signed the certificate.
    pub issuer: SerialNumber,
    /// The fingerprint of the whole certificate.
    pub fingerprint: Fingerprint,
}

/// The fields of [`Operation::RecordControllerCertificate`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordControllerCertificate {
    /// The serial number.
    pub serial: SerialNumber,
    /// The certificate.
    pub record: Box<ControllerCertificateRecord>,
}

/// The fields of [`Operation::RotateIssuing`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotateIssuing {
    /// The signing issuing CA that the proposer saw. Of several replicas that rotate at once, one
    /// succeeds.
    pub replaces: SerialNumber,
    /// The new issuing CA.
    pub issuing: Box<CaCertificate>,
}

/// The fields of [`Operation::TrustRoot`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustRoot {
    /// The signing root that the proposer saw.
    pub beside: SerialNumber,
    /// The new root.
    pub root: Box<CaCertificate>,
}

/// The fields of [`Operation::AcknowledgeRoot`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcknowledgeRoot {
    /// The replica.
    pub replica: u64,
    /// The next root.
    pub root: SerialNumber,
}

/// The fields of [`Operation::SignWithNextRoot`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignWithNextRoot {
    /// The next root.
    pub root: SerialNumber,
    /// The group's members as the proposer saw them.
    pub replicas: BTreeSet<u64>,
    /// An issuing CA under that root.
    pub issuing: Box<CaCertificate>,
}

/// The fields of [`Operation::EndControllerIssuer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndControllerIssuer {
    /// The issuing CA under the former root.
    pub issuing: SerialNumber,
}

/// The fields of [`Operation::NameRoot`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRoot {
    /// The root.
    pub root: SerialNumber,
    /// The object.
    pub object: NamespacedName,
}

/// The fields of [`Operation::AgreeOnTime`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgreeOnTime {
    /// The clocks of a majority of the group's members, by replica, as the proposer read them.
    pub clocks: BTreeMap<u64, Timestamp>,
}

/// The fields of [`Operation::CancelRoot`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRoot {
    /// The next root.
    pub root: SerialNumber,
}

/// The fields of [`Operation::HastenRoot`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HastenRoot {
    /// The next root.
    pub root: SerialNumber,
}

/// The fields of [`Operation::SetReplicaPhase`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetReplicaPhase {
    /// The replica.
    pub replica: u64,
    /// Its process, see [`super::ReplicaRecord::run`]. Rejected if another one has joined since.
    pub run: u64,
    /// The phase.
    pub phase: ReplicaPhase,
}

/// The fields of [`Operation::ForgetReplica`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetReplica {
    /// The replica.
    pub replica: u64,
    /// Its process as the proposer saw it: one that has joined since stays.
    pub run: u64,
}

/// An identity of [`Operation::ForgetServices`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetService {
    /// The identity.
    pub account: ServiceAccountId,
    /// Its current certificate as the proposer saw it: a workload has it again where it was renewed.
    pub serial: SerialNumber,
}

/// The fields of [`Operation::RecordGatewayCertificate`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordGatewayCertificate {
    /// The Secret that the certificate goes to.
    pub secret: NamespacedName,
    /// The current certificate that the proposer saw. The command is rejected if the current one
    /// differs.
    pub replaces: Option<SerialNumber>,
    /// The certificate.
    pub record: Box<GatewayCertificateRecord>,
}

/// The fields of [`Operation::ForgetGateway`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetGateway {
    /// The Secret.
    pub secret: NamespacedName,
    /// Its current certificate as the proposer saw it.
    pub serial: SerialNumber,
}
