//! The Secrets of sidecars after their pods were admitted.
//!
//! Owns the task of the Raft leader that gives each Secret its owner, once the Pod exists, and deletes those
//! whose Pod never came. The ledger says which Secrets there may be: it has every certificate, and SMC reads
//! no Secrets. Kubernetes deletes a Secret with an owner after its Pod; the certificates of pods that are
//! gone are released by the server (`registry/orphan_releaser.rs` there).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};
use smc_host::env::Env;
use smc_host::tasks::Tasks;
use smc_issuing::ProxyCertificates;
use smc_raft::Group;
use smc_sidecar::injection::PROXY_UUID_LABEL;
use smc_types::ids::ProxyName;
use smc_types::time::Timestamp;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::bootstrap_secret::{self, PodOwner};
use super::unclaimed_sidecars::TIME_TO_APPEAR;
use crate::api_resource::next_page;

/// The pause between two looks. A Secret without an owner costs nothing meanwhile.
const PERIOD: Duration = Duration::from_secs(30);

/// Certificates that were issued longer ago were dealt with by this leader or the one before.
const REMEMBERED: Duration = Duration::from_hours(24);

/// Requests to the API at a time. There is no hurry.
const CONCURRENT: usize = 8;

/// Pods in one answer of the API.
const PAGE: u32 = 500;

/// How long a page may take: a list reads the API server's storage.
const PAGE_LIMIT: Duration = Duration::from_secs(30);

/// The task.
pub(crate) struct Collector {
    pub(crate) client: Client,
    pub(crate) certificates: ProxyCertificates,
    pub(crate) group: Arc<Group>,
    pub(crate) env: Env,
}

/// What is to be done about the Secrets of sidecars.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// Those whose Pod exists.
    adopt: Vec<(ProxyName, PodOwner)>,
    /// Those whose Pod never came.
    delete: Vec<ProxyName>,
}

/// `issued` are the proxies with a Secret that is not settled, and when their latest certificate was issued.
fn plan(
    issued: &BTreeMap<ProxyName, Timestamp>,
    pods: &BTreeMap<ProxyName, PodOwner>,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    for (proxy, at) in issued {
        match pods.get(proxy) {
            Some(pod) => plan.adopt.push((proxy.clone(), pod.clone())),
            None if now.since(*at) >= TIME_TO_APPEAR => plan.delete.push(proxy.clone()),
            None => {}
        }
    }
    plan
}

impl Collector {
    pub(crate) fn start(self, tasks: &mut Tasks) {
        tasks.spawn("bootstrap Secrets", |stopping| self.run(stopping));
    }

    async fn run(self, stopping: CancellationToken) {
        let collecting = async {
            // What this leader has dealt with. Another leader begins with none, which repeats requests and
            // nothing else.
            let mut settled = BTreeSet::new();
            loop {
                let status = self.group.status();
                if status.leader == Some(status.replica) {
                    self.sweep(&mut settled).await;
                } else {
                    settled.clear();
                }
                sleep(PERIOD).await;
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = collecting => {}
        }
    }

    async fn sweep(&self, settled: &mut BTreeSet<ProxyName>) {
        let now = self.env.now();
        let issued = self.issued(now);
        settled.retain(|proxy| issued.contains_key(proxy));
        let open: BTreeMap<_, _> = issued.into_iter().filter(|(proxy, _)| !settled.contains(proxy)).collect();
        if open.is_empty() {
            return;
        }
        let pods = match self.pods().await {
            Ok(pods) => pods,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(error, "cannot list the pods with a sidecar; their Secrets wait for an owner");
                return;
            }
        };
        let Plan { adopt, delete } = plan(&open, &pods, now);
        let adopting = stream::iter(adopt).map(|(proxy, pod)| async move {
            let adopted = bootstrap_secret::adopt(&self.client, &proxy, &pod).await;
            (proxy, adopted.map(drop))
        });
        let deleting = stream::iter(delete).map(|proxy| async move {
            let deleted = self.delete(&proxy).await;
            (proxy, deleted)
        });
        let mut done = adopting.buffer_unordered(CONCURRENT).boxed();
        let mut failed = 0_usize;
        let mut latest = None;
        let mut note = |proxy, result| match result {
            Ok(()) => drop(settled.insert(proxy)),
            Err(error) => (failed, latest) = (failed + 1, Some(error)),
        };
        while let Some((proxy, result)) = done.next().await {
            note(proxy, result);
        }
        let mut done = deleting.buffer_unordered(CONCURRENT).boxed();
        while let Some((proxy, result)) = done.next().await {
            note(proxy, result);
        }
        if let Some(error) = latest {
            let error = &error as &dyn std::error::Error;
            warn!(error, failed, "cannot settle the Secrets of sidecars; will retry");
        }
    }

