//! The content of certificates, and that they are on record before they are returned.

use std::sync::atomic::{AtomicBool, Ordering};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use smc_authority::ledger::{ProxyCertificateState, Rejection};
use smc_authority::pki::BACKDATE;
use smc_authority::rules::service_identity;
use smc_raft::ProposeError;
use smc_types::causes::causes;
use tempfile::TempDir;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::intercepted::intercepted;
use super::*;
use crate::verify::peer_certificate;
use crate::{Announcement, IssuedKind};

fn chain(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().unwrap()
}

/// Checks the chain of signatures: leaf ← issuing CA ← root.
fn check_chain(chain_pem: &str, root_pem: &str) {
    let ders = [chain(chain_pem), chain(root_pem)].concat();
    assert_eq!(ders.len(), 3, "leaf, issuing CA, root");
    let parsed: Vec<_> = ders.iter().map(|der| X509Certificate::from_der(der).unwrap().1).collect();
    for pair in parsed.windows(2) {
        assert_eq!(pair[0].issuer(), pair[1].subject());
        pair[0].verify_signature(Some(pair[1].public_key())).unwrap();
    }
    parsed[2].verify_signature(None).unwrap();
    let path_lengths: Vec<_> = parsed
        .iter()
        .map(|certificate| {
            let constraints = certificate.basic_constraints().unwrap();
            constraints.and_then(|found| found.value.path_len_constraint)
        })
        .collect();
    assert_eq!(path_lengths, [None, Some(0), Some(1)]);
}

#[tokio::test]
async fn a_service_certificate_is_an_svid_of_about_48_hours() {
    let dir = TempDir::new().unwrap();
    let TestCa { ca, .. } = test_ca(dir.path()).await;
    let issued = ca.issue_service(&account("v1"), None).await.unwrap();
    check_chain(&issued.certificate.chain_pem, &ca.bundle().pem);

    let der = chain(&issued.certificate.chain_pem).remove(0);
    let peer = peer_certificate(&der).unwrap();
    assert_eq!(peer.uris, ["spiffe://cluster.local/ns/bookstore/sa/v1"]);
    assert_eq!(service_identity(&peer, ca.trust_domain()), Some(account("v1")));
    assert_eq!((peer.common_names.len(), peer.ca, peer.client_auth), (0, false, true));
    assert_eq!(peer.serial, issued.serial.as_bytes());
    assert_eq!(peer.validity, issued.validity);
    assert_eq!(issued.validity.not_before, START.minus(BACKDATE));
    let life = issued.validity.not_after.since(START);
    assert!(life >= 43 * HOUR && life <= 53 * HOUR, "{life:?}");

    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    assert!(names.critical, "no subject, so SAN is critical");
    let dns = GeneralName::DNSName("v1.bookstore.cluster.local");
    assert_eq!(names.value.general_names.iter().filter(|name| **name == dns).count(), 1);
    assert_eq!(names.value.general_names.len(), 2);
    let usage = certificate.key_usage().unwrap().unwrap().value;
    assert!(usage.digital_signature() && !usage.key_cert_sign() && !usage.crl_sign());
    assert!(certificate.extended_key_usage().unwrap().unwrap().value.server_auth);
}

#[tokio::test]
async fn a_proxy_certificate_is_for_clients_alone_and_names_the_proxy_alone() {
    let dir = TempDir::new().unwrap();
    let TestCa { ca, .. } = test_ca(dir.path()).await;
    let issued = ca.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap();
    check_chain(&issued.chain_pem, &ca.bundle().pem);
    let der = chain(&issued.chain_pem).remove(0);
    let peer = peer_certificate(&der).unwrap();
    assert_eq!(peer.common_names, [proxy("v1").to_string()]);
    assert!(peer.uris.is_empty() && peer.client_auth && !peer.ca);
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    assert!(certificate.subject_alternative_name().unwrap().is_none());
    assert!(!certificate.extended_key_usage().unwrap().unwrap().value.server_auth);
    ca.ledger().local().read(|ledger| {
        let record = ledger.proxy_certificate(&issued.serial).unwrap();
        assert_eq!(record.fingerprint, peer.fingerprint);
        assert_eq!(record.state, ProxyCertificateState::Unclaimed);
    });
}

