//! Kubernetes' own kinds: Namespace, Service, Pod (as [`Workload`]) and EndpointSlice.
//!
//! Owns what the mesh needs of each. A source converts the Kubernetes API object into it, and reports the
//! parts that it cannot convert.

use std::collections::BTreeMap;
use std::net::IpAddr;

use smc_types::ids::{NamespacedName, ProxyName, ProxyUuid, ServiceAccountId, ServiceId, WorkloadId};
use smc_types::proxy_class::AppProtocol;

use crate::access_log::Logged;

/// A namespace, and whether its pods are in the mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// Its name, a DNS-1123 label.
    pub name: String,
    /// Whether it carries the label `openservicemesh.io/monitored-by`: only then can its pods be in the mesh.
    pub monitored: bool,
    /// Whether its annotation asks for or refuses sidecars for the pods that say nothing themselves.
    pub injection: Option<bool>,
    /// Whether its annotation `openservicemesh.io/metrics` asks for sidecars that Prometheus scrapes.
    pub metrics: bool,
    /// Whether its annotation `mesh.smc.dev/permissive` lets every identity of the mesh reach its workloads,
    /// as permissive mode does for all namespaces.
    pub permissive: bool,
    /// What its annotation `mesh.smc.dev/access-log` says that its sidecars log; `None` leaves it to the
    /// mesh.
    pub access_log: Option<Logged>,
}

impl Namespace {
    /// Whether a pod in it gets a sidecar. The namespace must be monitored; then the pod's own annotation
    /// decides (`pod`), then the namespace's, and without either the answer is yes.
    pub fn injects(&self, pod: Option<bool>) -> bool {
        self.monitored && pod.or(self.injection).unwrap_or(true)
    }
}

/// A Service: a name, virtual addresses, and ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The name of the object.
    pub id: ServiceId,
    /// `spec.clusterIPs`; empty for a headless service and for one that has no address yet.
    pub cluster_ips: Vec<IpAddr>,
    /// Whether `spec.clusterIP` is `None`: clients connect to the addresses of its pods.
    pub headless: bool,
    /// The labels of the pods behind it; empty means that EndpointSlices alone say what is behind it.
    pub selector: BTreeMap<String, String>,
    /// Its TCP ports in declared order, one entry per port number. UDP and SCTP ports are reported by the
    /// source and left out, since the mesh does not carry them.
    pub ports: Vec<ServicePort>,
    /// Whether what a caller sends to it stays at one pod.
    pub affinity: SessionAffinity,
}

/// `spec.sessionAffinity` of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionAffinity {
    /// Any pod gets the next connection or request of a caller.
    #[default]
    None,
    /// A caller's connections and requests stay at one pod, as long as that pod gets traffic.
    ClientIp,
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// The port's name; `None` is allowed for a single port.
    pub name: Option<String>,
    /// The port that clients connect to, 1 to 65535.
    pub port: u16,
    /// The port in the pod.
    pub target: TargetPort,
    /// Its protocol.
    pub protocol: AppProtocol,
}

/// `targetPort` of a service port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetPort {
    /// This port of every pod.
    Number(u16),
    /// The container port of this name, which may differ from pod to pod.
    Name(String),
}

/// Whether a workload or an endpoint gets traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// It gets traffic: a pod with the Ready condition, not terminating; an endpoint with
    /// `conditions.ready`.
    Ready,
    /// It terminates and still serves: a pod with the Ready condition and a deletion timestamp; an endpoint
    /// with `conditions.terminating` and `conditions.serving`. It gets traffic only where none is ready
    /// (KEP-1669).
    Draining,
    /// The kubelet last reported that the pod is ready, and the node controller has taken the Ready condition
    /// away because the node is not heard of. The pod may well serve: after an API server was away for the
    /// node-monitor grace period (50 s by default) this is said of every pod of a cluster. It gets traffic
    /// only where none is ready.
    NodeUnreachable,
    /// It gets no traffic.
    NotReady,
}

