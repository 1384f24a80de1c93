//! The checks that the search for problems consists of.
//!
//! Owns which there are, and what each looks at. A check depends on few objects, so that a change makes few
//! of them due ([`super::found`]).

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{
    access, addresses, egress, endpoints, extension_service, identities, ingress, machines, mesh_config,
    mesh_root_certificates, outside, retries, services, splits, telemetry, upstream,
};
use crate::catalog::Catalog;
use smc_types::ids::{NamespacedName, ProxyName, ServiceAccountId, ServiceId, WorkloadId};
use smc_types::object_ref::Kind;
use smc_types::problem::Problem;

/// One check: what is wrong with an object, or with those that have something in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::catalog) enum Check {
    /// The service accounts of a namespace.
    Namespace(String),
    Service(ServiceId),
    Machine(WorkloadId),
    Slice(NamespacedName),
    /// The workloads that have this address.
    Address(IpAddr),
    /// The workloads that claim this sidecar.
    Proxy(ProxyName),
    Target(NamespacedName),
    /// The TrafficTargets of this destination beside each other.
    Destination(ServiceAccountId),
    HttpRouteGroup(NamespacedName),
    TcpRoute(NamespacedName),
    UdpRoute(NamespacedName),
    Split(NamespacedName),
    MeshConfig(NamespacedName),
    Egress(NamespacedName),
    IngressBackend(NamespacedName),
    Retry(NamespacedName),
    UpstreamTrafficSetting(NamespacedName),
    Telemetry(NamespacedName),
    ExtensionService(NamespacedName),
    /// All of them together.
    MeshRootCertificates,
}

impl Catalog {
    /// Every check that may find something.
    pub(super) fn every_check(&self) -> impl Iterator<Item = Check> {
        let machines = self.workloads.keys().filter(|id| id.is_machine());
        (self.index.accounts_in.keys().cloned().map(Check::Namespace))
            .chain(self.services.keys().cloned().map(Check::Service))
            .chain(machines.cloned().map(Check::Machine))
            .chain(self.slices.keys().cloned().map(Check::Slice))
            .chain(self.index.at_address.keys().map(|(ip, ..)| Check::Address(*ip)))
            .chain(self.index.by_proxy.keys().cloned().map(Check::Proxy))
            .chain(self.traffic_targets.keys().cloned().map(Check::Target))
            .chain(self.index.targets_to.keys().cloned().map(Check::Destination))
            .chain(self.http_route_groups.keys().cloned().map(Check::HttpRouteGroup))
            .chain(self.tcp_routes.keys().cloned().map(Check::TcpRoute))
            .chain(self.udp_routes.keys().cloned().map(Check::UdpRoute))
            .chain(self.traffic_splits.keys().cloned().map(Check::Split))
            .chain(self.mesh_configs.keys().cloned().map(Check::MeshConfig))
            .chain(self.egresses.keys().cloned().map(Check::Egress))
            .chain(self.ingress_backends.keys().cloned().map(Check::IngressBackend))
            .chain(self.retries.keys().cloned().map(Check::Retry))
            .chain(self.upstream_settings.keys().cloned().map(Check::UpstreamTrafficSetting))
            .chain(self.telemetries.values().flat_map(BTreeMap::keys).cloned().map(Check::Telemetry))
            .chain(self.extension_services.keys().cloned().map(Check::ExtensionService))
            .chain([Check::MeshRootCertificates])
    }

    /// What a check finds. Nothing, where the object is gone.
    pub(super) fn check(&self, check: &Check) -> Vec<Problem> {
        let mut problems = Vec::new();
        match check {
            Check::Namespace(name) => identities::check(self, name, &mut problems),
            Check::Service(id) => services::check(self, id, &mut problems),
            Check::Machine(id) => machines::check(self, id, &mut problems),
            Check::Slice(id) => endpoints::check_slice(self, id, &mut problems),
            Check::Address(ip) => addresses::check(self, *ip, &mut problems),
            Check::Proxy(proxy) => endpoints::check_proxy(self, proxy, &mut problems),
            Check::Target(id) => {
                if let Some(target) = self.traffic_targets.get(id) {
                    outside::check(self, Kind::TrafficTarget, id, &mut problems);
                    access::check_target(self, target, &mut problems);
                }
            }
            Check::Destination(account) => access::check_destination(self, account, &mut problems),
            Check::HttpRouteGroup(id) if self.http_route_groups.contains_key(id) => {
                outside::check(self, Kind::HttpRouteGroup, id, &mut problems);
            }
            Check::TcpRoute(id) if self.tcp_routes.contains_key(id) => {
                outside::check(self, Kind::TcpRoute, id, &mut problems);
            }
            Check::UdpRoute(id) if self.udp_routes.contains_key(id) => {
                problems.push(access::not_enforced(id));
            }
            Check::Split(id) => {
                if let Some(split) = self.traffic_splits.get(id) {
                    outside::check(self, Kind::TrafficSplit, id, &mut problems);
                    splits::check(self, split, &mut problems);
                }
            }
            Check::Egress(id) => {
                if let Some(object) = self.egresses.get(id) {
                    outside::check(self, Kind::Egress, id, &mut problems);
                    egress::check(self, object, &mut problems);
                }
            }
            Check::IngressBackend(id) => {
                if let Some(object) = self.ingress_backends.get(id) {
                    outside::check(self, Kind::IngressBackend, id, &mut problems);
                    ingress::check(self, object, &mut problems);
                }
            }
            Check::Retry(id) => {
                if let Some(retry) = self.retries.get(id) {
                    outside::check(self, Kind::Retry, id, &mut problems);
                    retries::check(self, retry, &mut problems);
                }
            }
            Check::UpstreamTrafficSetting(id) => {
                if let Some(setting) = self.upstream_settings.get(id) {
                    outside::check(self, Kind::UpstreamTrafficSetting, id, &mut problems);
                    upstream::check(self, setting, &mut problems);
                }
            }
            Check::Telemetry(id) => {
                if let Some(telemetry) = self.telemetry(id) {
                    outside::check(self, Kind::Telemetry, id, &mut problems);
                    telemetry::check(self, telemetry, &mut problems);
                    telemetry::check_sidecars(self, id, &mut problems);
                    telemetry::check_collector(self, telemetry, &mut problems);
                }
            }
            Check::ExtensionService(id) => {
                if let Some(service) = self.extension_services.get(id) {
                    outside::check(self, Kind::ExtensionService, id, &mut problems);
                    extension_service::check(self, service, &mut problems);
                }
            }
            Check::MeshRootCertificates => mesh_root_certificates::check(self, &mut problems),
            Check::MeshConfig(id) => {
                if let Some(config) = self.mesh_configs.get(id) {
                    mesh_config::check(self, id, config, &mut problems);
                }
            }
            Check::HttpRouteGroup(_) | Check::TcpRoute(_) | Check::UdpRoute(_) => {}
        }
        problems
    }
}
