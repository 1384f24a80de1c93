//! A small mesh, three replicas and some Envoys.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use smc_mesh::ids::ServiceAccountId;
use smc_mesh::ledger::Ledger;
use smc_mesh::pki::SerialNumber;
use smc_proto::admin::v1::BootstrapResponse;
use smc_simulation::envoy::Envoy;
use smc_simulation::replica::{Replica, host};
use smc_simulation::trace::Trace;
use tokio::sync::watch;
use tokio::time::sleep;
use turmoil::{Builder, Sim};

/// Longer than anything takes on a network that is whole.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Replicas.
const REPLICAS: u64 = 3;

/// Envoys of the account that is there from the start, enough for each replica to serve some.
const BUYERS: usize = 9;

const BEGINNING: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {openservicemesh.io/monitored-by: osm}}
---
apiVersion: config.openservicemesh.io/v1alpha2
kind: MeshConfig
metadata: {name: osm-mesh-config, namespace: osm-system}
spec: {traffic: {enablePermissiveTrafficPolicyMode: true}}
";

/// The world of one test.
pub(crate) struct Shop {
    pub(crate) trace: Trace,
    pub(crate) replicas: Vec<Replica>,
    /// One for each pod of the account `buyer`, `shop/buyer-N`.
    pub(crate) buyers: Vec<Envoy>,
    mesh: watch::Sender<String>,
}

impl Shop {
    /// Replicas and Envoys on the network of `sim`; all start at once.
    pub(crate) fn open(sim: &mut Sim<'_>, seed: u64, trace: &Trace) -> Self {
        let pods: String = (0..BUYERS).map(|n| pod("buyer", n)).collect();
        let mesh = watch::Sender::new(format!("{BEGINNING}{}{pods}", account("buyer")));
        let replica = |id| Replica::new(id, REPLICAS, seed, mesh.subscribe(), trace.clone());
        let replicas: Vec<_> = (0..REPLICAS).map(replica).collect();
        for replica in &replicas {
            let replica = replica.clone();
            sim.host(host(replica.id()), move || replica.clone().run());
        }
        let buyers: Vec<_> = (0..BUYERS).map(|n| Envoy::new(format!("buyer-{n}"), trace.clone())).collect();
        for envoy in &buyers {
            let envoy = envoy.clone();
            sim.host(envoy.name().to_owned(), move || envoy.clone().run());
        }
        Self { trace: trace.clone(), replicas, buyers, mesh }
    }

    /// Waits until all replicas have applied the same, and looks whether all that was acknowledged is in it.
    pub(crate) async fn agrees_on(&self, acknowledged: &BTreeSet<String>) {
        let states = || self.replicas.iter().map(state).collect::<BTreeSet<_>>();
        until(SOON, "all replicas have applied the same", || states().len() == 1).await;
        for replica in &self.replicas {
            let missing: Vec<_> = acknowledged.iter().filter(|serial| !has(replica, serial)).collect();
            assert!(missing.is_empty(), "replica {} lacks {missing:?}", replica.id());
        }
        self.trace.note("operator", format!("{} acknowledged, none lost", acknowledged.len()));
    }

    /// Declares a service account with one pod, `shop/NAME-0`; every replica hears of it.
    pub(crate) fn declare(&self, name: &str) {
        self.mesh.send_modify(|text| *text += &(account(name) + &pod(name, 0)));
    }
}

/// The seeds to play: 1 to 20, or as many as `SMC_SEEDS` says, from the one on that `SMC_SEED` names.
#[expect(clippy::disallowed_methods, reason = "a test takes no arguments")]
pub(crate) fn seeds() -> Range<u64> {
    let setting = |name| Some(std::env::var(name).ok()?.parse().expect("a number"));
    let first = setting("SMC_SEED").unwrap_or(1_u64);
    first..first.saturating_add(setting("SMC_SEEDS").unwrap_or(20))
}

/// A network of some milliseconds, whose every delay follows from the seed.
pub(crate) fn network(seed: u64) -> Sim<'static> {
    Builder::new()
        .rng_seed(seed)
        .simulation_duration(Duration::from_mins(5))
        .tick_duration(Duration::from_millis(1))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(4))
        .enable_random_order()
        .build()
}

/// Tells what led to a failure: the assertion that fails is deep in a task.
pub(crate) struct ToldInPanic {
    pub(crate) seed: u64,
    pub(crate) trace: Trace,
}

impl Drop for ToldInPanic {
    #[expect(clippy::print_stderr, reason = "the test harness shows it with the failure")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}:\n{}", self.seed, self.trace.lines().join("\n"));
        }
    }
}

/// Waits until something is so.
///
/// # Panics
///
/// If it is not after `limit`.
pub(crate) async fn until(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(limit, waiting).await;
    assert!(waited.is_ok(), "after {limit:?} it is not so that {what}");
}

/// A bootstrap, asked for until it is given: nobody gets one before the replica knows the pod, or without a leader.
pub(crate) async fn retried(replica: &Replica, pod: &str) -> BootstrapResponse {
    loop {
        match replica.bootstrap(pod).await {
            Ok(issued) => return issued,
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

pub(crate) fn leader(replica: &Replica) -> Option<u64> {
    Some(replica.status()?.leader?.0)
}

pub(crate) fn certificate(replica: &Replica, account: &str) -> Option<SerialNumber> {
    let account = ServiceAccountId::new("shop", account).unwrap();
    replica.ledger(|ledger| ledger.service_certificate(&account).map(|record| record.serial))
}

/// Whether all replicas have the same certificate for an account.
pub(crate) fn have(replicas: &[Replica], account: &str) -> bool {
    let found: BTreeSet<_> = replicas.iter().map(|replica| certificate(replica, account)).collect();
    found.len() == 1 && !found.contains(&None)
}

pub(crate) fn root(replica: &Replica) -> String {
    replica.ledger(|ledger| format!("{:?}", ledger.authority().map(|authority| &authority.root)))
}

fn state(replica: &Replica) -> String {
    replica.ledger(Ledger::state_hash).unwrap().to_string()
}

fn has(replica: &Replica, serial: &str) -> bool {
    replica.ledger(|ledger| ledger.proxy_certificates().any(|(found, _)| found.to_string() == serial))
}

fn account(name: &str) -> String {
    format!("---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}, namespace: shop}}\n")
}

fn pod(account: &str, n: usize) -> String {
    let last = account.len() * 10 + n;
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {account}-{n}, namespace: shop}}\n\
         spec: {{serviceAccountName: {account}, containers: [{{name: app}}]}}\n\
         status: {{podIPs: [{{ip: 10.0.0.{last}}}], conditions: [{{type: Ready, status: \"True\"}}]}}\n"
    )
}