#[tokio::test]
async fn a_namespace_of_63_characters_fits() {
    let dir = TempDir::new().unwrap();
    let TestCa { ca, .. } = test_ca(dir.path()).await;
    let long = ProxyName::new(proxy("v1").uuid, &"n".repeat(63)).unwrap();
    let issued = ca.issue_proxy(&long, &account("v1")).await.unwrap();
    let peer = peer_certificate(&chain(&issued.chain_pem)[0]).unwrap();
    assert_eq!(peer.common_names, [long.to_string()]);
}

#[tokio::test]
async fn after_a_restart_the_same_authority_serves_the_very_same_certificate() {
    let dir = TempDir::new().unwrap();
    let before = test_ca(dir.path()).await;
    let bundle = before.ca.bundle();
    let issued = before.ca.issue_service(&account("v1"), None).await.unwrap();
    drop(before);
    let after = ca_at(dir.path(), START.plus(HOUR), 2).await;
    assert_eq!(after.ca.bundle(), bundle);
    assert_eq!(after.ca.service(&account("v1")).unwrap(), Some(issued));
    assert_eq!(after.ca.service(&account("v2")).unwrap(), None);
}

#[tokio::test]
async fn replicas_that_found_or_renew_at_the_same_moment_end_up_with_the_same() {
    let dir = TempDir::new().unwrap();
    let (a, b) = two_replicas(dir.path()).await;
    assert_eq!(a.bundle(), b.bundle());

    for _ in 0..3 {
        let v1 = account("v1");
        let (from_a, from_b) = tokio::join!(a.issue_service(&v1, None), b.issue_service(&v1, None));
        let (from_a, from_b) = (from_a.unwrap(), from_b.unwrap());
        let current = a.service(&v1).unwrap().unwrap();
        assert_eq!(b.service(&v1).unwrap().as_ref(), Some(&current));
        assert_eq!((&from_a, &from_b), (&current, &current));
    }
}

#[tokio::test]
async fn a_ledger_of_another_trust_domain_or_another_key_is_refused() {
    let dir = TempDir::new().unwrap();
    drop(test_ca(dir.path()).await);
    let (env, _) = fixed::env(START, 2);
    let error = open(dir.path(), &env, "other.example").await.err().unwrap();
    assert_eq!(causes(&error), "the ledger is of the trust domain cluster.local, not other.example");

    std::fs::remove_file(dir.path().join("kek")).unwrap();
    let error = open(dir.path(), &env, "cluster.local").await.err().unwrap();
    assert!(causes(&error).contains("sealed with the key-encryption key"), "{}", causes(&error));
}

#[tokio::test]
async fn an_ended_issuer_signs_nothing_and_the_status_warns_long_before() {
    let dir = TempDir::new().unwrap();
    let TestCa { ca, clock, .. } = test_ca(dir.path()).await;
    assert!(ca.status().warnings.is_empty());
    clock.set(START.plus(2 * 365 * DAY + DAY));
    assert_eq!(ca.status().warnings.len(), 1, "{:?}", ca.status().warnings);
    clock.set(START.plus(3 * 365 * DAY + DAY));
    let error = ca.issue_service(&account("v1"), None).await.unwrap_err();
    assert!(matches!(error, CaError::IssuerEnding { .. }), "{error}");
    let error = ca.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap_err();
    assert!(matches!(error, CaError::IssuerEnding { .. }), "{error}");
    assert!(ca.status().warnings[0].contains("has ended"), "{:?}", ca.status().warnings);
}

#[tokio::test]
async fn names_that_no_certificate_can_carry_are_refused() {
    let dir = TempDir::new().unwrap();
    let TestCa { ca, .. } = test_ca(dir.path()).await;
    let names = ControllerNames { dns: vec!["bücher.example".to_owned()], ips: vec![] };
    let error = ca.issue_controller(&names).await.unwrap_err();
    assert!(matches!(error, CaError::Signing { .. }), "{error}");
}

#[tokio::test]
async fn a_claim_is_announced_once_and_a_release_ends_it() {
    let dir = TempDir::new().unwrap();
    let TestCa { ca, env, .. } = test_ca(dir.path()).await;
    let proxies = proxies(&ca, &env);
    let mut heard = ca.announcements();
    let serial = ca.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap().serial;
    assert!(proxies.claim(serial).await.unwrap());
    assert!(!proxies.claim(serial).await.unwrap());
    assert_eq!(proxies.release(&proxy("v1")).await.unwrap(), [serial]);
    let error = proxies.claim(serial).await.unwrap_err();
    assert!(matches!(error, CaError::Rejected { source: Rejection::Released(_), .. }), "{error}");

    assert_eq!(heard.try_recv().unwrap(), Announcement::ProxyIssued { proxy: proxy("v1"), serial });
    assert_eq!(heard.try_recv().unwrap(), Announcement::ProxyClaimed { serial, released: vec![] });
    let released = Announcement::ProxyReleased { serials: vec![serial] };
    assert_eq!(heard.try_recv().unwrap(), released);
    assert!(heard.try_recv().is_err());
}

