//! The built-in CA on a real ledger, with real certificates and TLS handshakes.

mod admission;
mod ca_rotation;
mod clocks;
mod disk;
mod fake;
mod founding;
mod gateways;
mod intercepted;
mod issuing;
mod rekey;
mod renewal;
mod revival;
mod secrecy;
mod serving;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use smc_authority::ledger::{Command, LedgerOperation, Rules, UseRules};
use smc_authority::pki::Lifetimes;
use smc_authority::rules::WantedGateway;
use smc_host::env::Env;
use smc_host::env::fixed::{self, SettableClock};
use smc_raft::{Group, GroupError, ReplicatedLedger, StorageError};
use smc_testkit::eventually::{Patience, eventually};
use smc_types::ids::{ProxyName, ProxyUuid, ReplicaId, ServiceAccountId, TrustDomain, WorkloadId};
use smc_types::time::Timestamp;

use super::seal::LocalKey;
use super::{BuiltinCa, CaError, CaSettings, ControllerNames, Issuer, ProxyCertificates};

const START: Timestamp = Timestamp(1_800_000_000);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// A CA in a directory, with a settable clock.
struct TestCa {
    ca: Arc<BuiltinCa>,
    env: Env,
    clock: Arc<SettableClock>,
}

fn settings(domain: &str) -> CaSettings {
    CaSettings { trust_domain: TrustDomain::new(domain).unwrap(), lifetimes: Lifetimes::default() }
}

async fn open(dir: &Path, env: &Env, domain: &str) -> Result<BuiltinCa, CaError> {
    let keys = Arc::new(LocalKey::load_or_create(&dir.join("kek"), true, env).unwrap());
    BuiltinCa::open(ledger(dir).await, keys, env.clone(), settings(domain)).await
}

async fn ledger(dir: &Path) -> Arc<dyn ReplicatedLedger> {
    Arc::new(group(&dir.join("ledger")).await)
}

/// The ledger of a single replica. Waits until an earlier owner has closed it.
async fn group(path: &Path) -> Group {
    group_in(path, &Env::system()).await
}

/// As [`group`], with the clock of this environment.
async fn group_in(path: &Path, env: &Env) -> Group {
    let patience = Patience { limit: Duration::from_mins(1), pause: Duration::from_millis(10) };
    eventually(patience, "the ledger", async || {
        match Group::alone(ReplicaId(0), disk::storage(path), env).await {
            Err(GroupError::Storage(error)) if matches!(*error, StorageError::Locked { .. }) => Err(error),
            started => Ok(started.unwrap()),
        }
    })
    .await
}

async fn ca_at(dir: &Path, start: Timestamp, seed: u64) -> TestCa {
    let (env, clock) = fixed::env(start, seed);
    let ca = Arc::new(open(dir, &env, "cluster.local").await.unwrap());
    TestCa { ca, env, clock }
}

async fn test_ca(dir: &Path) -> TestCa {
    ca_at(dir, START, 1).await
}

/// The CAs of two replicas that share a ledger, opened at the same time.
async fn two_replicas(dir: &Path) -> (BuiltinCa, BuiltinCa) {
    let (env, _) = fixed::env(START, 1);
    let keys = Arc::new(LocalKey::create(&dir.join("kek"), &env).unwrap());
    let ledger = ledger(dir).await;
    let replica = |seed| {
        let (env, _) = fixed::env(START, seed);
        BuiltinCa::open(Arc::clone(&ledger), Arc::<LocalKey>::clone(&keys), env, settings("cluster.local"))
    };
    let (a, b) = tokio::join!(replica(2), replica(3));
    (a.unwrap(), b.unwrap())
}

/// The proxy certificates in the ledger of this CA.
fn proxies(ca: &BuiltinCa, env: &Env) -> ProxyCertificates {
    ProxyCertificates::new(Arc::clone(ca.ledger()), env.clone())
}

fn account(name: &str) -> ServiceAccountId {
    ServiceAccountId::new("bookstore", name).unwrap()
}

fn proxy(name: &str) -> ProxyName {
    let workload = WorkloadId::new("bookstore", name).unwrap();
    ProxyName::new(ProxyUuid::derived(&workload), "bookstore").unwrap()
}

/// What asks for a certificate of a gateway with these names, of a day.
fn gateway(names: &[&str]) -> Arc<WantedGateway> {
    let names = names.iter().map(|&name| name.to_owned()).collect();
    Arc::new(WantedGateway { secret: "ingress/gateway".parse().unwrap(), names, lifetime: DAY })
}

/// A CA whose replica has the clock that it has, and that uses the latest rules of the ledger.
async fn latest_ca(dir: &Path, start: Timestamp, seed: u64) -> TestCa {
    let (env, clock) = fixed::env(start, seed);
    let keys = Arc::new(LocalKey::load_or_create(&dir.join("kek"), true, &env).unwrap());
    let ledger: Arc<dyn ReplicatedLedger> = Arc::new(group_in(&dir.join("ledger"), &env).await);
    let ca = BuiltinCa::open(ledger, keys, env.clone(), settings("cluster.local")).await.unwrap();
    ca.agree_on_time([(0, start)].into()).await.unwrap();
    let command = Command { at: start, operation: UseRules(Rules::LATEST).into_operation() };
    ca.ledger().propose(vec![command]).await.unwrap().pop().unwrap().unwrap();
    TestCa { ca: Arc::new(ca), env, clock }
}

fn names() -> ControllerNames {
    ControllerNames {
        dns: vec!["smc-controller.smc-system".to_owned(), "localhost".to_owned()],
        ips: vec!["127.0.0.1".parse().unwrap()],
    }
}
