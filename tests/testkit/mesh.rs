//! Small meshes for tests.
//!
//! Owns the construction of objects, in one short call each. Used by the tests of the mesh and by
//! those that pass snapshots to a real Envoy.

pub mod meshes;

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};
use smc_api::mesh_workload::{MeshWorkloadMeta, read_mesh_workload};
use smc_api::osm::{self, MeshConfig};
use smc_api::smi::{self, SplitVersion};
use smc_authority::pki::{ServiceCertificate, TrustBundle};
use smc_mesh::catalog::{Object, SourceEvent};
use smc_mesh::translate::{Compiler, Input, Settings};
use smc_model::sidecar_settings::LocalProxyMode;
use smc_model::topology::{
    Namespace, Readiness, Service, ServicePort, SessionAffinity, TargetPort, Workload,
};
use smc_types::ids::{NamespacedName, ProxyName, ProxyUuid, ServiceAccountId, TrustDomain, WorkloadId};
use smc_types::object_ref::ObjectRef;
use smc_types::proxy_class::AppProtocol;
use smc_xds::served_state::View;

/// A compiler with a bundle. [`certify`] adds certificates.
pub fn compiler(bundle: &str) -> Compiler {
    let mut compiler = Compiler::new(settings());
    compiler.apply([Input::Bundle(TrustBundle { pem: bundle.to_owned() })]);
    compiler
}

/// The settings of all tests.
pub fn settings() -> Settings {
    Settings::new(TrustDomain::new("cluster.local").unwrap())
}

/// The certificate of an identity.
pub fn certify(account: &str, chain: &str, key: &str) -> Input {
    let certificate = ServiceCertificate { chain_pem: chain.to_owned(), key_pem: key.to_owned().into() };
    Input::Certificate(account.parse().unwrap(), certificate)
}

/// A namespace in the mesh.
pub fn namespace(name: &str) -> Input {
    upsert(Object::Namespace(Namespace {
        name: name.to_owned(),
        monitored: true,
        injection: None,
        metrics: false,
        permissive: false,
        access_log: None,
    }))
}

/// A pod behind the services that select `app`, with a container port named `web` (8080).
pub fn pod(name: &str, account: &str, app: &str, ips: &[&str]) -> Input {
    pod_that(name, account, app, ips, true)
}

/// A pod that is ready or not.
pub fn pod_that(name: &str, account: &str, app: &str, ips: &[&str], ready: bool) -> Input {
    let id: WorkloadId = name.parse().unwrap();
    upsert(Object::from(Workload {
        proxy: ProxyUuid::derived(&id),
        id,
        service_account: account.parse().unwrap(),
        labels: BTreeMap::from([("app".to_owned(), app.to_owned())]),
        services: Vec::new(),
        ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        ports: BTreeMap::from([("web".to_owned(), 8080)]),
        readiness: Readiness::of(ready, false),
        injection: None,
    }))
}

/// A machine without a pod behind these services of its namespace, with a port named `web` (8080).
pub fn machine(name: &str, account: &str, services: &[&str], ips: &[&str], drained: bool) -> Input {
    let account: ServiceAccountId = account.parse().unwrap();
    let spec = json!({
        "addresses": ips,
        "serviceAccountName": account.name(),
        "services": services,
        "ports": [{"name": "web", "number": 8080}],
        "drained": drained,
    });
    let read = read_mesh_workload(name.parse().unwrap(), MeshWorkloadMeta::default(), spec);
    upsert(Object::from(read.object.unwrap()))
}

/// A service for the pods with label `app`. No address means headless.
pub fn service(name: &str, app: &str, ips: &[&str], ports: &[(u16, u16, AppProtocol)]) -> Input {
    let cluster_ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().unwrap()).collect();
    upsert(Object::from(Service {
        id: name.parse().unwrap(),
        headless: cluster_ips.is_empty(),
        cluster_ips,
        selector: BTreeMap::from([("app".to_owned(), app.to_owned())]),
        ports: ports
            .iter()
            .map(|&(port, target, protocol)| ServicePort {
                name: Some(format!("p{port}")),
                port,
                target: TargetPort::Number(target),
                protocol,
            })
            .collect(),
        affinity: SessionAffinity::None,
    }))
}

/// The service of an input, which keeps each caller at one of its pods.
///
/// # Panics
///
/// If the input is no service.
pub fn keeping_callers(service: Input) -> Input {
    let Input::Source(SourceEvent::Upsert(Object::Service(service))) = service else {
        panic!("not a service")
    };
    upsert(Object::from(Service { affinity: SessionAffinity::ClientIp, ..(*service).clone() }))
}

/// A TrafficTarget: `rules` are `(kind, name)`.
pub fn target(name: &str, destination: &str, sources: &[&str], rules: &[(&str, &str)]) -> Input {
    let account = |text: &str| {
        let id: ServiceAccountId = text.parse().unwrap();
        json!({"kind": "ServiceAccount", "name": id.name(), "namespace": id.namespace()})
    };
    let spec = json!({
        "destination": account(destination),
        "sources": sources.iter().map(|source| account(source)).collect::<Vec<_>>(),
        "rules": rules.iter().map(|(kind, name)| json!({"kind": kind, "name": name})).collect::<Vec<_>>(),
    });
    let id: NamespacedName = name.parse().unwrap();
    upsert(Object::from(smi::read_traffic_target(id, spec).object.unwrap()))
}

