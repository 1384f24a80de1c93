//! A CA on a ledger in memory, of a replica that is alone: for tests of the tasks that keep certificates.

use std::collections::BTreeMap;
use std::sync::Arc;

use smc_authority::ledger::{Command, LedgerOperation, Rules, UseRules};
use smc_authority::pki::Lifetimes;
use smc_host::env::fixed::{self, SettableClock};
use smc_host::env::{Clock, Env};
use smc_issuing::seal::LocalKey;
use smc_issuing::{BuiltinCa, CaSettings};
use smc_raft::{Group, MemoryDisk, ReplicatedLedger, Storage};
use smc_types::ids::{ReplicaId, TrustDomain};
use smc_types::time::Timestamp;
use tempfile::TempDir;

/// A group of one, and its CA.
pub(crate) struct LoneCa {
    pub(crate) ca: Arc<BuiltinCa>,
    pub(crate) group: Arc<Group>,
    pub(crate) env: Env,
    pub(crate) clock: Arc<SettableClock>,
    _dir: TempDir,
}

impl LoneCa {
    /// Starts it at this time, on which the group has agreed.
    pub(crate) async fn start(at: Timestamp) -> Self {
        let dir = TempDir::new().unwrap();
        let (env, clock) = fixed::env(at, 1);
        let storage = Storage::Memory(MemoryDisk::default());
        let group = Arc::new(Group::alone(ReplicaId(0), storage, &env).await.unwrap());
        let keys = Arc::new(LocalKey::create(&dir.path().join("kek"), &env).unwrap());
        let trust_domain = TrustDomain::new("cluster.local").unwrap();
        let settings = CaSettings { trust_domain, lifetimes: Lifetimes::default() };
        let ledger = Arc::clone(&group) as Arc<dyn ReplicatedLedger>;
        let ca = Arc::new(BuiltinCa::open(ledger, keys, env.clone(), settings).await.unwrap());
        ca.agree_on_time(BTreeMap::from([(0, at)])).await.unwrap();
        Self { ca, group, env, clock, _dir: dir }
    }

    /// Begins rules of the ledger.
    pub(crate) async fn use_rules(&self, rules: Rules) {
        let command = Command { at: self.clock.now(), operation: UseRules(rules).into_operation() };
        self.group.propose(vec![command]).await.unwrap();
    }
}
