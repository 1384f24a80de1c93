//! Queries for what exists: objects, backends, sidecars and their classes.
//!
//! Answers come from the index, so each costs its own size, not that of the mesh.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::backends::Backends;
use super::{Catalog, Endpoint, Object};
use smc_api::osm::MeshConfig;
use smc_api::smi::{TrafficSplit, TrafficTarget};
use smc_authority::rules::CertificateHolder;
use smc_model::topology::{Namespace, Service, ServicePort, Workload};
use smc_types::ids::{NamespacedName, ProxyName, ServiceAccountId, ServiceId, WorkloadId};
use smc_types::proxy_class::{AppProtocol, InboundPort, ProxyClass};

impl Catalog {
    /// Whether the catalog has this very object. `false` for an object of the same name that says something
    /// else.
    pub fn holds(&self, object: &Object) -> bool {
        match object {
            Object::Namespace(namespace) => self.namespaces.get(&namespace.name) == Some(namespace),
            Object::Service(service) => self.services.get(&service.id) == Some(service),
            Object::ServiceAccount(account) => self.service_accounts.contains(account),
            Object::Workload(workload) => self.workloads.get(&workload.id) == Some(workload),
            Object::EndpointSlice(slice) => self.slices.get(&slice.id) == Some(slice),
            Object::TrafficTarget(target) => self.traffic_targets.get(&target.id) == Some(target),
            Object::HttpRouteGroup(group) => self.http_route_groups.get(&group.id) == Some(group),
            Object::TcpRoute(route) => self.tcp_routes.get(&route.id) == Some(route),
            Object::UdpRoute(route) => self.udp_routes.get(&route.id) == Some(route),
            Object::TrafficSplit(split) => self.traffic_splits.get(&split.id) == Some(split),
            Object::MeshConfig(name, config) => self.mesh_configs.get(name) == Some(config),
            Object::Egress(object) => self.egresses.get(&object.id) == Some(object),
            Object::IngressBackend(object) => self.ingress_backends.get(&object.id) == Some(object),
            Object::Retry(object) => self.retries.get(&object.id) == Some(object),
            Object::UpstreamTrafficSetting(object) => self.upstream_settings.get(&object.id) == Some(object),
            Object::Telemetry(object) => self.telemetry(&object.id) == Some(object),
            Object::ExtensionService(object) => self.extension_services.get(&object.id) == Some(object),
            Object::MeshRootCertificate(object) => {
                self.mesh_root_certificates.get(&object.id) == Some(object)
            }
        }
    }

    /// Whether this namespace is known and part of the mesh.
    pub fn monitors(&self, namespace: &str) -> bool {
        self.namespaces.get(namespace).is_some_and(|namespace| namespace.monitored)
    }

    /// The service of this name.
    pub fn service(&self, id: &ServiceId) -> Option<&Service> {
        self.services.get(id).map(Arc::as_ref)
    }

