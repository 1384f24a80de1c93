//! An issuer without a ledger, which shows that consumers need no more than [`Issuer`].

use std::collections::BTreeMap;
use std::sync::Mutex;

use futures_util::future::BoxFuture;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer as Signer, KeyPair};
use smc_authority::pki::{SerialNumber, ServiceCertificate, TrustBundle, Validity};
use smc_authority::rules::{RenewalPlan, WantedCertificates};
use smc_types::ids::{ProxyName, ServiceAccountId};
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::admission::{client_at, handshake};
use super::*;
use crate::renewal::Renewer;
use crate::tls::ServerTls;
use crate::{Announcement, IssuedController, IssuedProxy, IssuedService};

/// Signs with a root in memory. Service certificates fall due when a test says so.
pub(crate) struct FakeIssuer {
    root: CertificateParams,
    root_key: KeyPair,
    root_pem: String,
    issued: Mutex<u8>,
    services: Mutex<BTreeMap<ServiceAccountId, IssuedService>>,
    /// The issued proxy certificates, in order.
    pub(crate) proxies: Mutex<Vec<(ProxyName, ServiceAccountId, IssuedProxy)>>,
    announcements: broadcast::Sender<Announcement>,
}

#[expect(clippy::disallowed_methods, reason = "a key of this test's own, which decides nothing")]
fn new_key() -> KeyPair {
    KeyPair::generate().unwrap()
}

fn validity() -> Validity {
    Validity { not_before: START.minus(DAY), not_after: START.plus(30 * DAY) }
}

impl FakeIssuer {
    pub(crate) fn new() -> Self {
        let root_key = new_key();
        let mut root = CertificateParams::new(Vec::new()).unwrap();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        root.distinguished_name.push(DnType::CommonName, "a root of a test");
        let root_pem = root.self_signed(&root_key).unwrap().pem();
        Self {
            root,
            root_key,
            root_pem,
            issued: Mutex::new(0),
            services: Mutex::default(),
            proxies: Mutex::default(),
            announcements: broadcast::Sender::new(4),
        }
    }

    /// A serial number, a certificate and its key.
    fn sign(&self, names: Vec<String>) -> (SerialNumber, String, Zeroizing<String>) {
        let mut issued = self.issued.lock().unwrap();
        *issued += 1;
        let key = new_key();
        let signer = Signer::from_params(&self.root, &self.root_key);
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &signer).unwrap();
        let key_pem = Zeroizing::new(key.serialize_pem());
        (SerialNumber::draw([*issued; 16]), certificate.pem(), key_pem)
    }
}

impl Issuer for FakeIssuer {
    fn issue_service(
        &self,
        account: &ServiceAccountId,
        _: Option<Duration>,
    ) -> BoxFuture<'_, Result<IssuedService, CaError>> {
        let (serial, chain_pem, key_pem) = self.sign(vec![account.name().to_owned()]);
        let certificate = ServiceCertificate { chain_pem, key_pem };
        let issued = IssuedService { serial, validity: validity(), issued_at: START, certificate };
        self.services.lock().unwrap().insert(account.clone(), issued.clone());
        Box::pin(async { Ok(issued) })
    }

    fn service(&self, account: &ServiceAccountId) -> Result<Option<IssuedService>, CaError> {
        Ok(self.services.lock().unwrap().get(account).cloned())
    }

    fn service_validity(&self, account: &ServiceAccountId) -> Option<(SerialNumber, Validity)> {
        self.services.lock().unwrap().get(account).map(|issued| (issued.serial, issued.validity))
    }

    fn plan_renewal(&self, wanted: &WantedCertificates) -> RenewalPlan {
        let services = self.services.lock().unwrap();
        let due: Vec<_> =
            wanted.accounts.iter().filter(|account| !services.contains_key(account)).cloned().collect();
        RenewalPlan { missing: due.len(), due, next: None }
    }

    fn issue_proxy(
        &self,
        proxy: &ProxyName,
        account: &ServiceAccountId,
    ) -> BoxFuture<'_, Result<IssuedProxy, CaError>> {
        let (serial, chain_pem, key_pem) = self.sign(Vec::new());
        let issued = IssuedProxy { serial, validity: validity(), chain_pem, key_pem };
        self.proxies.lock().unwrap().push((proxy.clone(), account.clone(), issued.clone()));
        Box::pin(async { Ok(issued) })
    }

    fn issue_controller(&self, names: &ControllerNames) -> BoxFuture<'_, Result<IssuedController, CaError>> {
        let (serial, chain_pem, key_pem) = self.sign(names.dns.clone());
        let (validity, issuer) = (validity(), SerialNumber::draw([0; 16]));
        Box::pin(async move {
            Ok(IssuedController { serial, validity, issued_at: START, issuer, chain_pem, key_pem })
        })
    }

    fn bundle(&self) -> TrustBundle {
        TrustBundle { pem: self.root_pem.clone() }
    }

    fn controllers_issuer(&self) -> Option<SerialNumber> {
        Some(SerialNumber::draw([0; 16]))
    }

    fn announcements(&self) -> broadcast::Receiver<Announcement> {
        self.announcements.subscribe()
    }
}

#[tokio::test]
async fn the_renewer_needs_no_more_than_an_issuer() {
    let issuer = Arc::new(FakeIssuer::new());
    let accounts = [account("v1"), account("v2")];
    let (wanted, receiver) =
        watch::channel(WantedCertificates { accounts: accounts.clone().into(), lifetime: None });
    let (issued, mut certificates) = mpsc::channel(4);
    let env = fixed::env(START, 1).0;
    let renewer = Renewer { issuer: Arc::<FakeIssuer>::clone(&issuer), env, wanted: receiver, issued };
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(renewer.run(shutdown.clone()));
    for _ in &accounts {
        let (account, certificate) = certificates.recv().await.unwrap();
        assert_eq!(certificate, issuer.service(&account).unwrap().map(|issued| issued.certificate));
    }
    wanted.send_replace(WantedCertificates { accounts: [account("v2")].into(), lifetime: None });
    assert_eq!(certificates.recv().await.unwrap(), (account("v1"), None));
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn tls_needs_no_more_than_an_issuer() {
    let issuer = Arc::new(FakeIssuer::new());
    let env = fixed::env(START, 1).0;
    let server = ServerTls::start(Arc::<FakeIssuer>::clone(&issuer), env, names()).await.unwrap();
    assert!(server.trusts(&issuer.bundle()));
    assert!(!server.renew_if_due().await.unwrap());
    let proxy = issuer.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap();
    let bundle = issuer.bundle();
    let client = |credentials| client_at(START, &bundle, credentials);
    handshake(&server, client(Some((&proxy.chain_pem, &proxy.key_pem))), "localhost").await.unwrap();
    handshake(&server, client(None), "localhost").await.unwrap_err();
}