/// As when a client of the administration hangs up before the answer.
#[tokio::test]
async fn a_release_is_announced_although_its_caller_is_gone() {
    let dir = TempDir::new().unwrap();
    let TestCa { ca, env, .. } = test_ca(dir.path()).await;
    let proxies = proxies(&ca, &env);
    let serial = ca.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap().serial;
    let (mut heard, released) = (ca.announcements(), proxy("v1"));
    tokio::select! {
        biased;
        _ = proxies.release(&released) => {}
        () = std::future::ready(()) => {}
    }
    let announced = tokio::time::timeout(Duration::from_secs(10), heard.recv()).await;
    let released = Announcement::ProxyReleased { serials: vec![serial] };
    assert_eq!(announced.expect("an announcement in time").unwrap(), released);
    assert!(
        ca.ledger().local().read(|ledger| ledger.proxy_certificate(&serial).unwrap().state.is_released())
    );
}

/// The replicas share the ledger; one of them releases.
#[tokio::test]
async fn a_release_is_announced_on_every_replica() {
    let dir = TempDir::new().unwrap();
    let (asked, other) = two_replicas(dir.path()).await;
    let serial = asked.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap().serial;
    let mut heard = other.announcements();
    proxies(&asked, &fixed::env(START, 4).0).release(&proxy("v1")).await.unwrap();
    let released = Announcement::ProxyReleased { serials: vec![serial] };
    assert_eq!(heard.try_recv().unwrap(), released);
}

#[tokio::test]
async fn everything_on_record_is_listed_and_counted() {
    let dir = TempDir::new().unwrap();
    let TestCa { ca, .. } = test_ca(dir.path()).await;
    ca.issue_service(&account("v1"), None).await.unwrap();
    ca.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap();
    ca.issue_controller(&names()).await.unwrap();
    let kinds: Vec<_> = ca.list().into_iter().map(|issued| issued.kind).collect();
    assert_eq!(
        kinds,
        [
            IssuedKind::Root,
            IssuedKind::Issuing,
            IssuedKind::Service,
            IssuedKind::Proxy,
            IssuedKind::Controller
        ]
    );
    let status = ca.status();
    assert_eq!((status.service_certificates, status.proxy_unclaimed, status.proxy_claimed), (1, 1, 0));
    assert!(status.cas.len() == 2 && status.state_hash.len() == 64);
}

#[tokio::test]
async fn a_certificate_whose_record_is_not_committed_does_not_leave() {
    let dir = TempDir::new().unwrap();
    let (env, _) = fixed::env(START, 1);
    let keys = Arc::new(LocalKey::create(&dir.path().join("kek"), &env).unwrap());
    let refuses = Arc::new(AtomicBool::new(false));
    let refused = Arc::clone(&refuses);
    let ledger = intercepted(ledger(dir.path()).await, move |_| {
        let refused = refused.load(Ordering::SeqCst);
        Box::pin(async move { if refused { Err(ProposeError::Closed) } else { Ok(()) } })
    });
    let ca = BuiltinCa::open(ledger, keys, env.clone(), settings("cluster.local")).await.unwrap();
    let proxies = proxies(&ca, &env);
    let mut heard = ca.announcements();
    refuses.store(true, Ordering::SeqCst);
    for error in [
        ca.issue_service(&account("v1"), None).await.unwrap_err(),
        ca.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap_err(),
        ca.issue_controller(&names()).await.unwrap_err(),
        proxies.claim(smc_authority::pki::SerialNumber::draw([1; 16])).await.unwrap_err(),
        proxies.release(&proxy("v1")).await.unwrap_err(),
    ] {
        assert!(matches!(error, CaError::NotCommitted { .. }), "{error}");
    }
    assert!(heard.try_recv().is_err());
    assert_eq!(ca.service(&account("v1")).unwrap(), None);
    refuses.store(false, Ordering::SeqCst);
    ca.issue_service(&account("v1"), None).await.unwrap();
}
