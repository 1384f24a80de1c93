//! When the service certificate of an identity is forgotten that no workload has.
//!
//! Owns the count. A source may lose sight of a workload that still runs, and one that is deployed again is
//! away for a while, so an identity is forgotten only after it was missing at every check for
//! [`UNUSED_KEPT`]. It may be forgotten by mistake: a workload that has it gets another certificate, and
//! the former one stays trusted until it ends.

use std::collections::BTreeSet;
use std::time::Duration;

use super::absences::Absences;
use crate::ledger::{ForgetService, Ledger, UNUSED_KEPT};
use crate::pki::SerialNumber;
use smc_types::ids::ServiceAccountId;
use smc_types::time::Timestamp;

/// How long each identity on record has been without a workload. After a restart the count begins again.
#[derive(Debug, Clone)]
pub struct UnusedIdentities(
    /// With the certificate that is current since then: a renewed one is in use.
    Absences<(ServiceAccountId, SerialNumber)>,
);

impl Default for UnusedIdentities {
    fn default() -> Self {
        Self(Absences::new(Self::PERIOD))
    }
}

impl UnusedIdentities {
    /// The interval of checks.
    pub const PERIOD: Duration = Duration::from_mins(1);

    /// Counts one check. `wanted` are the identities that workloads have; `None` if the mesh is not visible:
    /// such a check does not count. Returns what to forget now, sorted; later checks return it again while
    /// it is on record, so that a failure is retried.
    pub fn check(
        &mut self,
        ledger: &Ledger,
        wanted: Option<&BTreeSet<ServiceAccountId>>,
        now: Timestamp,
    ) -> Vec<ForgetService> {
        let Some(wanted) = wanted else {
            self.0.blind();
            return Vec::new();
        };
        let unused = ledger.service_certificates().filter(|(account, _)| !wanted.contains(account));
        let unused = unused.map(|(account, record)| (account.clone(), record.serial));
        let due = self.0.look(unused, now).filter(|(_, absence)| *absence >= UNUSED_KEPT);
        due.map(|((account, serial), _)| ForgetService { account: account.clone(), serial: *serial })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{
        Authority, CaCertificate, Command, Operation, RecordServiceCertificate, ServiceCertificateRecord,
    };
    use crate::pki::{SealedKey, Validity};
    use smc_types::ids::TrustDomain;

    const START: Timestamp = Timestamp(1_800_000_000);

    fn account(name: &str) -> ServiceAccountId {
        ServiceAccountId::new("shop", name).unwrap()
    }

    fn serial(n: u8) -> SerialNumber {
        SerialNumber::draw([n; 16])
    }

    /// A ledger without a certificate.
    fn founded() -> Ledger {
        let validity = Validity { not_before: START, not_after: START.plus(Duration::from_hours(100)) };
        let key = SealedKey { encryption_key: String::new(), sealed: vec![] };
        let ca = |n| CaCertificate {
            serial: serial(n),
            validity,
            certificate_pem: String::new(),
            key: key.clone(),
        };
        let authority = Authority::new(TrustDomain::new("cluster.local").unwrap(), ca(100), ca(101));
        let mut ledger = Ledger::default();
        let operation = Operation::InitAuthority(Box::new(authority));
        ledger.apply(&Command { at: START, operation }).unwrap();
        ledger
    }

    fn issue(ledger: &mut Ledger, name: &str, n: u8) {
        let replaces = ledger.service_certificate(&account(name)).map(|record| record.serial);
        let record = ServiceCertificateRecord {
            serial: serial(n),
            validity: Validity { not_before: START, not_after: START.plus(Duration::from_hours(48)) },
            issued_at: START,
            issuer: serial(101),
            chain_pem: String::new(),
            key: SealedKey { encryption_key: String::new(), sealed: vec![] },
        };
        let operation = Operation::RecordServiceCertificate(RecordServiceCertificate {
            account: account(name),
            replaces,
            record: Box::new(record),
            requested: false,
        });
        ledger.apply(&Command { at: START, operation }).unwrap();
    }

    /// Checks every minute from `from` to `to`. Returns the first minute at which something is forgotten.
    fn forgotten_at(
        unused: &mut UnusedIdentities,
        ledger: &Ledger,
        (from, to): (i64, i64),
        wanted: Option<&[&str]>,
    ) -> Option<(i64, Vec<ForgetService>)> {
        let wanted = wanted.map(|names| names.iter().map(|name| account(name)).collect());
        (from..=to).find_map(|minute| {
            let due = unused.check(ledger, wanted.as_ref(), Timestamp(START.0 + 60 * minute));
            (!due.is_empty()).then_some((minute, due))
        })
    }

    fn forget(name: &str, n: u8) -> ForgetService {
        ForgetService { account: account(name), serial: serial(n) }
    }

    #[test]
    fn an_identity_without_a_workload_is_forgotten_after_an_hour() {
        let mut ledger = founded();
        issue(&mut ledger, "buyer", 1);
        issue(&mut ledger, "store", 2);
        let mut unused = UnusedIdentities::default();
        let due = forgotten_at(&mut unused, &ledger, (0, 200), Some(&["store"]));
        assert_eq!(due, Some((60, vec![forget("buyer", 1)])));
        // Until it is forgotten.
        let due = forgotten_at(&mut unused, &ledger, (61, 200), Some(&["store"]));
        assert_eq!(due, Some((61, vec![forget("buyer", 1)])));
    }

    #[test]
    fn what_is_seen_or_renewed_once_is_counted_from_the_start() {
        for renewed in [false, true] {
            let mut ledger = founded();
            issue(&mut ledger, "buyer", 1);
            let mut unused = UnusedIdentities::default();
            assert_eq!(forgotten_at(&mut unused, &ledger, (0, 59), Some(&[])), None);
            let current = if renewed { 2 } else { 1 };
            if renewed {
                issue(&mut ledger, "buyer", 2);
            } else {
                assert_eq!(forgotten_at(&mut unused, &ledger, (60, 60), Some(&["buyer"])), None);
            }
            let due = forgotten_at(&mut unused, &ledger, (61, 200), Some(&[]));
            assert_eq!(due, Some((121, vec![forget("buyer", current)])), "{renewed}");
        }
    }

    #[test]
    fn nothing_counts_while_the_mesh_is_not_visible_or_the_clock_jumps() {
        let mut ledger = founded();
        issue(&mut ledger, "buyer", 1);
        let mut unused = UnusedIdentities::default();
        assert_eq!(forgotten_at(&mut unused, &ledger, (0, 30), Some(&[])), None);
        assert_eq!(forgotten_at(&mut unused, &ledger, (31, 500), None), None);
        assert_eq!(forgotten_at(&mut unused, &ledger, (501, 520), Some(&[])), None);
        // Two minutes of a year, and none of the way back.
        assert_eq!(forgotten_at(&mut unused, &ledger, (525_600, 525_600), Some(&[])), None);
        assert_eq!(forgotten_at(&mut unused, &ledger, (531, 531), Some(&[])), None);
        assert_eq!(forgotten_at(&mut unused, &ledger, (532, 900), Some(&[])).map(|due| due.0), Some(540));
    }
}
