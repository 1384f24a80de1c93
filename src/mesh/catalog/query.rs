//! Questions about the mesh.
//!
//! Owns the read side: what exists, what is behind what, who stands where. Refuses policy, which is
//! [`crate::policy`]. Answers come from the index, thus at the cost of their own size.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::{AppProtocol, Catalog, Endpoint, InboundPort, Service, ServicePort, Workload};
use crate::ids::{NamespacedName, ProxyName, ServiceAccountId, ServiceId, WorkloadId};
use crate::pki::Bearer;
use crate::smi::{HttpRouteGroup, MeshConfig, TcpRoute, TrafficSplit, TrafficTarget};
use crate::world::ProxyClass;

impl Catalog {
    /// The service of this name.
    pub fn service(&self, id: &ServiceId) -> Option<&Service> {
        self.services.get(id)
    }

    /// All services, sorted by name.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.values()
    }

    /// The workload of this name, in the mesh or not.
    pub fn workload(&self, id: &WorkloadId) -> Option<&Workload> {
        self.workloads.get(id)
    }

    /// All workloads, in the mesh or not, sorted by name.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.workloads.values()
    }

    /// Whether the workload has, or should have, a sidecar: its namespace is monitored, and neither its own
    /// annotation nor, where it has none, its namespace's refuses. A namespace that nobody told of is not in
    /// the mesh, whatever a pod in it asks for.
    pub fn in_mesh(&self, workload: &Workload) -> bool {
        self.namespaces.get(workload.id.namespace()).is_some_and(|namespace| {
            namespace.monitored && workload.injection.or(namespace.injection).unwrap_or(true)
        })
    }

    /// The in-mesh workload beside which this sidecar stands. None if no workload claims the name, and
    /// none if several do: serving either would hand one's configuration to the other. Several can only be
    /// of one namespace, so nobody shuts out the sidecar of another namespace by copying its UUID.
    pub fn workload_by_proxy(&self, proxy: &ProxyName) -> Option<&Workload> {
        let claimants = self.index.by_proxy.get(proxy)?;
        if claimants.len() > 1 {
            return None;
        }
        self.workloads.get(claimants.first()?)
    }

    /// Those of `bearers` that no workload is, in the mesh or not, alone or not. Costs a pass over all workloads.
    pub fn without_workload<T>(&self, mut bearers: BTreeMap<Bearer, T>) -> BTreeMap<Bearer, T> {
        for workload in self.workloads.values() {
            bearers.remove(&(workload.proxy_name(), Some(workload.service_account.clone())));
        }
        bearers
    }

    /// The class of an in-mesh workload's sidecar.
    pub fn class(&self, workload: &WorkloadId) -> Option<&Arc<ProxyClass>> {
        self.index.standings.get(workload).map(|standing| &standing.class)
    }

    /// The classes of an account's sidecars, sorted; empty for an account that runs nothing in the mesh.
    pub fn classes(&self, account: &ServiceAccountId) -> impl Iterator<Item = &Arc<ProxyClass>> {
        self.index.classes.get(account).into_iter().flat_map(BTreeMap::keys)
    }

    /// The identities with workloads in the mesh, sorted.
    pub fn accounts(&self) -> impl Iterator<Item = &ServiceAccountId> {
        self.index.classes.keys()
    }

    /// Whether this identity has workloads in the mesh.
    pub fn runs_in_mesh(&self, account: &ServiceAccountId) -> bool {
        self.index.classes.contains_key(account)
    }

    /// The in-mesh workloads behind a service, ready or not, sorted.
    pub fn workloads_behind(&self, service: &ServiceId) -> impl Iterator<Item = &WorkloadId> {
        self.index.backings.get(service).into_iter().flat_map(|backing| backing.leads.keys())
    }

    /// The identities behind a service, ready or not: whom a caller must be prepared to meet.
    pub fn accounts_behind(&self, service: &ServiceId) -> BTreeSet<ServiceAccountId> {
        self.index.backings.get(service).map(|backing| backing.accounts.clone()).unwrap_or_default()
    }

    /// The services that an in-mesh workload is behind, ready or not; more than one is common.
    pub fn services_of(&self, workload: &WorkloadId) -> BTreeSet<ServiceId> {
        self.index.services_of.get(workload).cloned().unwrap_or_default()
    }

    /// The services that workloads of an account are behind.
    pub fn services_behind_account(&self, account: &ServiceAccountId) -> impl Iterator<Item = &ServiceId> {
        self.index.services_behind.get(account).into_iter().flatten()
    }

    /// The ports of an in-mesh workload that services lead to, sorted by port and protocol. A port that
    /// services declare with different protocols has an entry for each.
    pub fn inbound_ports(&self, workload: &WorkloadId) -> Vec<InboundPort> {
        let mut ports: BTreeMap<(u16, AppProtocol), BTreeSet<ServiceId>> = BTreeMap::new();
        for service in self.index.services_of.get(workload).into_iter().flatten() {
            let backing = self.index.backings.get(service);
            let leads = backing.and_then(|backing| backing.leads.get(workload));
            for &lead in leads.into_iter().flatten() {
                ports.entry(lead).or_default().insert(service.clone());
            }
        }
        let ports = ports.into_iter();
        ports.map(|((port, protocol), services)| InboundPort { port, protocol, services }).collect()
    }

    pub(super) fn class_of(&self, workload: &Workload) -> ProxyClass {
        ProxyClass {
            account: workload.service_account.clone(),
            inbound: self.inbound_ports(&workload.id),
            ipv4: workload.ips.iter().any(IpAddr::is_ipv4),
            ipv6: workload.ips.iter().any(IpAddr::is_ipv6),
        }
    }

    /// Where traffic for a port of a service can be sent: ready in-mesh workloads, sorted.
    pub fn endpoints(&self, service: &ServiceId, port: &ServicePort) -> &[Endpoint] {
        let backing = self.index.backings.get(service);
        backing.and_then(|backing| backing.endpoints.get(&port.port)).map_or(&[], Vec::as_slice)
    }

    /// Where clients of a port of a headless service connect to, sorted: the addresses of all in-mesh workloads
    /// behind it, ready or not, so that readiness changes endpoints only, each with the port that the workload
    /// listens on, since nothing translates ports on the way. Empty for any other service.
    pub fn headless_addresses(&self, service: &ServiceId, port: &ServicePort) -> Vec<(IpAddr, u16)> {
        let headless = self.services.get(service).is_some_and(|service| service.headless);
        let backing = self.index.backings.get(service).filter(|_| headless);
        let listening = backing.and_then(|backing| backing.listening.get(&port.port));
        listening.into_iter().flatten().copied().collect()
    }

    /// All access rules, sorted by name.
    pub fn traffic_targets(&self) -> impl Iterator<Item = &TrafficTarget> {
        self.traffic_targets.values()
    }

    /// The access rules that name this destination, sorted by name.
    pub fn traffic_targets_for(
        &self,
        destination: &ServiceAccountId,
    ) -> impl Iterator<Item = &TrafficTarget> {
        let names = self.index.targets_to.get(destination).into_iter().flatten();
        names.filter_map(|name| self.traffic_targets.get(name))
    }

    /// The access rules that name this source, sorted by name.
    pub fn traffic_targets_from(&self, source: &ServiceAccountId) -> impl Iterator<Item = &TrafficTarget> {
        let names = self.index.targets_from.get(source).into_iter().flatten();
        names.filter_map(|name| self.traffic_targets.get(name))
    }

    /// The HTTPRouteGroup of this name.
    pub fn http_route_group(&self, name: &NamespacedName) -> Option<&HttpRouteGroup> {
        self.http_route_groups.get(name)
    }

    /// The TCPRoute of this name.
    pub fn tcp_route(&self, name: &NamespacedName) -> Option<&TcpRoute> {
        self.tcp_routes.get(name)
    }

    /// The splits of a root service, sorted by name.
    pub fn splits_of(&self, root: &ServiceId) -> Vec<&TrafficSplit> {
        let names = self.index.splits_of.get(root).into_iter().flatten();
        names.filter_map(|name| self.traffic_splits.get(name)).collect()
    }

    /// The splits that name this service as a backend, sorted by name.
    pub fn splits_into(&self, leaf: &ServiceId) -> impl Iterator<Item = &TrafficSplit> {
        let names = self.index.splits_into.get(leaf).into_iter().flatten();
        names.filter_map(|name| self.traffic_splits.get(name))
    }

    /// The switches in force: those of the control plane's own namespace. Without it, or while it cannot be
    /// read, all are off.
    pub fn mesh_config(&self) -> MeshConfig {
        let mut configs = self.mesh_configs.iter();
        let own = configs.find(|(name, _)| name.namespace() == self.mesh_namespace.as_str());
        own.map(|(_, config)| config.clone()).unwrap_or_default()
    }
}
