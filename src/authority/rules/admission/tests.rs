use std::time::Duration;

use super::*;
use crate::ledger::{Authority, CaCertificate, Command, Operation, RecordProxyCertificate};
use crate::pki::SealedKey;
use smc_types::ids::ProxyUuid;

const NOW: Timestamp = Timestamp(1_800_000_000);

fn year() -> Validity {
    Validity { not_before: NOW, not_after: NOW.plus(Duration::from_hours(365 * 24)) }
}

fn serial(n: u8) -> SerialNumber {
    SerialNumber::draw([n; 16])
}

fn proxy() -> ProxyName {
    ProxyName::new(ProxyUuid(uuid::Uuid::from_bytes([7; 16])), "bookstore").unwrap()
}

fn workload(namespace: &str) -> KnownWorkload {
    KnownWorkload {
        workload: WorkloadId::new(namespace, "v1").unwrap(),
        service_account: ServiceAccountId::new(namespace, "bookstore-v1").unwrap(),
    }
}

/// The certificate that the proxy of these tests presents: number 2, issued to it, valid for a
/// year.
fn peer() -> PeerCertificate {
    PeerCertificate {
        serial: serial(2).as_bytes().to_vec(),
        common_names: vec![proxy().to_string()],
        uris: vec![],
        dns_names: vec![],
        validity: year(),
        ca: false,
        client_auth: true,
        fingerprint: Fingerprint::of(b"the certificate"),
    }
}

fn apply(ledger: &mut Ledger, operation: Operation) {
    ledger.apply(&Command { at: NOW, operation }).unwrap();
}

fn ledger() -> Ledger {
    let ca = |n| CaCertificate {
        serial: serial(n),
        validity: year(),
        certificate_pem: String::new(),
        key: SealedKey { encryption_key: String::new(), sealed: vec![] },
    };
    let trust_domain = TrustDomain::new("cluster.local").unwrap();
    let mut ledger = Ledger::default();
    apply(&mut ledger, Operation::InitAuthority(Box::new(Authority::new(trust_domain, ca(0), ca(1)))));
    apply(
        &mut ledger,
        Operation::RecordProxyCertificate(RecordProxyCertificate {
            serial: serial(2),
            proxy: proxy(),
            service_account: Some(workload("bookstore").service_account),
            validity: year(),
            issuer: serial(1),
            fingerprint: peer().fingerprint,
        }),
    );
    ledger
}

fn decide(peer: &PeerCertificate) -> Result<Admission, Refusal> {
    admit(peer, &ledger(), |_| Some(workload("bookstore")), NOW)
}

#[test]
fn a_proxy_with_its_own_certificate_is_admitted_as_its_workload() {
    let admission = decide(&peer()).unwrap();
    assert_eq!(admission.proxy, proxy());
    assert_eq!(admission.service_account.to_string(), "bookstore/bookstore-v1");
    assert!(admission.first_claim);
}

#[test]
fn a_claimed_certificate_is_admitted_again_without_a_second_claim() {
    let mut ledger = ledger();
    apply(&mut ledger, Operation::ClaimProxyCertificate(serial(2)));
    let admission = admit(&peer(), &ledger, |_| Some(workload("bookstore")), NOW).unwrap();
    assert!(!admission.first_claim);
}

#[test]
fn a_service_certificate_is_not_a_proxy_certificate() {
    let svid = "spiffe://cluster.local/ns/bookstore/sa/bookstore-v1".to_owned();
    // Not even if it copies the name and the serial number of one.
    let refusal = decide(&PeerCertificate { uris: vec![svid], ..peer() }).unwrap_err();
    assert_eq!(refusal, Refusal::OtherKind("a service certificate"));
}

