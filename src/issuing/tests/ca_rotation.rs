//! CA rotation over several replicas, with real certificates: valid peers trust each other at every step.

use std::collections::BTreeSet;
use std::sync::Mutex;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use smc_authority::ledger::{Command, Operation, Rejection, SignedFor};
use smc_authority::pki::{SerialNumber, TrustBundle};
use smc_authority::rules::{DeclaredRoots, WantedCertificates, plan_renewal};
use tempfile::TempDir;

use super::admission::{client_at, handshake};
use super::intercepted::intercepted;
use super::*;
use crate::tls::ServerTls;
use crate::{CaState, IssuedProxy, Rotate};

/// The replicas of the group.
const REPLICAS: [u64; 2] = [0, 1];

/// Replicas that share a ledger and a clock.
struct Replicas {
    ledger: Arc<dyn ReplicatedLedger>,
    keys: Arc<LocalKey>,
    clock: Arc<SettableClock>,
    env: Env,
    cas: Vec<Arc<BuiltinCa>>,
    servers: Vec<ServerTls>,
}

/// A proxy's bootstrap, which never changes.
struct Bootstrap {
    issued: IssuedProxy,
    roots: TrustBundle,
}

/// A workload's certificate, and the roots that it trusts.
struct Workload {
    chain_pem: String,
    roots: TrustBundle,
}

impl Replicas {
    async fn start(dir: &Path) -> Self {
        let (env, clock) = fixed::env(START, 1);
        let keys = Arc::new(LocalKey::create(&dir.join("kek"), &env).unwrap());
        let ledger = ledger(dir).await;
        let mut replicas = Self { ledger, keys, clock, env, cas: Vec::new(), servers: Vec::new() };
        replicas.restart().await;
        replicas
    }

    /// Restarts all processes: only the ledger and the key remain.
    async fn restart(&mut self) {
        self.cas.clear();
        self.servers.clear();
        for _ in REPLICAS {
            let (ledger, keys) = (Arc::clone(&self.ledger), Arc::<LocalKey>::clone(&self.keys));
            let ca = BuiltinCa::open(ledger, keys, self.env.clone(), settings("cluster.local")).await;
            let ca = Arc::new(ca.unwrap());
            self.cas.push(Arc::clone(&ca));
            self.servers.push(ServerTls::start(ca, self.env.clone(), names()).await.unwrap());
        }
    }

    /// One replica takes the step that is due.
    async fn maintain(&self, replica: usize) {
        self.cas[replica].maintain(&BTreeSet::from(REPLICAS), true, &DeclaredRoots::none()).await.unwrap();
    }

    async fn serve(&self) {
        for server in &self.servers {
            server.renew_if_due().await.unwrap();
        }
    }

    async fn bootstrap(&self, name: &str) -> Bootstrap {
        let issued = self.cas[0].issue_proxy(&proxy(name), &account(name)).await.unwrap();
        Bootstrap { issued, roots: self.cas[0].bundle() }
    }

    async fn workload(&self, name: &str) -> Workload {
        let issued = self.cas[1].issue_service(&account(name), None).await.unwrap();
        Workload { chain_pem: issued.certificate.chain_pem, roots: self.cas[1].bundle() }
    }

    /// Whether the proxy and every controller trust each other.
    async fn connects(&self, bootstrap: &Bootstrap) -> bool {
        for server in &self.servers {
            let Bootstrap { issued, roots } = bootstrap;
            let client = client_at(self.env.now(), roots, Some((&issued.chain_pem, &issued.key_pem)));
            if handshake(server, client, "smc-controller.smc-system").await.is_err() {
                return false;
            }
        }
        true
    }

    /// Whether these workloads trust each other.
    fn talk(&self, workloads: &[&Workload]) -> bool {
        let pairs = workloads.iter().flat_map(|one| workloads.iter().map(move |other| (one, other)));
        pairs.into_iter().all(|(one, other)| believes(&one.roots, &other.chain_pem, self.env.now()))
    }

    fn state(&self) -> Vec<(bool, CaState)> {
        self.cas[0].status().cas.iter().map(|ca| (ca.root, ca.state)).collect()
    }

    fn signer(&self, what: SignedFor) -> SerialNumber {
        let now = self.env.now();
        self.ledger.local().read(|ledger| ledger.authority().unwrap().signer(what, now).serial)
    }
}

