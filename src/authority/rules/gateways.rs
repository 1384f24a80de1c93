//! The certificates of gateways: which is due, and which is not wanted any more.
//!
//! Owns the decision as a function of what is wanted, the ledger and the time. There are few: none is
//! spread over time, and what is asked for in another way is due at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::ledger::{GatewayCertificateRecord, Ledger, Rules};
use crate::pki::{SerialNumber, renewal_time};
use smc_types::ids::NamespacedName;
use smc_types::time::Timestamp;

/// The certificate of a gateway, as MeshConfig's `certificate.ingressGateway` asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedGateway {
    /// The Secret that it goes to.
    pub secret: NamespacedName,
    /// Its DNS names; at least one.
    pub names: BTreeSet<String>,
    /// Its lifetime, before jitter.
    pub lifetime: Duration,
}

/// Whether the mesh asks for a certificate of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum IngressGateway {
    /// None is asked for: what there is goes.
    #[default]
    Absent,
    /// What is asked for cannot be read: what there is stays until it ends, and nothing is issued.
    Unreadable,
    /// This one is.
    Wanted(Arc<WantedGateway>),
}

impl WantedGateway {
    /// The certificate on record that is as wanted, and valid at `now`.
    pub fn current<'a>(&self, ledger: &'a Ledger, now: Timestamp) -> Option<&'a GatewayCertificateRecord> {
        let record = ledger.gateway_certificate(&self.secret)?;
        let is_wanted = record.names == self.names && record.lifetime == self.lifetime.as_secs();
        (is_wanted && record.certificate.validity.contains(now)).then_some(record)
    }
}

/// What is due for gateways.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GatewayPlan {
    /// Whether the wanted certificate has to be issued now.
    pub due: bool,
    /// Whether a certificate is wanted, and a member of the group does not know how.
    pub waits_for_rules: bool,
    /// The certificates that are not wanted. Their Secrets go first, then their records.
    pub unwanted: Vec<(NamespacedName, SerialNumber)>,
    /// When the wanted certificate falls due; `None` if it is due, or none is wanted.
    pub next: Option<Timestamp>,
}