#[test]
fn a_proxy_certificate_is_not_a_service_certificate() {
    let domain = TrustDomain::new("cluster.local").unwrap();
    assert_eq!(service_identity(&peer(), &domain), None);
    let uri = |uris: &[&str], ca| PeerCertificate {
        uris: uris.iter().map(|&uri| uri.to_owned()).collect(),
        ca,
        ..peer()
    };
    let good = "spiffe://cluster.local/ns/a/sa/b";
    assert_eq!(service_identity(&uri(&[good], false), &domain).unwrap().to_string(), "a/b");
    for (uris, ca) in
        [(&[good, good][..], false), (&[good], true), (&["spiffe://other/ns/a/sa/b"], false), (&[], false)]
    {
        assert_eq!(service_identity(&uri(uris, ca), &domain), None, "{uris:?} {ca}");
    }
}

#[test]
fn a_certificate_authority_and_a_mere_server_are_not_proxies() {
    assert!(matches!(decide(&PeerCertificate { ca: true, ..peer() }), Err(Refusal::OtherKind(_))));
    assert!(matches!(decide(&PeerCertificate { client_auth: false, ..peer() }), Err(Refusal::OtherKind(_))));
}

#[test]
fn a_certificate_without_exactly_one_canonical_proxy_name_is_refused() {
    let name = proxy().to_string();
    let upper = name.to_uppercase();
    for names in [
        vec![],
        vec![name.as_str(), name.as_str()],
        vec!["bookstore"],
        vec!["not-a-uuid.bookstore"],
        vec![upper.as_str()],
        vec![""],
    ] {
        let common_names = names.iter().map(|&name| name.to_owned()).collect();
        let refusal = decide(&PeerCertificate { common_names, ..peer() }).unwrap_err();
        assert!(matches!(refusal, Refusal::BadName(_)), "{names:?}: {refusal}");
    }
}

#[test]
fn a_serial_that_is_not_on_record_is_refused() {
    for serial in [serial(3).as_bytes().to_vec(), vec![1], vec![], vec![0; 4096]] {
        let refusal = decide(&PeerCertificate { serial, ..peer() }).unwrap_err();
        assert!(matches!(refusal, Refusal::NotIssued { .. }), "{refusal}");
        assert!(refusal.to_string().len() < 300);
    }
}

#[test]
fn a_certificate_with_only_the_serial_of_an_issued_one_is_refused() {
    let forged = PeerCertificate { fingerprint: Fingerprint::of(b"another"), ..peer() };
    assert_eq!(decide(&forged), Err(Refusal::NotTheIssued { proxy: proxy(), serial: serial(2) }));
}

#[test]
fn a_name_other_than_the_recorded_one_is_refused() {
    let common_names = vec![format!("{}.payments", proxy().uuid)];
    let refusal = decide(&PeerCertificate { common_names, ..peer() }).unwrap_err();
    assert!(matches!(refusal, Refusal::NotTheIssued { .. }), "{refusal}");
}

#[test]
fn a_machine_is_admitted_by_the_name_of_its_own_service_alone() {
    let machine = ProxyName::of_machine(proxy().uuid, &"bookstore/books".parse().unwrap()).unwrap();
    let mut ledger = ledger();
    let operation = Operation::RecordProxyCertificate(RecordProxyCertificate {
        serial: serial(9),
        proxy: machine.clone(),
        service_account: Some(workload("bookstore").service_account),
        validity: year(),
        issuer: serial(1),
        fingerprint: Fingerprint::of(b"the machine's"),
    });
    apply(&mut ledger, operation);
    let shown = PeerCertificate {
        serial: serial(9).as_bytes().to_vec(),
        common_names: vec![machine.to_string()],
        fingerprint: Fingerprint::of(b"the machine's"),
        ..peer()
    };
    let find = |name: &ProxyName| (*name == machine).then(|| workload("bookstore"));
    assert_eq!(admit(&shown, &ledger, find, NOW).unwrap().proxy, machine);
    for other in [proxy().to_string(), format!("{}.other.bookstore", proxy().uuid)] {
        let refusal =
            admit(&PeerCertificate { common_names: vec![other], ..shown.clone() }, &ledger, find, NOW);
        assert!(matches!(refusal, Err(Refusal::NotTheIssued { .. })), "{refusal:?}");
    }
}

