//! Operations with the type of their reply.
//!
//! Owns which [`Reply`] belongs to which [`Operation`], so that a proposer receives a value of the
//! right type.

use super::authority::Authority;
use super::command::{
    AcknowledgeRoot, AgreeOnTime, CancelRoot, EndControllerIssuer, ForgetGateway, ForgetReplica,
    ForgetService, HastenRoot, NameRoot, Operation, RecordControllerCertificate, RecordGatewayCertificate,
    RecordProxyCertificate, RecordServiceCertificate, RotateIssuing, SetReplicaPhase, SignWithNextRoot,
    TrustRoot,
};
use super::outcome::Reply;
use super::record::RekeyedKey;
use super::rules::Rules;
use crate::pki::SerialNumber;
use smc_types::ids::ProxyName;

/// An operation of the ledger that knows the type of its reply.
pub trait LedgerOperation {
    /// The effect of this operation when it is applied.
    type Reply;

    /// The operation in its stored form.
    fn into_operation(self) -> Operation;

    /// The typed form of the ledger's reply; `None` for a reply that belongs to another operation.
    fn reply(reply: Reply) -> Option<Self::Reply>;
}

/// [`Operation::InitAuthority`], without a reply but success.
#[derive(Debug, Clone)]
pub struct InitAuthority(pub Authority);

/// [`Operation::ClaimProxyCertificate`]. The reply is whether the certificate was unclaimed.
#[derive(Debug, Clone, Copy)]
pub struct ClaimProxyCertificate(pub SerialNumber);

/// [`Operation::ReleaseProxy`]. The reply lists the released certificates, sorted.
#[derive(Debug, Clone)]
pub struct ReleaseProxy(pub ProxyName);

/// [`Operation::ReleaseProxyCertificates`]. The reply lists the released certificates, sorted.
#[derive(Debug, Clone)]
pub struct ReleaseProxyCertificates(pub Vec<SerialNumber>);

/// [`Operation::Prune`]. The reply is the number of deleted records.
#[derive(Debug, Clone, Copy)]
pub struct Prune;

/// [`Operation::ForgetServices`]. The reply is the number of identities.
#[derive(Debug, Clone)]
pub struct ForgetServices(pub Vec<ForgetService>);

/// [`Operation::RetireCa`]. The reply is whether the authority changed.
#[derive(Debug, Clone, Copy)]
pub struct RetireCa(pub SerialNumber);

/// [`Operation::Rekey`]. The reply is the number of replaced keys.
#[derive(Debug, Clone)]
pub struct Rekey(pub Vec<RekeyedKey>);

/// [`Operation::UseRules`]. The reply is whether they were not in use before.
#[derive(Debug, Clone, Copy)]
pub struct UseRules(pub Rules);

/// Whether an operation changed the authority, or found it as requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorityChange {
    /// The operation changed the authority.
    Changed,
    /// The authority already was as requested.
    Unchanged,
}

/// Implements [`LedgerOperation`]: the type, its reply, the stored form, and the replies that
/// belong to it.
macro_rules! operation {
    ($type:ty, $result:ty, |$typed:ident| $operation:expr, $($reply:pat => $value:expr),+) => {
        impl LedgerOperation for $type {
            type Reply = $result;

            fn into_operation(self) -> Operation {
                let $typed = self;
                $operation
            }

            fn reply(reply: Reply) -> Option<$result> {
                match reply {
                    $($reply => Some($value),)+
                    _ => None,
                }
            }
        }
    };
    ($type:ty, |$typed:ident| $operation:expr) => {
        operation!(
            $type, AuthorityChange, |$typed| $operation,
            Reply::AuthorityChanged => AuthorityChange::Changed,
            Reply::AuthorityUnchanged => AuthorityChange::Unchanged
        );
    };
}

operation!(InitAuthority, (), |it| Operation::InitAuthority(Box::new(it.0)), Reply::Founded => ());
operation!(RecordServiceCertificate, (), |it| Operation::RecordServiceCertificate(it), Reply::Recorded => ());
operation!(RecordProxyCertificate, (), |it| Operation::RecordProxyCertificate(it), Reply::Recorded => ());
operation!(
    RecordControllerCertificate, (), |it| Operation::RecordControllerCertificate(it), Reply::Recorded => ()
);
operation!(
    ClaimProxyCertificate, bool, |it| Operation::ClaimProxyCertificate(it.0), Reply::Claimed { first, .. } => first
);
operation!(
    ReleaseProxy, Vec<SerialNumber>, |it| Operation::ReleaseProxy(it.0), Reply::Released { serials } => serials
);
operation!(
    ReleaseProxyCertificates, Vec<SerialNumber>, |it| Operation::ReleaseProxyCertificates(it.0),
    Reply::Released { serials } => serials
);
operation!(Prune, usize, |_it| Operation::Prune, Reply::Pruned { certificates } => certificates);
operation!(
    ForgetServices, usize, |it| Operation::ForgetServices(it.0), Reply::Forgotten { identities } => identities
);
operation!(
    SetReplicaPhase, bool, |it| Operation::SetReplicaPhase(it),
    Reply::PlacementChanged => true, Reply::PlacementUnchanged => false
);
operation!(
    ForgetReplica, bool, |it| Operation::ForgetReplica(it),
    Reply::PlacementChanged => true, Reply::PlacementUnchanged => false
);
operation!(
    UseRules, bool, |it| Operation::UseRules(it.0), Reply::RulesBegun => true, Reply::RulesUnchanged => false
);
operation!(RecordGatewayCertificate, (), |it| Operation::RecordGatewayCertificate(it), Reply::Recorded => ());
operation!(
    ForgetGateway, bool, |it| Operation::ForgetGateway(it), Reply::Forgotten { identities } => identities > 0
);
operation!(RotateIssuing, |it| Operation::RotateIssuing(it));
operation!(TrustRoot, |it| Operation::TrustRoot(it));
operation!(AcknowledgeRoot, |it| Operation::AcknowledgeRoot(it));
operation!(SignWithNextRoot, |it| Operation::SignWithNextRoot(it));
operation!(EndControllerIssuer, |it| Operation::EndControllerIssuer(it));
operation!(AgreeOnTime, (), |it| Operation::AgreeOnTime(it), Reply::TimeAgreed => ());
operation!(CancelRoot, |it| Operation::CancelRoot(it));
operation!(HastenRoot, |it| Operation::HastenRoot(it));
operation!(NameRoot, |it| Operation::NameRoot(it));
operation!(RetireCa, |it| Operation::RetireCa(it.0));
operation!(Rekey, usize, |it| Operation::Rekey(it.0), Reply::Rekeyed { keys } => keys);