    /// All services, sorted by name.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.values().map(Arc::as_ref)
    }

    /// The namespaces of the mesh that accept every identity of it, whatever TrafficTargets say, sorted.
    pub fn permissive_namespaces(&self) -> impl Iterator<Item = &str> {
        self.index.permissive.iter().map(String::as_str).filter(|namespace| self.monitors(namespace))
    }

    /// The namespace of this name, monitored or not.
    pub fn namespace(&self, name: &str) -> Option<&Namespace> {
        self.namespaces.get(name)
    }

    /// The workload of this name, in the mesh or not.
    pub fn workload(&self, id: &WorkloadId) -> Option<&Workload> {
        self.workloads.get(id).map(Arc::as_ref)
    }

    /// All workloads, in the mesh or not, sorted by name.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.workloads.values().map(Arc::as_ref)
    }

    /// Whether the workload has, or should have, a sidecar ([`Namespace::injects`]). A workload whose
    /// namespace is unknown is not in the mesh.
    pub fn in_mesh(&self, workload: &Workload) -> bool {
        let namespace = self.namespaces.get(workload.id.namespace());
        namespace.is_some_and(|namespace| namespace.injects(workload.injection))
    }

    /// The in-mesh workload of this sidecar. `None` if no workload claims the name, and if several do:
    /// serving either would hand one's configuration to the other. Several claimants are always of one
    /// namespace, so a copied UUID does not shut out the sidecar of another namespace.
    pub fn workload_by_proxy(&self, proxy: &ProxyName) -> Option<&Workload> {
        let claimants = self.index.by_proxy.get(proxy)?;
        if claimants.len() > 1 {
            return None;
        }
        self.workloads.get(claimants.first()?).map(Arc::as_ref)
    }

    /// The `holders` without a workload, in the mesh or not. Costs a pass over all workloads.
    pub fn without_workload<T>(
        &self,
        mut holders: BTreeMap<CertificateHolder, T>,
    ) -> BTreeMap<CertificateHolder, T> {
        for workload in self.workloads.values() {
            holders.remove(&(workload.proxy_name(), Some(workload.service_account.clone())));
        }
        holders
    }

    /// The class of an in-mesh workload's sidecar.
    pub fn class(&self, workload: &WorkloadId) -> Option<&Arc<ProxyClass>> {
        self.index.sidecars.get(workload).map(|sidecar| &sidecar.class)
    }

    /// The classes of an account's sidecars, sorted; empty for an account that runs nothing in the mesh.
    pub fn classes(&self, account: &ServiceAccountId) -> impl Iterator<Item = &Arc<ProxyClass>> {
        self.index.classes.get(account).into_iter().flat_map(BTreeMap::keys)
    }

    /// The identities with workloads in the mesh, sorted.
    pub fn accounts(&self) -> impl Iterator<Item = &ServiceAccountId> {
        self.index.classes.keys()
    }

    /// The identities of a namespace with workloads in the mesh, sorted.
    pub(super) fn accounts_in(&self, namespace: &str) -> impl Iterator<Item = &ServiceAccountId> {
        let names = self.index.accounts_in.get(namespace);
        names.into_iter().flatten()
    }

    /// Whether this identity has workloads in the mesh.
    pub fn runs_in_mesh(&self, account: &ServiceAccountId) -> bool {
        self.index.classes.contains_key(account)
    }

    /// The in-mesh workloads behind a service, ready or not, sorted.
    pub fn workloads_behind(&self, service: &ServiceId) -> impl Iterator<Item = &WorkloadId> {
        self.index.backends.get(service).into_iter().flat_map(Backends::workloads)
    }

    /// The identities behind a service, ready or not: those that a caller must accept.
    pub fn accounts_behind(&self, service: &ServiceId) -> BTreeSet<ServiceAccountId> {
        self.index.backends.get(service).into_iter().flat_map(Backends::accounts).cloned().collect()
    }

    /// The services that an in-mesh workload is behind, ready or not; more than one is common.
    pub fn services_of(&self, workload: &WorkloadId) -> BTreeSet<ServiceId> {
        self.index.services_of.get(workload).cloned().unwrap_or_default()
    }

    /// The services that workloads of an account are behind.
    pub fn services_behind_account(&self, account: &ServiceAccountId) -> impl Iterator<Item = &ServiceId> {
        self.index.services_behind.get(account).into_iter().flatten()
    }

    /// The ports of an in-mesh workload that services target, sorted by port and protocol. A port that
    /// services declare with different protocols has an entry for each.
    pub fn inbound_ports(&self, workload: &WorkloadId) -> Vec<InboundPort> {
        let mut ports: BTreeMap<(u16, AppProtocol), BTreeSet<ServiceId>> = BTreeMap::new();
        for service in self.index.services_of.get(workload).into_iter().flatten() {
            let backends = self.index.backends.get(service);
            for target in backends.into_iter().flat_map(|backends| backends.targets(workload)) {
                ports.entry(target).or_default().insert(service.clone());
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
            telemetry: self.telemetry_of(workload).cloned(),
        }
    }

    /// The endpoints of a service port: ready in-mesh workloads, sorted.
    pub fn endpoints<'a>(
        &'a self,
        service: &ServiceId,
        port: &ServicePort,
    ) -> impl Iterator<Item = &'a Endpoint> + use<'a> {
        let port = port.port;
        let backends = self.index.backends.get(service);
        backends.into_iter().flat_map(move |backends| backends.endpoints(port))
    }

    /// The addresses that clients of a headless service port connect to, sorted: those of all in-mesh
    /// workloads behind it, ready or not, so that readiness changes endpoints only. Each has the port that
    /// the workload listens on, since nothing translates ports on the way. Empty for any other service.
    pub fn headless_addresses(&self, service: &ServiceId, port: &ServicePort) -> Vec<(IpAddr, u16)> {
        let headless = self.services.get(service).is_some_and(|service| service.headless);
        let backends = self.index.backends.get(service).filter(|_| headless);
        backends.into_iter().flat_map(|backends| backends.listening(port.port)).collect()
    }

    /// All access rules, sorted by name.
    pub fn traffic_targets(&self) -> impl Iterator<Item = &TrafficTarget> {
        self.traffic_targets.values().map(Arc::as_ref)
    }

    /// The access rules that name this destination, sorted by name.
    pub fn traffic_targets_for(
        &self,
        destination: &ServiceAccountId,
    ) -> impl Iterator<Item = &TrafficTarget> {
        let names = self.index.targets_to.get(destination).into_iter().flatten();
        names.filter_map(|name| self.traffic_targets.get(name).map(Arc::as_ref))
    }

    /// The access rules that name this source, sorted by name.
    pub fn traffic_targets_from(&self, source: &ServiceAccountId) -> impl Iterator<Item = &TrafficTarget> {
        let names = self.index.targets_from.get(source).into_iter().flatten();
        names.filter_map(|name| self.traffic_targets.get(name).map(Arc::as_ref))
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

    /// The settings in force: those of the control plane's namespace. All are off while there is no
    /// MeshConfig or it cannot be read.
    pub fn mesh_config(&self) -> MeshConfig {
        self.own_mesh_config().map(|(_, config)| config.clone()).unwrap_or_default()
    }

    /// The MeshConfig whose settings are in force, and its name.
    pub fn own_mesh_config(&self) -> Option<(&NamespacedName, &MeshConfig)> {
        self.mesh_configs.iter().find(|(name, _)| self.is_own(name.namespace()))
    }

    /// Whether a namespace is the control plane's own.
    pub(super) fn is_own(&self, namespace: &str) -> bool {
        namespace == self.mesh_namespace.as_str()
    }
}