#[test]
fn a_released_certificate_is_refused_for_good() {
    let mut ledger = ledger();
    apply(&mut ledger, Operation::ReleaseProxy(proxy()));
    let refusal = admit(&peer(), &ledger, |_| Some(workload("bookstore")), NOW).unwrap_err();
    assert_eq!(refusal, Refusal::Released { proxy: proxy(), serial: serial(2) });
    assert!(!refusal.temporary());
}

#[test]
fn a_certificate_outside_its_validity_is_refused() {
    for moment in [NOW.minus(Duration::from_secs(1)), year().not_after.plus(Duration::from_secs(1))] {
        let refusal = admit(&peer(), &ledger(), |_| Some(workload("bookstore")), moment).unwrap_err();
        assert!(matches!(refusal, Refusal::NotNow { .. }), "{refusal}");
    }
    assert!(admit(&peer(), &ledger(), |_| Some(workload("bookstore")), year().not_after).is_ok());
}

#[test]
fn a_proxy_without_a_workload_is_refused_for_now() {
    let refusal = admit(&peer(), &ledger(), |_| None, NOW).unwrap_err();
    assert_eq!(refusal, Refusal::NoWorkload(proxy()));
    assert!(refusal.temporary());
}

#[test]
fn a_proxy_whose_workload_is_in_another_namespace_is_refused() {
    let refusal = admit(&peer(), &ledger(), |_| Some(workload("payments")), NOW).unwrap_err();
    assert_eq!(refusal, Refusal::OtherPod(proxy()));
}

#[test]
fn an_old_certificate_gets_nothing_of_a_pod_with_another_account() {
    let replaced = KnownWorkload {
        service_account: ServiceAccountId::new("bookstore", "admin").unwrap(),
        ..workload("bookstore")
    };
    let refusal = admit(&peer(), &ledger(), |_| Some(replaced), NOW).unwrap_err();
    assert_eq!(refusal, Refusal::OtherAccount { proxy: proxy(), serial: serial(2) });
    assert!(!refusal.to_string().contains("admin"), "the refusal does not name the pod's account");
}

#[test]
fn a_certificate_without_a_service_account_on_record_matches_no_pod() {
    // The stored form from before records named the service account.
    let mut image = serde_json::to_value(ledger()).unwrap();
    for record in image["proxies"].as_object_mut().unwrap().values_mut() {
        assert!(record.as_object_mut().unwrap().remove("service_account").is_some());
    }
    let old: Ledger = serde_json::from_value(image).unwrap();
    let refusal = admit(&peer(), &old, |_| Some(workload("bookstore")), NOW).unwrap_err();
    assert_eq!(refusal, Refusal::NoAccount { proxy: proxy(), serial: serial(2) });
    assert!(!refusal.temporary());
}

#[test]
fn a_node_that_calls_itself_by_another_name_is_refused() {
    let admission = decide(&peer()).unwrap();
    assert_eq!(admission.check_node(&proxy().to_string()), Ok(()));
    for other in ["", "bookstore", &format!("{}.payments", proxy().uuid), &"x".repeat(1 << 20)] {
        let refusal = admission.check_node(other).unwrap_err();
        assert!(refusal.to_string().len() < 400);
    }
}

#[test]
fn a_certificate_is_identified_independently_of_its_workload() {
    let mut ledger = ledger();
    let identified = identify(&peer(), &ledger, NOW).unwrap();
    let account = workload("bookstore").service_account;
    assert_eq!(identified, Identified { proxy: proxy(), account, serial: serial(2), first_claim: true });
    assert_eq!(admit(&peer(), &ledger, |_| None, NOW), Err(Refusal::NoWorkload(proxy())));
    let svid = PeerCertificate { uris: vec!["spiffe://cluster.local/ns/a/sa/b".to_owned()], ..peer() };
    assert_eq!(identify(&svid, &ledger, NOW), Err(Refusal::OtherKind("a service certificate")));
    apply(&mut ledger, Operation::ReleaseProxy(proxy()));
    assert!(matches!(identify(&peer(), &ledger, NOW), Err(Refusal::Released { .. })));
}
