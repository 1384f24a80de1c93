//! Clients that pass the TLS handshake, and proxies that are admitted after it.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use smc_authority::pki::TrustBundle;
use smc_authority::rules::{Admission, KnownWorkload, Refusal, admit};
use tempfile::TempDir;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::tls::ServerTls;
use crate::verify::peer_certificate;

async fn server(test: &TestCa) -> ServerTls {
    let issuer: Arc<dyn Issuer> = Arc::<BuiltinCa>::clone(&test.ca);
    ServerTls::start(issuer, test.env.clone(), names()).await.unwrap()
}

/// A client that trusts `bundle` and presents `identity` (chain, key), at the start time.
fn client(bundle: &TrustBundle, identity: Option<(&str, &str)>) -> ClientConfig {
    client_at(START, bundle, identity)
}

/// A client that trusts `bundle` and presents `identity` (chain, key), at this time.
pub(super) fn client_at(
    now: Timestamp,
    bundle: &TrustBundle,
    identity: Option<(&str, &str)>,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(bundle.pem.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_details(provider, Arc::new(At(now)))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>().unwrap();
            builder
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                .unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

#[derive(Debug)]
struct At(Timestamp);

impl rustls::time_provider::TimeProvider for At {
    fn current_time(&self) -> Option<rustls::pki_types::UnixTime> {
        Some(rustls::pki_types::UnixTime::since_unix_epoch(self.0.since(Timestamp(0))))
    }
}

/// Performs a TLS handshake with the server's configuration. Returns the client's certificate, or fails if
/// either side rejects the other.
pub(super) async fn handshake(
    server: &ServerTls,
    client: ClientConfig,
    name: &'static str,
) -> std::io::Result<CertificateDer<'static>> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let connector = TlsConnector::from(Arc::new(client));
    let (accepted, connected) = tokio::join!(
        TlsAcceptor::from(server.config()).accept(near),
        connector.connect(ServerName::try_from(name).unwrap(), far),
    );
    connected?;
    let accepted = accepted?;
    assert_eq!(accepted.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    Ok(accepted.get_ref().1.peer_certificates().unwrap()[0].clone())
}

fn decide(test: &TestCa, der: &[u8]) -> Result<Admission, Refusal> {
    let peer = peer_certificate(der).unwrap();
    let find = |name: &ProxyName| {
        (*name == proxy("v1")).then(|| KnownWorkload {
            workload: WorkloadId::new("bookstore", "v1").unwrap(),
            service_account: account("v1"),
        })
    };
    test.ca.ledger().local().read(|ledger| admit(&peer, ledger, find, test.env.now()))
}

#[tokio::test]
async fn a_proxy_gets_in_with_its_certificate_until_it_is_released() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let server = server(&test).await;
    let issued = test.ca.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap();
    let bundle = test.ca.bundle();
    for name in ["smc-controller.smc-system", "localhost", "127.0.0.1"] {
        let client = client(&bundle, Some((&issued.chain_pem, &issued.key_pem)));
        let shown = handshake(&server, client, name).await.unwrap();
        let admission = decide(&test, &shown).unwrap();
        assert_eq!((admission.proxy, admission.serial), (proxy("v1"), issued.serial));
        assert_eq!(admission.service_account, account("v1"));
    }
    proxies(&test.ca, &test.env).release(&proxy("v1")).await.unwrap();
    let client = client(&bundle, Some((&issued.chain_pem, &issued.key_pem)));
    let shown = handshake(&server, client, "localhost").await.unwrap();
    assert!(matches!(decide(&test, &shown), Err(Refusal::Released { .. })));
}

#[tokio::test]
async fn a_service_certificate_opens_a_connection_and_gets_nothing() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let server = server(&test).await;
    let issued = test.ca.issue_service(&account("v1"), None).await.unwrap().certificate;
    let client = client(&test.ca.bundle(), Some((&issued.chain_pem, &issued.key_pem)));
    let shown = handshake(&server, client, "localhost").await.unwrap();
    assert_eq!(decide(&test, &shown), Err(Refusal::OtherKind("a service certificate")));
}

#[tokio::test]
async fn neither_the_controllers_own_nor_no_certificate_passes_the_handshake() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let server = server(&test).await;
    let own = test.ca.issue_controller(&names()).await.unwrap();
    let bundle = test.ca.bundle();
    for identity in [None, Some((own.chain_pem.as_str(), own.key_pem.as_str()))] {
        assert!(handshake(&server, client(&bundle, identity), "localhost").await.is_err());
    }
}

#[tokio::test]
async fn a_certificate_of_another_mesh_does_not_pass_the_handshake() {
    let (dir, other_dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (here, other) = (test_ca(dir.path()).await, ca_at(other_dir.path(), START, 9).await);
    let server = server(&here).await;
    // The same proxy, the same names, another root.
    let issued = other.ca.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap();
    let client = client(&here.ca.bundle(), Some((&issued.chain_pem, &issued.key_pem)));
    assert!(handshake(&server, client, "localhost").await.is_err());
}

#[tokio::test]
async fn an_ended_proxy_certificate_does_not_pass_the_handshake() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let issued = test.ca.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap();
    let server = server(&test).await;
    test.clock.advance(366 * DAY);
    let client = client(&test.ca.bundle(), Some((&issued.chain_pem, &issued.key_pem)));
    assert!(handshake(&server, client, "localhost").await.is_err());
}

#[tokio::test]
async fn a_workload_that_poses_as_the_controller_is_not_believed() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let svid = test.ca.issue_service(&account("v1"), None).await.unwrap().certificate;
    let issued = test.ca.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap();
    let chain = CertificateDer::pem_slice_iter(svid.chain_pem.as_bytes()).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(svid.key_pem.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut impostor = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    impostor.alpn_protocols = vec![b"h2".to_vec()];
    let (near, far) = tokio::io::duplex(64 * 1024);
    let config = client(&test.ca.bundle(), Some((&issued.chain_pem, &issued.key_pem)));
    let connector = TlsConnector::from(Arc::new(config));
    let (_accepted, connected) = tokio::join!(
        TlsAcceptor::from(Arc::new(impostor)).accept(near),
        connector.connect(ServerName::try_from("smc-controller.smc-system").unwrap(), far),
    );
    let error = connected.err().unwrap().to_string();
    assert!(error.contains("not valid for name"), "{error}");
}

#[tokio::test]
async fn the_server_renews_its_own_certificate_and_drops_no_connection_for_it() {
    let dir = TempDir::new().unwrap();
    let test = test_ca(dir.path()).await;
    let server = Arc::new(server(&test).await);
    let before = server.config();
    test.clock.advance(40 * HOUR);
    let shutdown = CancellationToken::new();
    let task = tokio::spawn({
        let (server, shutdown) = (Arc::clone(&server), shutdown.clone());
        async move { server.run(shutdown).await }
    });
    let renewed = async {
        while Arc::ptr_eq(&before, &server.config()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), renewed).await.unwrap();
    shutdown.cancel();
    task.await.unwrap();
    assert_eq!(test.ca.ledger().local().read(|ledger| ledger.controller_certificates().count()), 2);
}