impl Readiness {
    /// Of what serves or not, and terminates or not.
    pub fn of(serves: bool, terminating: bool) -> Self {
        match (serves, terminating) {
            (true, false) => Self::Ready,
            (true, true) => Self::Draining,
            (false, _) => Self::NotReady,
        }
    }

    /// Whether it gets traffic before all others.
    pub fn is_ready(self) -> bool {
        self == Self::Ready
    }
}

/// A Pod, or a machine without a pod (a MeshWorkload), with its identity and addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// The name of the object.
    pub id: WorkloadId,
    /// The UUID of its sidecar: the label `osm-proxy-uuid`, or derived from the name.
    pub proxy: ProxyUuid,
    /// Its identity.
    pub service_account: ServiceAccountId,
    /// Its labels, which service selectors look at; empty for a machine, which no selector matches.
    pub labels: BTreeMap<String, String>,
    /// Of a machine the services that it stands behind, at least one, all of its namespace. The first is in
    /// the name of its proxy, and is a DNS-1123 label. Empty for a pod, which services select.
    pub services: Vec<ServiceId>,
    /// `status.podIPs`, or the addresses of a machine; at most one per address family.
    pub ips: Vec<IpAddr>,
    /// Named container ports, or named ports of a machine.
    pub ports: BTreeMap<String, u16>,
    /// Whether it gets traffic.
    pub readiness: Readiness,
    /// Whether the pod itself asks for or refuses a sidecar by its annotation; `None` leaves it to the
    /// namespace. A pod that never gets one always refuses. Any other that runs with a sidecar asks for it.
    pub injection: Option<bool>,
}

impl Workload {
    /// The name of its sidecar, in its own namespace, and for a machine behind its first service.
    pub fn proxy_name(&self) -> ProxyName {
        let service = self.services.first().map(|service| service.name().into());
        ProxyName { service, ..ProxyName::of(self.proxy, &self.id) }
    }
}

/// Endpoints of a service, as Kubernetes or another controller lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointSlice {
    /// The slice's own name.
    pub id: NamespacedName,
    /// The service it belongs to: the label `kubernetes.io/service-name`.
    pub service: ServiceId,
    /// Whether Kubernetes' own controller makes it from the pods that the service selects. Such a slice says
    /// of a pod what the pod's conditions say, and each arrives by a watch of its own.
    pub follows_pods: bool,
    /// Ports, matched to service ports by name.
    pub ports: Vec<SlicePort>,
    /// Addresses.
    pub endpoints: Vec<SliceEndpoint>,
}

/// One port of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePort {
    /// The service port's name; `None` matches the unnamed port.
    pub name: Option<String>,
    /// The port at the endpoint.
    pub port: u16,
}

/// One endpoint of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// Its addresses, all of the slice's family.
    pub addresses: Vec<IpAddr>,
    /// Whether it gets traffic; never [`Readiness::NodeUnreachable`], which the pod behind it says.
    pub readiness: Readiness,
    /// The pod behind it, where the slice says so.
    pub workload: Option<WorkloadId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotation_of_the_pod_decides_before_that_of_a_monitored_namespace() {
        let (yes, no) = (Some(true), Some(false));
        for (sentence, monitored, namespace, pod, expected) in [
            ("a monitored namespace injects by default", true, None, None, true),
            ("a namespace that asks for sidecars gets them", true, yes, None, true),
            ("a namespace that refuses sidecars gets none", true, no, None, false),
            ("a pod that asks gets one", true, None, yes, true),
            ("a pod that refuses gets none", true, None, no, false),
            ("a pod that asks overrides its namespace", true, no, yes, true),
            ("a pod that refuses overrides its namespace", true, yes, no, false),
            ("outside the mesh silence means no", false, None, None, false),
            ("outside the mesh the namespace's wish does not count", false, yes, None, false),
            ("outside the mesh the pod's wish does not count", false, yes, yes, false),
        ] {
            let namespace = Namespace {
                name: "shop".to_owned(),
                monitored,
                injection: namespace,
                metrics: false,
                permissive: false,
                access_log: None,
            };
            assert_eq!(namespace.injects(pod), expected, "{sentence}");
        }
    }
}