fn believes(roots: &TrustBundle, chain_pem: &str, now: Timestamp) -> bool {
    let mut store = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(roots.pem.as_bytes()) {
        store.add(root.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider).build().unwrap();
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(chain_pem.as_bytes()).collect::<Result<_, _>>().unwrap();
    let now = UnixTime::since_unix_epoch(now.since(Timestamp(0)));
    verifier.verify_client_cert(&chain[0], &chain[1..], now).is_ok()
}

#[tokio::test]
async fn a_rotated_issuing_ca_signs_on_every_replica_and_old_leaves_stay_good() {
    let dir = TempDir::new().unwrap();
    let replicas = Replicas::start(dir.path()).await;
    let (old_proxy, old_workload) = (replicas.bootstrap("old").await, replicas.workload("old").await);
    let before = replicas.signer(SignedFor::Workloads);
    let mut heard = replicas.cas[1].announcements();

    let after = replicas.cas[0].rotate(Rotate::Issuing).await.unwrap();
    assert_eq!(heard.try_recv().unwrap(), crate::Announcement::AuthorityChanged);
    assert_eq!(replicas.signer(SignedFor::Workloads), after);
    let (new_proxy, new_workload) = (replicas.bootstrap("new").await, replicas.workload("new").await);
    let issuers: BTreeSet<_> = replicas.cas[0].list().iter().map(|issued| issued.issuer).collect();
    assert!(issuers.contains(&before) && issuers.contains(&after));
    assert!(replicas.talk(&[&old_workload, &new_workload]));
    for bootstrap in [&old_proxy, &new_proxy] {
        assert!(replicas.connects(bootstrap).await);
    }
    // The controllers and the workloads soon get new certificates.
    for server in &replicas.servers {
        assert!(server.renew_if_due().await.unwrap());
        assert!(!server.renew_if_due().await.unwrap());
    }
    let wanted = WantedCertificates { accounts: BTreeSet::from([account("old")]), lifetime: None };
    let plan = |now| replicas.ledger.local().read(|ledger| plan_renewal(&wanted, ledger, now));
    assert!(plan(START.plus(HOUR)).due == [account("old")] && plan(START).next <= Some(START.plus(HOUR)));
    for bootstrap in [&old_proxy, &new_proxy] {
        assert!(replicas.connects(bootstrap).await);
    }

    // Once no certificate of the old CA is alive, its record is deleted.
    assert_eq!(replicas.state().len(), 3);
    replicas.clock.advance(366 * DAY);
    replicas.maintain(1).await;
    assert_eq!(replicas.state(), [(true, CaState::Signing), (false, CaState::Signing)]);
}

#[tokio::test]
async fn a_root_is_rotated_although_the_process_dies_after_every_step() {
    let dir = TempDir::new().unwrap();
    let mut replicas = Replicas::start(dir.path()).await;
    // A workload without an update since, and one with the new bundle.
    let (first, outdated) = (replicas.bootstrap("first").await, replicas.workload("outdated").await);
    let old = replicas.signer(SignedFor::Workloads);

    let root = replicas.cas[0].rotate(Rotate::Root).await.unwrap();
    let refused = replicas.cas[1].rotate(Rotate::Root).await.unwrap_err();
    assert!(matches!(refused, CaError::Rejected { source: Rejection::RootRotating(_), .. }), "{refused}");
    replicas.restart().await;
    let updated = replicas.workload("updated").await;
    assert_ne!(updated.roots, outdated.roots);
    for (server, ca) in replicas.servers.iter().zip(&replicas.cas) {
        assert!(server.trusts(&ca.bundle()));
    }
    let second = replicas.bootstrap("second").await;

    // Neither the acknowledgements nor the time suffices alone.
    replicas.clock.advance(HOUR);
    for replica in REPLICAS {
        replicas.cas[0].acknowledge_root(replica, root).await.unwrap();
        replicas.maintain(0).await;
        replicas.restart().await;
    }
    assert_eq!(replicas.signer(SignedFor::Workloads), old);
    assert!(replicas.talk(&[&outdated, &updated]));
    for bootstrap in [&first, &second] {
        assert!(replicas.connects(bootstrap).await);
    }

    // The certificate of the outdated workload expires; both replicas find the step due.
    replicas.clock.advance(60 * HOUR);
    replicas.serve().await;
    let updated = replicas.workload("updated").await;
    tokio::join!(replicas.maintain(0), replicas.maintain(1));
    let new = replicas.signer(SignedFor::Workloads);
    assert_ne!(new, old);
    assert_eq!(replicas.signer(SignedFor::Controllers), old);
    let states = [
        (true, CaState::Signing),
        (true, CaState::Former),
        (false, CaState::Signing),
        (false, CaState::ControllerIssuer),
    ];
    assert_eq!(replicas.state(), states);
    let (third, newest) = (replicas.bootstrap("third").await, replicas.workload("newest").await);
    assert!(replicas.talk(&[&updated, &newest]));
    for restarted in [false, true] {
        for bootstrap in [&first, &second, &third] {
            assert!(replicas.connects(bootstrap).await, "{restarted}");
        }
        replicas.serve().await;
        replicas.restart().await;
    }
    replicas.maintain(1).await;
    assert_eq!(replicas.state(), states, "the first bootstrap believes the old root alone");

    // The proxies that were bootstrapped before leave.
    for name in ["first", "second"] {
        proxies(&replicas.cas[0], &replicas.env).release(&proxy(name)).await.unwrap();
    }
    replicas.maintain(1).await;
    assert_eq!(replicas.signer(SignedFor::Controllers), new);
    for renewed in [false, true] {
        let newest = replicas.workload("newest").await;
        assert!(replicas.talk(&[&updated, &newest]));
        assert!(replicas.connects(&third).await, "{renewed}");
        replicas.serve().await;
    }
    assert!(!replicas.connects(&first).await, "the old root is no longer trusted");
    replicas.restart().await;
    replicas.clock.advance(60 * HOUR);
    let fourth = replicas.bootstrap("fourth").await;
    for replica in [0, 1, 0] {
        replicas.serve().await;
        replicas.maintain(replica).await;
        assert!(replicas.connects(&third).await && replicas.connects(&fourth).await);
        replicas.restart().await;
    }
    assert_eq!(replicas.state(), [(true, CaState::Signing), (false, CaState::Signing)]);
    let last = replicas.bootstrap("last").await;
    assert!(replicas.connects(&third).await && replicas.connects(&last).await);
    assert_eq!(replicas.cas[0].status().root_rotation, None);
    // The old root is no longer trusted.
    let stranger = Bootstrap { issued: first.issued, roots: replicas.cas[0].bundle() };
    assert!(!replicas.connects(&stranger).await);
}

#[tokio::test]
async fn an_unacknowledged_root_is_warned_of_once_nothing_else_is_missing() {
    let dir = TempDir::new().unwrap();
    let replicas = Replicas::start(dir.path()).await;
    replicas.workload("v1").await;
    let root = replicas.cas[0].rotate(Rotate::Root).await.unwrap();
    replicas.cas[0].acknowledge_root(1, root).await.unwrap();
    for (span, warned) in [(HOUR, false), (60 * HOUR, true)] {
        replicas.clock.advance(span);
        replicas.maintain(0).await;
        let warnings = replicas.cas[1].warnings();
        let found = warnings.iter().any(|one| one.contains(&root.to_string()) && one.contains("[1]"));
        assert_eq!(found, warned, "{warnings:?}");
    }
    replicas.cas[0].acknowledge_root(0, root).await.unwrap();
    replicas.maintain(1).await;
    assert_eq!(replicas.cas[1].warnings(), Vec::<String>::new());
}

/// Whether this records a certificate.
fn records(command: &Command) -> bool {
    matches!(
        command.operation,
        Operation::RecordServiceCertificate(_)
            | Operation::RecordProxyCertificate(_)
            | Operation::RecordControllerCertificate(_)
    )
}

/// Another replica rotates the issuing CA between a signature and its record.
#[tokio::test]
async fn what_a_retired_ca_signed_is_signed_again() {
    let dir = TempDir::new().unwrap();
    let replicas = Replicas::start(dir.path()).await;
    let other: Arc<Mutex<Option<Arc<BuiltinCa>>>> = Arc::default();
    let next = Arc::clone(&other);
    let ledger = intercepted(Arc::clone(&replicas.ledger), move |commands| {
        let other = commands.iter().any(records).then(|| next.lock().unwrap().take()).flatten();
        Box::pin(async move {
            if let Some(other) = other {
                other.rotate(Rotate::Issuing).await.unwrap();
            }
            Ok(())
        })
    });
    let keys = Arc::<LocalKey>::clone(&replicas.keys);
    let ca = BuiltinCa::open(ledger, keys, replicas.env.clone(), settings("cluster.local")).await.unwrap();
    let interlope = || *other.lock().unwrap() = Some(Arc::clone(&replicas.cas[0]));
    let mut chains = Vec::new();
    interlope();
    chains.push(ca.issue_service(&account("v1"), None).await.unwrap().certificate.chain_pem);
    interlope();
    chains.push(ca.issue_proxy(&proxy("v1"), &account("v1")).await.unwrap().chain_pem);
    interlope();
    let controller = ca.issue_controller(&names()).await.unwrap();
    assert_eq!(controller.issuer, replicas.signer(SignedFor::Controllers));
    for chain in &chains {
        assert!(believes(&ca.bundle(), chain, START));
    }
    let authority = replicas.ledger.local().read(|ledger| ledger.authority().cloned()).unwrap();
    assert_eq!(authority.former_issuing.len(), 3);
}
