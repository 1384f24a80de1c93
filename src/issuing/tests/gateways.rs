//! Certificates of gateways: what is in them, and what they cannot pass for.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use smc_authority::ledger::Rejection;
use smc_authority::rules::{Refusal, identify, service_identity};
use tempfile::TempDir;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::*;
use crate::verify::peer_certificate;
use crate::{IssuedKind, Rotate};

#[tokio::test]
async fn a_gateways_certificate_passes_for_no_workload_no_proxy_and_no_server() {
    let dir = TempDir::new().unwrap();
    let test = latest_ca(dir.path(), START, 1).await;
    // The name is that of an account in the mesh, as OSM's guides have it.
    let wanted = gateway(&["v1.bookstore.cluster.local", "gateway.example"]);
    test.ca.issue_gateway(&wanted).await.unwrap();
    let issued = test.ca.gateway(&wanted).unwrap().unwrap();
    let der = CertificateDer::from_pem_slice(issued.certificate.chain_pem.as_bytes()).unwrap();
    let peer = peer_certificate(&der).unwrap();
    assert_eq!(peer.dns_names, ["gateway.example", "v1.bookstore.cluster.local"]);
    assert!(peer.uris.is_empty() && peer.common_names.is_empty() && !peer.ca && peer.client_auth);
    assert_eq!(service_identity(&peer, test.ca.trust_domain()), None);
    let identified = test.ca.ledger().local().read(|ledger| identify(&peer, ledger, START));
    assert!(matches!(identified, Err(Refusal::BadName(_) | Refusal::OtherKind(_))), "{identified:?}");
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    assert!(!certificate.extended_key_usage().unwrap().unwrap().value.server_auth);
    assert!(certificate.subject_alternative_name().unwrap().unwrap().critical);
    let life = issued.validity.not_after.since(START);
    assert!(life >= 21 * HOUR && life <= 27 * HOUR, "{life:?}");
    assert_eq!(test.ca.list().iter().filter(|one| one.kind == IssuedKind::Gateway).count(), 1);
}

#[tokio::test]
async fn a_gateways_certificate_outlives_a_restart_and_follows_what_is_asked() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let wanted = gateway(&["a.example"]);
    let refused = test.ca.issue_gateway(&wanted).await.unwrap_err();
    assert!(matches!(refused, CaError::Rejected { source: Rejection::RulesNotBegun(_), .. }), "{refused}");
    drop(test);
    let test = latest_ca(dir.path(), START, 2).await;
    test.ca.issue_gateway(&wanted).await.unwrap();
    let first = test.ca.gateway(&wanted).unwrap().unwrap();
    drop(test);

    let test = latest_ca(dir.path(), START.plus(HOUR / 2), 3).await;
    assert_eq!(test.ca.gateway(&wanted).unwrap().as_ref(), Some(&first));
    test.ca.rotate(Rotate::Issuing).await.unwrap();
    let other = gateway(&["b.example"]);
    assert_eq!(test.ca.gateway(&other).unwrap(), None, "it has another name");
    test.ca.issue_gateway(&other).await.unwrap();
    assert_eq!(test.ca.gateway(&wanted).unwrap(), None);
    let second = test.ca.gateway(&other).unwrap().unwrap();
    assert_ne!(second.serial, first.serial);
    assert!(second.certificate.key_pem != first.certificate.key_pem, "a key of its own");
    test.ca.forget_gateway(&wanted.secret, first.serial).await.unwrap();
    assert_eq!(test.ca.gateway(&other).unwrap(), Some(second.clone()), "it was replaced meanwhile");
    test.ca.forget_gateway(&wanted.secret, second.serial).await.unwrap();
    assert_eq!(test.ca.gateway(&other).unwrap(), None);
}