/// An HTTPRouteGroup from its `matches`.
pub fn group(name: &str, matches: &Value) -> Input {
    let id: NamespacedName = name.parse().unwrap();
    let object = smi::read_http_route_group(id, json!({ "matches": matches })).object.unwrap();
    upsert(Object::HttpRouteGroup(object))
}

/// A TCPRoute; no port means all.
pub fn tcp(name: &str, ports: &[u16]) -> Input {
    let spec = json!({"matches": {"ports": ports}});
    upsert(Object::TcpRoute(smi::read_tcp_route(name.parse().unwrap(), spec).object.unwrap()))
}

/// A TrafficSplit, with the HTTPRouteGroups it is limited to.
pub fn split(name: &str, root: &str, backends: &[(&str, u32)], matches: &[&str]) -> Input {
    let group = |name: &&str| json!({"kind": "HTTPRouteGroup", "name": name});
    let mut spec = json!({
        "service": root,
        "backends": backends.iter().map(|(leaf, weight)| json!({"service": leaf, "weight": weight})).collect::<Vec<_>>(),
    });
    if !matches.is_empty() {
        spec["matches"] = matches.iter().map(group).collect();
    }
    let id: NamespacedName = name.parse().unwrap();
    upsert(Object::TrafficSplit(smi::read_traffic_split(id, SplitVersion::V1Alpha4, spec).object.unwrap()))
}

/// An IngressBackend from its `spec`.
pub fn ingress(name: &str, spec: Value) -> Input {
    upsert(Object::from(osm::read_ingress_backend(&name.parse().unwrap(), spec).object.unwrap()))
}

/// An Egress from its `spec`.
pub fn egress(name: &str, spec: Value) -> Input {
    upsert(Object::from(osm::read_egress(&name.parse().unwrap(), spec).object.unwrap()))
}

/// A Retry from its `spec`.
pub fn retry(name: &str, spec: Value) -> Input {
    upsert(Object::from(osm::read_retry(&name.parse().unwrap(), spec).object.unwrap()))
}

/// An UpstreamTrafficSetting of a service of its namespace, from its `connectionSettings`.
pub fn connection_settings(name: &str, service: &str, settings: &Value) -> Input {
    upstream_setting(name, service, json!({"connectionSettings": settings}))
}

/// An UpstreamTrafficSetting of a service of its namespace, from the rest of its `spec`.
pub fn upstream_setting(name: &str, service: &str, mut spec: Value) -> Input {
    let name: NamespacedName = name.parse().unwrap();
    spec["host"] = format!("{service}.{}.svc.cluster.local", name.namespace()).into();
    upsert(Object::from(osm::read_upstream_traffic_setting(&name, spec).object.unwrap()))
}

/// A Telemetry.
pub fn telemetry(name: &str, spec: Value) -> Input {
    upsert(Object::from(osm::read_telemetry(&name.parse().unwrap(), spec).object.unwrap()))
}

/// An OSM ExtensionService.
pub fn extension_service(name: &str, spec: Value) -> Input {
    upsert(Object::from(osm::read_extension_service(&name.parse().unwrap(), spec).object.unwrap()))
}

/// The MeshConfig.
pub fn mesh_config(permissive: bool, egress: bool) -> Input {
    let name = NamespacedName::new("smc-system", "osm-mesh-config").unwrap();
    upsert(Object::MeshConfig(name, MeshConfig { permissive, egress, ..MeshConfig::default() }))
}

/// A MeshConfig with this `inboundExternalAuthorization`.
pub fn external_authorization(field: &Value) -> Input {
    mesh_config_of(json!({"traffic": {"inboundExternalAuthorization": field}}))
}

/// A MeshConfig with this `tracing`.
pub fn tracing(field: &Value) -> Input {
    mesh_config_of(json!({"observability": {"tracing": field}}))
}

/// A MeshConfig with these fields of `sidecar`.
pub fn sidecar(fields: &Value) -> Input {
    mesh_config_of(json!({"sidecar": fields}))
}

/// The MeshConfig with this `spec`.
pub fn mesh_config_of(spec: Value) -> Input {
    let name = NamespacedName::new("smc-system", "osm-mesh-config").unwrap();
    upsert(Object::MeshConfig(name.clone(), osm::read_mesh_config(name, spec).object.unwrap()))
}

/// A MeshConfig with `localProxyMode: PodIP`.
pub fn pod_ip_mode() -> Input {
    let name = NamespacedName::new("smc-system", "osm-mesh-config").unwrap();
    let local_proxy_mode = LocalProxyMode::PodIp;
    upsert(Object::MeshConfig(name, MeshConfig { local_proxy_mode, ..MeshConfig::default() }))
}

/// Removes the object.
pub fn remove(object: ObjectRef) -> Input {
    Input::Source(SourceEvent::Remove(object))
}

/// Adds or replaces the object.
pub fn upsert(object: Object) -> Input {
    Input::Source(SourceEvent::Upsert(object))
}

/// The pod's proxy.
pub fn proxy_name(pod: &str) -> ProxyName {
    let pod = pod.parse().unwrap();
    ProxyName::of(ProxyUuid::derived(&pod), &pod)
}

/// The configuration of the pod's proxy.
pub fn view(compiler: &Compiler, pod: &str) -> Option<View> {
    compiler.served_state().view(&proxy_name(pod))
}
