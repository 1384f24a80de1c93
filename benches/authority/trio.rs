//! Three replicas in this process, each with its own directory and port.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use smc_authority::ledger::{Command, Operation, RecordProxyCertificate};
use smc_authority::pki::{Fingerprint, Lifetimes, SerialNumber};
use smc_benches::Result;
use smc_benches::controller::PATIENCE;
use smc_host::env::Env;
use smc_host::network::Tcp;
use smc_issuing::seal::{KeyEncryption, LocalKey};
use smc_issuing::{BuiltinCa, CaSettings};
use smc_raft::{Connections, Group, ReplicatedLedger, Settings, Storage};
use smc_testkit::loopback::{Loopback, loopback};
use smc_types::ids::{ProxyName, ProxyUuid, ServiceAccountId, TrustDomain, WorkloadId};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// Identities that proxies belong to.
const IDENTITIES: usize = 10_000;

/// A Raft group of three, with the authority on each replica.
pub(crate) struct Trio {
    pub(crate) groups: Vec<Arc<Group>>,
    pub(crate) authorities: Vec<Arc<BuiltinCa>>,
    pub(crate) directory: TempDir,
}

impl Trio {
    /// Starts all replicas on empty directories, and founds the authority.
    pub(crate) async fn start() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let keys = key(directory.path())?;
        let Loopback { addresses, listeners } = loopback(3).await;
        let mut groups = Vec::new();
        for (id, listener) in listeners {
            let settings = Settings {
                initial_members: addresses.clone(),
                ..Settings::new(id, addresses[&id].clone(), keys.group_secret())
            };
            let Env { clock, entropy, .. } = Env::system();
            let connections = Connections { network: Arc::new(Tcp), listener: Some(listener), clock };
            let storage = Storage::Directory(directory.path().join(format!("replica-{id}")));
            groups.push(Arc::new(Group::start(settings, storage, connections, entropy).await?));
        }
        let mut authorities = Vec::new();
        for group in &groups {
            group.ready().await?;
            authorities.push(authority(group, &keys).await?);
        }
        Ok(Self { groups, authorities, directory })
    }

    /// The leader, once all replicas agree on it.
    pub(crate) async fn leader(&self) -> Result<usize> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let leaders: Vec<_> = self.groups.iter().map(|group| group.status().leader).collect();
            if let Some(leader) = leaders[0]
                && leaders.iter().all(|other| *other == Some(leader))
            {
                return Ok(usize::try_from(leader.0)?);
            }
            if Instant::now() > deadline {
                return Err("the replicas agree on no leader".into());
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Stops all replicas and removes their directories.
    pub(crate) async fn stop(self) -> Result<()> {
        let Self { groups, authorities, directory } = self;
        for group in &groups {
            group.stop().await;
        }
        drop((groups, authorities));
        // The last of Raft's tasks closes the database, which may still write a file into the directory.
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = std::fs::remove_dir_all(directory.path()) {
            if Instant::now() > deadline {
                return Err(error.into());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// The key-encryption key in `directory`, which is created if it is missing.
pub(crate) fn key(directory: &Path) -> Result<Arc<dyn KeyEncryption>> {
    Ok(Arc::new(LocalKey::load_or_create(&directory.join("kek"), true, &Env::system())?))
}

/// The authority in the ledger of `group`, which is founded if there is none.
pub(crate) async fn authority(group: &Arc<Group>, keys: &Arc<dyn KeyEncryption>) -> Result<Arc<BuiltinCa>> {
    let ledger: Arc<dyn ReplicatedLedger> = Arc::<Group>::clone(group);
    let settings =
        CaSettings { trust_domain: TrustDomain::new("cluster.local")?, lifetimes: Lifetimes::default() };
    Ok(Arc::new(BuiltinCa::open(ledger, Arc::clone(keys), Env::system(), settings).await?))
}

/// Identity `n`.
pub(crate) fn account(n: usize) -> Result<ServiceAccountId> {
    Ok(ServiceAccountId::new(&format!("n{}", n % 100), &format!("s{n}"))?)
}

/// Proxy `n`, and its identity.
pub(crate) fn proxy(n: usize) -> Result<(ProxyName, ServiceAccountId)> {
    let account = account(n % IDENTITIES)?;
    let workload = WorkloadId::new(account.namespace(), &format!("p{n}"))?;
    Ok((ProxyName::of(ProxyUuid::derived(&workload), &workload), account))
}

/// The record of an unsigned certificate of proxy `n`.
pub(crate) fn record(group: &Group, n: usize) -> Result<Command> {
    let env = Env::system();
    let (proxy, account) = proxy(n)?;
    let (issuer, validity) = group
        .local()
        .read(|ledger| {
            let issuing = &ledger.authority()?.issuing;
            Some((issuing.serial, issuing.validity))
        })
        .ok_or("there is no authority")?;
    let operation = Operation::RecordProxyCertificate(RecordProxyCertificate {
        serial: SerialNumber::draw(env.random()?),
        proxy,
        service_account: Some(account),
        validity,
        issuer,
        fingerprint: Fingerprint::of(&n.to_be_bytes()),
    });
    Ok(Command { at: env.now(), operation })
}