    /// Deletes the Secret of a Pod that never came, then releases its certificate, which a reader of
    /// Secrets may have copied.
    async fn delete(&self, proxy: &ProxyName) -> Result<(), bootstrap_secret::SecretError> {
        if bootstrap_secret::delete(&self.client, proxy).await? {
            info!(%proxy, "deleted the Secret of a pod that never came");
        }
        if let Err(error) = self.certificates.release(proxy).await {
            // The releaser of orphans gets to it.
            let error = &error as &dyn std::error::Error;
            warn!(%proxy, error, "cannot release the certificate of a pod that never came");
        }
        Ok(())
    }

    /// The pods' proxies with certificates of the last day, and when the latest was issued.
    fn issued(&self, now: Timestamp) -> BTreeMap<ProxyName, Timestamp> {
        let mut issued = BTreeMap::new();
        self.certificates.ledger().read(|ledger| {
            for (_, record) in ledger.proxy_certificates() {
                if record.proxy.service.is_none() && now.since(record.issued_at) < REMEMBERED {
                    let latest = issued.entry(record.proxy.clone()).or_insert(record.issued_at);
                    *latest = (*latest).max(record.issued_at);
                }
            }
        });
        issued
    }

    /// The pods with the label of a sidecar. Where several have the same, as a copy by hand does, the first
    /// owns the Secret.
    async fn pods(&self) -> Result<BTreeMap<ProxyName, PodOwner>, kube::Error> {
        let api: Api<Pod> = Api::all(self.client.clone());
        let mut parameters =
            ListParams { limit: Some(PAGE), ..ListParams::default() }.labels(PROXY_UUID_LABEL);
        let mut pods: BTreeMap<ProxyName, (Option<String>, PodOwner)> = BTreeMap::new();
        loop {
            let page = timeout(PAGE_LIMIT, api.list_metadata(&parameters)).await;
            let page = page.map_err(|elapsed| kube::Error::Service(Box::new(elapsed)))??;
            for pod in page.items {
                let meta = pod.metadata;
                let uuid = meta.labels.as_ref().and_then(|labels| labels.get(PROXY_UUID_LABEL)?.parse().ok());
                let named = uuid.zip(meta.namespace).and_then(|(uuid, ns)| ProxyName::new(uuid, &ns).ok());
                let (Some(proxy), Some(name), Some(uid)) = (named, meta.name, meta.uid) else { continue };
                let made = meta.creation_timestamp.map(|time| time.0.to_string());
                let owner = (made, PodOwner { name, uid });
                let first = pods.entry(proxy).or_insert_with(|| owner.clone());
                if owner.0 < first.0 {
                    *first = owner;
                }
            }
            match next_page(parameters, &page.metadata) {
                Some(next) => parameters = next,
                None => return Ok(pods.into_iter().map(|(proxy, (_, owner))| (proxy, owner)).collect()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_adopted_when_its_pod_comes_and_deleted_when_it_does_not() {
        let proxy = |number: u32| {
            let uuid = format!("00000000-0000-4000-8000-{number:012}").parse().unwrap();
            ProxyName::new(uuid, "shop").unwrap()
        };
        let pod = PodOwner { name: "store".to_owned(), uid: "1".to_owned() };
        let issued = BTreeMap::from([
            (proxy(1), Timestamp(0)),
            (proxy(2), Timestamp(0)),
            (proxy(3), Timestamp(1)),
            (proxy(4), Timestamp(1)),
        ]);
        let pods =
            BTreeMap::from([(proxy(1), pod.clone()), (proxy(4), pod.clone()), (proxy(9), pod.clone())]);
        let expected = Plan { adopt: vec![(proxy(1), pod.clone()), (proxy(4), pod)], delete: vec![proxy(2)] };
        assert_eq!(plan(&issued, &pods, Timestamp(300)), expected);
    }
}
