//! Owns the check that the mesh knows its ready Pods, so that calls to a Pod that the lab calls ready
//! succeed: every replica lists its endpoints, and every proxy has acknowledged what it was sent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;
use smc_types::ids::{NamespacedName, WorkloadId};
use tokio::time::Instant;

use super::config;
use super::kube_proxy::ServiceView;
use super::mesh_files::MeshFiles;
use super::process;

/// Interval of the questions to the controller.
const POLL: Duration = Duration::from_millis(150);
/// After this long the Pods count as ready all the same: a controller may be down, a proxy may refuse what it
/// is sent, and both must be possible in a lab.
const LIMIT: Duration = Duration::from_secs(10);

/// What the mesh is to know.
pub(super) struct Expected {
    /// Addresses of ready Pods in the mesh, by service.
    endpoints: BTreeMap<String, BTreeSet<IpAddr>>,
    /// The Pods with a proxy.
    proxied: BTreeMap<WorkloadId, Vec<IpAddr>>,
}

impl Expected {
    /// Of these services, and these ready Pods in the mesh with their addresses.
    pub(super) fn new(
        services: &BTreeMap<NamespacedName, ServiceView>,
        mesh: &MeshFiles,
        proxied: BTreeMap<WorkloadId, Vec<IpAddr>>,
    ) -> Self {
        // One address says of a Pod with two that it is known: a service may have one family only.
        let first: BTreeSet<IpAddr> = proxied.values().filter_map(|ips| ips.first().copied()).collect();
        // The author of an EndpointSlice decides which Pods are behind its service.
        let selected = services.iter().filter(|(name, view)| !view.ports.is_empty() && !mesh.is_sliced(name));
        let selected = selected.map(|(name, view)| {
            let backends = view.backends.iter().filter(|backend| !backend.targets.is_empty());
            let known = backends.flat_map(|backend| &backend.addresses).filter(|ip| first.contains(ip));
            (name.to_string(), known.copied().collect())
        });
        let mut endpoints: BTreeMap<String, BTreeSet<IpAddr>> = selected.collect();
        // No rule of the node leads to a machine, as no EndpointSlice does in a cluster.
        for (workload, ips) in proxied.iter().filter(|(workload, _)| workload.is_machine()) {
            for service in mesh.machines.get(workload.as_name()).into_iter().flatten() {
                let service = format!("{}/{service}", workload.namespace());
                if let Some(known) = endpoints.get_mut(&service) {
                    known.extend(ips.first());
                }
            }
        }
        Self { endpoints, proxied }
    }

    /// Returns when the mesh knows it, or at the limit.
    pub(super) async fn reached(mut self, replicas: u16) {
        if replicas == 0 || self.proxied.is_empty() {
            return;
        }
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline && !self.listed(replicas).await {
            tokio::time::sleep(POLL).await;
        }
        while Instant::now() < deadline {
            // What follows from the list is on its way to the proxies by then.
            tokio::time::sleep(POLL).await;
            let mut waiting = BTreeMap::new();
            for (pod, ips) in std::mem::take(&mut self.proxied) {
                if !acknowledged(&pod, replicas).await {
                    waiting.insert(pod, ips);
                }
            }
            self.proxied = waiting;
            if self.proxied.is_empty() {
                return;
            }
        }
    }

    /// Whether every replica that answers lists all endpoints, and one does.
    async fn listed(&self, replicas: u16) -> bool {
        let mut answered = false;
        for replica in 0..replicas {
            if let Some(listed) = ask(replica, &["mesh", "services"]).await {
                answered = true;
                if !self.is_in(&listed) {
                    return false;
                }
            }
        }
        answered
    }

    fn is_in(&self, listed: &Value) -> bool {
        let mut known: BTreeMap<&str, BTreeSet<IpAddr>> = BTreeMap::new();
        for service in listed["services"].as_array().into_iter().flatten() {
            let ports = service["ports"].as_array().into_iter().flatten();
            let endpoints = ports.flat_map(|port| port["endpoints"].as_array().into_iter().flatten());
            let address = |text: &Value| Some(text.as_str()?.parse::<std::net::SocketAddr>().ok()?.ip());
            known
                .entry(service["name"].as_str().unwrap_or_default())
                .or_default()
                .extend(endpoints.filter_map(address));
        }
        self.endpoints
            .iter()
            .filter(|(_, ips)| !ips.is_empty())
            .all(|(service, ips)| known.get(service.as_str()).is_some_and(|known| ips.is_subset(known)))
    }
}

/// Whether the Pod's proxy is connected to a replica, has listeners, and has acknowledged all that it
/// was sent.
async fn acknowledged(workload: &WorkloadId, replicas: u16) -> bool {
    for replica in 0..replicas {
        let Some(answer) = ask(replica, &["proxy", "config", &workload.to_string()]).await else { continue };
        let types = answer.pointer("/streams/0/types").and_then(Value::as_array).into_iter().flatten();
        let (mut listens, mut all) = (false, true);
        for of_type in types {
            let mut resources = of_type["resources"].as_array().into_iter().flatten();
            listens |= of_type["type"] == "lds";
            all &= resources.all(|one| one["sent"] == one["acked"]);
        }
        if listens && all {
            return true;
        }
    }
    false
}

/// The answer of `smc ARGS -o json`; `None` if the replica does not answer.
async fn ask(replica: u16, args: &[&str]) -> Option<Value> {
    let socket = config::admin_socket(replica);
    let args = [args, &["-o", "json", "--admin-socket", &socket]].concat();
    let printed = process::run(process::command(config::SMC, &args), "").await.ok()?;
    serde_json::from_str(&printed).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_is_known_when_all_its_ready_pods_are_listed() {
        let expected = Expected {
            endpoints: BTreeMap::from([
                ("shop/web".to_owned(), ["10.244.0.2", "10.244.0.3"].map(|ip| ip.parse().unwrap()).into()),
                ("shop/none".to_owned(), BTreeSet::new()),
            ]),
            proxied: BTreeMap::new(),
        };
        let web = |endpoints: &[&str]| {
            let other = json!({"port": 90, "endpoints": []});
            json!({"services": [{"name": "shop/web", "ports": [{"port": 80, "endpoints": endpoints}, other]}]})
        };
        assert!(expected.is_in(&web(&["10.244.0.3:8080", "10.244.0.2:8080", "10.244.0.9:1"])));
        assert!(!expected.is_in(&web(&["10.244.0.3:8080"])));
        assert!(!expected.is_in(&json!({"services": []})));
        assert!(!expected.is_in(&json!(null)));
    }
}
