//! What must hold in a simulation, and the state that it is judged by.

use std::collections::BTreeSet;
use std::time::Duration;

use smc_authority::ledger::Ledger;
use smc_authority::pki::SerialNumber;
use smc_testkit::eventually::{self, Patience};
use smc_types::ids::ServiceAccountId;

use crate::replica::Replica;
use crate::trace::Trace;

/// Longer than anything takes on a network without faults.
pub const SOON: Duration = Duration::from_secs(10);

/// How often a condition is checked.
const POLL: Duration = Duration::from_millis(5);

/// Waits until a condition holds.
///
/// # Panics
///
/// If it does not hold within `limit`.
pub async fn eventually(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    eventually::eventually(Patience { limit, pause: POLL }, what, async || holds()).await;
}

/// Waits until all replicas have applied the same log, and checks that no acknowledged proxy certificate is
/// lost.
///
/// # Panics
///
/// If the replicas do not agree soon, or one of them lacks a serial number in `acknowledged`.
pub async fn nothing_is_lost(replicas: &[Replica], acknowledged: &BTreeSet<String>, trace: &Trace) {
    let states = || replicas.iter().map(state_hash).collect::<BTreeSet<_>>();
    eventually(SOON, "all replicas have applied the same", || states().len() == 1).await;
    for replica in replicas {
        let missing: Vec<_> =
            acknowledged.iter().filter(|serial| !has_certificate(replica, serial)).collect();
        assert!(missing.is_empty(), "replica {} lacks {missing:?}", replica.id());
    }
    trace.note("operator", format!("{} acknowledged, none lost", acknowledged.len()));
}

/// The leader that a replica knows.
pub fn leader(replica: &Replica) -> Option<u64> {
    Some(replica.status()?.leader?.0)
}

/// The service certificate of an account of the namespace `shop` in a replica's ledger.
///
/// # Panics
///
/// If `account` is no name of an account.
pub fn service_certificate(replica: &Replica, account: &str) -> Option<SerialNumber> {
    let account = ServiceAccountId::new("shop", account).unwrap();
    replica.ledger(|ledger| ledger.service_certificate(&account).map(|record| record.serial))
}

/// Whether all replicas have the same service certificate for an account.
pub fn all_have_certificate(replicas: &[Replica], account: &str) -> bool {
    let found: BTreeSet<_> = replicas.iter().map(|replica| service_certificate(replica, account)).collect();
    found.len() == 1 && !found.contains(&None)
}

/// The root of the authority in a replica's ledger.
pub fn root(replica: &Replica) -> String {
    replica.ledger(|ledger| format!("{:?}", ledger.authority().map(|authority| &authority.root)))
}

fn state_hash(replica: &Replica) -> String {
    replica.ledger(Ledger::state_hash).unwrap().to_string()
}

fn has_certificate(replica: &Replica, serial: &str) -> bool {
    replica.ledger(|ledger| ledger.proxy_certificates().any(|(found, _)| found.to_string() == serial))
}