/// Plans the certificates of gateways. Nothing is due before [`Rules::Fourth`], which every member of the
/// group has to know.
pub fn plan_gateways(asked: &IngressGateway, ledger: &Ledger, now: Timestamp) -> GatewayPlan {
    let wanted = match asked {
        IngressGateway::Unreadable => return GatewayPlan::default(),
        IngressGateway::Absent => None,
        IngressGateway::Wanted(wanted) => Some(&**wanted),
    };
    let others =
        ledger.gateway_certificates().filter(|(secret, _)| wanted.is_none_or(|it| it.secret != **secret));
    let unwanted = others.map(|(secret, record)| (secret.clone(), record.certificate.serial)).collect();
    let mut plan = GatewayPlan { unwanted, ..GatewayPlan::default() };
    let Some(wanted) = wanted else { return plan };
    if ledger.rules() < Rules::Fourth {
        plan.waits_for_rules = true;
        return plan;
    }
    let signing = ledger.authority().map(|authority| authority.issuing.serial);
    let kept = wanted.current(ledger, now).map(|record| &record.certificate);
    let renewal = kept
        .filter(|kept| Some(kept.issuer) == signing)
        .map(|kept| renewal_time(&kept.serial, kept.issued_at, &kept.validity));
    plan.next = renewal.filter(|renewal| now < *renewal);
    plan.due = plan.next.is_none();
    plan
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::ledger::{
        AgreeOnTime, Authority, CaCertificate, Command, Operation, RecordGatewayCertificate, RotateIssuing,
        ServiceCertificateRecord,
    };
    use crate::pki::{SealedKey, Validity};
    use smc_types::ids::TrustDomain;

    const START: Timestamp = Timestamp(1_800_000_000);
    const DAY: Duration = Duration::from_hours(24);

    fn serial(n: u8) -> SerialNumber {
        SerialNumber::draw([n; 16])
    }

    fn sealed() -> SealedKey {
        SealedKey { encryption_key: String::new(), sealed: vec![] }
    }

    fn wanted(secret: &str, names: &[&str], lifetime: Duration) -> WantedGateway {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        WantedGateway { secret: secret.parse().unwrap(), names, lifetime }
    }

    fn gateway() -> WantedGateway {
        wanted("ingress/gateway", &["a.example"], DAY)
    }

    fn apply(ledger: &mut Ledger, operation: Operation) {
        ledger.apply(&Command { at: START, operation }).unwrap();
    }

    fn ca(n: u8) -> CaCertificate {
        let validity = Validity { not_before: START, not_after: START.plus(3650 * DAY) };
        CaCertificate { serial: serial(n), validity, certificate_pem: String::new(), key: sealed() }
    }

    /// A ledger under these rules with a certificate as [`gateway`] asks for it.
    fn ledger(rules: Rules) -> Ledger {
        let mut ledger = Ledger::default();
        let authority = Authority::new(TrustDomain::new("cluster.local").unwrap(), ca(0), ca(1));
        apply(&mut ledger, Operation::InitAuthority(Box::new(authority)));
        let clocks = BTreeMap::from([(0, START)]);
        apply(&mut ledger, Operation::AgreeOnTime(AgreeOnTime { clocks }));
        apply(&mut ledger, Operation::UseRules(rules));
        if rules >= Rules::Fourth {
            let certificate = ServiceCertificateRecord {
                serial: serial(2),
                validity: Validity { not_before: START, not_after: START.plus(DAY) },
                issued_at: START,
                issuer: serial(1),
                chain_pem: String::new(),
                key: sealed(),
            };
            let WantedGateway { secret, names, lifetime } = gateway();
            let record = GatewayCertificateRecord { names, lifetime: lifetime.as_secs(), certificate };
            let record = RecordGatewayCertificate { secret, replaces: None, record: Box::new(record) };
            apply(&mut ledger, Operation::RecordGatewayCertificate(record));
        }
        ledger
    }

    fn plan(asked: WantedGateway, ledger: &Ledger, hours: u64) -> GatewayPlan {
        plan_gateways(
            &IngressGateway::Wanted(Arc::new(asked)),
            ledger,
            START.plus(Duration::from_hours(hours)),
        )
    }

    #[test]
    fn a_certificate_is_due_at_once_where_what_is_asked_for_has_changed() {
        let ledger = ledger(Rules::Fourth);
        let other = |names: &[&str], lifetime| wanted("ingress/gateway", names, lifetime);
        for (sentence, asked, hours, due) in [
            ("it is as it was", gateway(), 1, false),
            ("two thirds of its life have passed", gateway(), 17, true),
            ("it has ended", gateway(), 30, true),
            ("another name", other(&["b.example"], DAY), 1, true),
            ("one name more", other(&["a.example", "b.example"], DAY), 1, true),
            ("a shorter life", other(&["a.example"], DAY / 2), 1, true),
            ("a longer life", other(&["a.example"], 2 * DAY), 1, true),
        ] {
            let plan = plan(asked, &ledger, hours);
            assert_eq!((plan.due, plan.next.is_some(), plan.unwanted.len()), (due, !due, 0), "{sentence}");
        }
    }

    #[test]
    fn a_certificate_is_due_at_once_where_another_ca_signs() {
        let mut ledger = ledger(Rules::Fourth);
        let rotate = RotateIssuing { replaces: serial(1), issuing: Box::new(ca(3)) };
        apply(&mut ledger, Operation::RotateIssuing(rotate));
        assert!(plan(gateway(), &ledger, 0).due);
    }

    #[test]
    fn another_secret_is_written_and_the_former_one_goes() {
        let ledger = ledger(Rules::Fourth);
        let plan = plan(wanted("ingress/other", &["a.example"], DAY), &ledger, 1);
        let former = ("ingress/gateway".parse().unwrap(), serial(2));
        assert_eq!(plan, GatewayPlan { due: true, unwanted: vec![former], ..GatewayPlan::default() });
    }

    #[test]
    fn what_is_asked_for_no_more_goes_and_what_cannot_be_read_stays() {
        let ledger = ledger(Rules::Fourth);
        let gone = plan_gateways(&IngressGateway::Absent, &ledger, START);
        assert_eq!((gone.due, gone.unwanted.len()), (false, 1));
        for hours in [1, 17, 30] {
            let now = START.plus(Duration::from_hours(hours));
            assert_eq!(plan_gateways(&IngressGateway::Unreadable, &ledger, now), GatewayPlan::default());
        }
    }

    #[test]
    fn nothing_is_due_while_a_member_of_the_group_does_not_know_how() {
        let expected = GatewayPlan { waits_for_rules: true, ..GatewayPlan::default() };
        assert_eq!(plan(gateway(), &ledger(Rules::Third), 1), expected);
    }
}
