//! Commands for tests.

use std::time::Duration;

use smc_authority::ledger::{
    Authority, CaCertificate, Command, Ledger, Operation, RecordProxyCertificate, StateHash,
};
use smc_authority::pki::{Fingerprint, SealedKey, SerialNumber, Validity};
use smc_types::ids::{ProxyName, ProxyUuid, ServiceAccountId, TrustDomain};
use smc_types::time::Timestamp;

use crate::group::Group;
use crate::replicated::ReplicatedLedger;

pub(super) const NOW: Timestamp = Timestamp(1_800_000_000);

pub(super) fn serial(n: u32) -> SerialNumber {
    let mut bytes = [0; 16];
    bytes[12..].copy_from_slice(&n.to_be_bytes());
    SerialNumber::draw(bytes)
}

fn year() -> Validity {
    Validity { not_before: NOW, not_after: NOW.plus(Duration::from_hours(365 * 24)) }
}

/// The command that founds the authority.
pub(crate) fn found() -> Command {
    let ca = |n| CaCertificate {
        serial: serial(n),
        validity: year(),
        certificate_pem: "PEM".to_owned(),
        key: SealedKey { encryption_key: "k".to_owned(), sealed: vec![1] },
    };
    let trust_domain = TrustDomain::new("cluster.local").unwrap();
    let authority = Authority::new(trust_domain, ca(0), ca(1));
    Command { at: NOW, operation: Operation::InitAuthority(Box::new(authority)) }
}

/// The command that records certificate `n`, from 2 on, of a proxy of its own.
pub(crate) fn issue(n: u32) -> Command {
    let operation = Operation::RecordProxyCertificate(RecordProxyCertificate {
        serial: serial(n),
        proxy: ProxyName::new(ProxyUuid(uuid::Uuid::from_u128(n.into())), "bookstore").unwrap(),
        service_account: Some(ServiceAccountId::new("bookstore", "v1").unwrap()),
        validity: year(),
        issuer: serial(1),
        fingerprint: Fingerprint::of(&n.to_be_bytes()),
    });
    Command { at: NOW, operation }
}

pub(super) fn hash(group: &Group) -> StateHash {
    group.local().read(Ledger::state_hash).unwrap()
}

pub(super) fn holds(group: &Group, n: u32) -> bool {
    group.local().read(|ledger| ledger.proxy_certificate(&serial(n)).is_some())
}

pub(super) async fn commit(group: &Group, commands: Vec<Command>) {
    for outcome in group.propose(commands).await.unwrap() {
        outcome.unwrap();
    }
}
