//! Replicas that start again after the issuing CA has ended, or with a clock that is wrong by years.

use std::collections::BTreeSet;

use smc_authority::pki::SerialNumber;
use smc_authority::rules::DeclaredRoots;
use smc_types::causes::causes;
use tempfile::TempDir;

use super::admission::{client_at, handshake};
use super::*;
use crate::tls::ServerTls;
use crate::{IssuedProxy, Issuer};

const YEAR: Duration = Duration::from_hours(365 * 24);

/// A replica alone, whose ledger and key outlive its processes.
struct Alone {
    _directory: TempDir,
    ledger: Arc<dyn ReplicatedLedger>,
    keys: Arc<LocalKey>,
    clock: Arc<SettableClock>,
    env: Env,
}

impl Alone {
    async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let (env, clock) = fixed::env(START, 1);
        let keys = Arc::new(LocalKey::create(&directory.path().join("kek"), &env).unwrap());
        let ledger = ledger(directory.path()).await;
        Self { _directory: directory, ledger, keys, clock, env }
    }

    /// Starts a process at this time.
    async fn start(&self, now: Timestamp) -> Result<Arc<BuiltinCa>, CaError> {
        self.clock.set(now);
        let (ledger, keys) = (Arc::clone(&self.ledger), Arc::<LocalKey>::clone(&self.keys));
        let ca = BuiltinCa::open(ledger, keys, self.env.clone(), settings("cluster.local")).await?;
        Ok(Arc::new(ca))
    }

    /// Whether a proxy with this bootstrap and a controller that starts now trust each other.
    async fn connects(&self, ca: &Arc<BuiltinCa>, proxy: &IssuedProxy) -> bool {
        let issuer = Arc::<BuiltinCa>::clone(ca) as Arc<dyn Issuer>;
        let server = ServerTls::start(issuer, self.env.clone(), names()).await.unwrap();
        let credentials = Some((proxy.chain_pem.as_str(), proxy.key_pem.as_str()));
        let client = client_at(self.env.now(), &ca.bundle(), credentials);
        handshake(&server, client, "localhost").await.is_ok()
    }

    fn issuing(&self) -> SerialNumber {
        self.ledger.local().read(|ledger| ledger.authority().unwrap().issuing.serial)
    }
}

async fn issue(ca: &BuiltinCa, name: &str) -> IssuedProxy {
    ca.issue_proxy(&proxy(name), &account(name)).await.unwrap()
}

#[tokio::test]
async fn a_group_that_was_off_until_its_issuing_ca_ended_starts_under_its_root() {
    let alone = Alone::new().await;
    let bundle = alone.start(START).await.unwrap().bundle();
    let first = alone.issuing();
    let ca = alone.start(START.plus(3 * YEAR).plus(DAY)).await.unwrap();
    assert_ne!(alone.issuing(), first);
    assert_eq!(ca.bundle(), bundle, "the root is the same");
    assert!(alone.connects(&ca, &issue(&ca, "v1").await).await);
    let second = alone.issuing();
    alone.start(START.plus(3 * YEAR).plus(2 * DAY)).await.unwrap();
    assert_eq!(alone.issuing(), second, "once");
}

#[tokio::test]
async fn replicas_that_start_at_once_make_one_issuing_ca() {
    let alone = Alone::new().await;
    alone.start(START).await.unwrap();
    let late = START.plus(4 * YEAR);
    let (a, b, c) = tokio::join!(alone.start(late), alone.start(late), alone.start(late));
    let made = alone.ledger.local().read(|ledger| ledger.authority().unwrap().former_issuing.len());
    assert_eq!(made, 1);
    for ca in [a, b, c] {
        issue(&ca.unwrap(), "v1").await;
    }
}

#[tokio::test]
async fn a_clock_that_was_ahead_by_years_harms_nothing_once_it_is_right() {
    let alone = Alone::new().await;
    let ca = alone.start(START).await.unwrap();
    let before = issue(&ca, "before").await;
    let ahead = alone.start(START.plus(4 * YEAR)).await.unwrap();
    ahead.issue_service(&account("v1"), None).await.unwrap();
    // The clock is put right while the replica runs, or while it does not.
    for restarts in [false, true] {
        let now = START.plus(HOUR);
        alone.clock.set(START.plus(4 * YEAR));
        let mut ca = alone.start(alone.env.now()).await.unwrap();
        if restarts {
            ca = alone.start(now).await.unwrap();
        } else {
            alone.clock.set(now);
            ca.maintain(&BTreeSet::from([0]), false, &DeclaredRoots::none()).await.unwrap();
        }
        let service = ca.issue_service(&account("v1"), None).await.unwrap();
        assert!(service.validity.contains(now), "restarts: {restarts}");
        assert!(alone.connects(&ca, &before).await, "restarts: {restarts}");
        assert!(alone.connects(&ca, &issue(&ca, "after").await).await, "restarts: {restarts}");
    }
}

#[tokio::test]
async fn where_the_root_has_ended_the_error_names_the_way_out() {
    let alone = Alone::new().await;
    alone.start(START).await.unwrap();
    let Err(error) = alone.start(START.plus(11 * YEAR)).await else { panic!("it starts") };
    let text = causes(&error);
    assert!(matches!(error, CaError::RootEnded { .. }), "{text}");
    assert!(text.contains("docs/operation.md#a-group-that-was-off-for-years"), "{text}");
    alone.start(START.plus(DAY)).await.unwrap();
}
