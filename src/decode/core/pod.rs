//! `v1` Pod: a workload with its identity, addresses and sidecar.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use smc_api::address::check_port_name;
use smc_model::topology::{Readiness, Workload};
use smc_types::ids::{MeshName, ProxyUuid, ServiceAccountId, WorkloadId};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::{Problem, Reading};
use smc_types::text::truncated;

use super::address::one_per_family;
use super::namespace::{injection_problem, read_injection, read_namespace};
use super::{namespaced, port};
use crate::{Platform, Rules};

pub use smc_sidecar::injection::PROXY_UUID_LABEL;
use smc_sidecar::injection::{ENVOY, MIRROR_ANNOTATION, NotInjected};

/// The service account of a pod that names none (Kubernetes' admission fills it in).
const DEFAULT_SERVICE_ACCOUNT: &str = "default";

/// Reads a Pod. Without an address it is known but never ready; a pod that has ended has no address.
///
/// A pod with an invalid proxy UUID or service account is refused: any other value in its place could be
/// that of another pod.
pub fn read_pod(pod: &core::Pod, platform: Platform) -> Reading<Workload> {
    let (id, subject) = match namespaced(Kind::Pod, &pod.metadata) {
        Ok(named) => named,
        Err(unusable) => return unusable,
    };
    let id = WorkloadId::from(id);
    let mut problems = Vec::new();
    let spec = pod.spec.as_ref();
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    let proxy = read_proxy_uuid(&subject, &id, &labels, &mut problems);
    let service_account = read_service_account(&subject, &id, spec, &mut problems);
    let ips = read_pod_ips(&subject, pod.status.as_ref(), &mut problems);
    let ports = spec.map(|spec| read_named_ports(&subject, spec, &mut problems)).unwrap_or_default();
    let (stated, refused) = read_pod_injection(pod);
    let injection = if has_sidecar(pod) { Some(true) } else { stated };
    problems.extend(refused.map(|message| injection_problem(&subject, message)));
    let readiness = if ips.is_empty() { Readiness::NotReady } else { read_readiness(pod, platform) };
    let workload = proxy.zip(service_account).map(|(proxy, service_account)| Workload {
        id,
        proxy,
        service_account,
        labels,
        services: Vec::new(),
        ips,
        ports,
        readiness,
        injection,
    });
    Reading { object: workload, problems }
}

fn read_proxy_uuid(
    subject: &ObjectRef,
    id: &WorkloadId,
    labels: &BTreeMap<String, String>,
    problems: &mut Vec<Problem>,
) -> Option<ProxyUuid> {
    let Some(text) = labels.get(PROXY_UUID_LABEL) else {
        return Some(ProxyUuid::derived(id));
    };
    let uuid = text.parse::<ProxyUuid>().ok().filter(|uuid| !uuid.0.is_nil());
    if uuid.is_none() {
        let shown = truncated(text, 63);
        let message =
            format!("{shown:?} is not a UUID; the pod is left out, so that it gets no other pod's sidecar");
        problems.push(Problem::error(subject, format!("metadata.labels[{PROXY_UUID_LABEL}]"), message));
    }
    uuid
}

fn read_service_account(
    subject: &ObjectRef,
    id: &WorkloadId,
    spec: Option<&core::PodSpec>,
    problems: &mut Vec<Problem>,
) -> Option<ServiceAccountId> {
    let stated = |text: Option<&String>| text.filter(|name| !name.is_empty()).cloned();
    let name = spec.and_then(|spec| {
        stated(spec.service_account_name.as_ref()).or_else(|| stated(spec.service_account.as_ref()))
    });
    match ServiceAccountId::new(id.namespace(), name.as_deref().unwrap_or(DEFAULT_SERVICE_ACCOUNT)) {
        Ok(account) => Some(account),
        Err(error) => {
            let message = format!("{error}; the pod is left out, since it has no identity");
            problems.push(Problem::error(subject, "spec.serviceAccountName", message));
            None
        }
    }
}

fn read_pod_ips(
    subject: &ObjectRef,
    status: Option<&core::PodStatus>,
    problems: &mut Vec<Problem>,
) -> Vec<std::net::IpAddr> {
    let Some(status) = status else { return Vec::new() };
    // A pod that has ended keeps its address in its status, but another pod may have it already.
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return Vec::new();
    }
    let single = status.pod_ip.as_deref().filter(|text| !text.is_empty());
    let list: Vec<&str> = status.pod_ips.iter().flatten().map(|entry| entry.ip.as_str()).collect();
    if list.is_empty() {
        return one_per_family(subject, "status.podIP", single.into_iter(), problems);
    }
    if single.is_some_and(|single| list.first() != Some(&single)) {
        let message = "differs from the first of status.podIPs, which is used";
        problems.push(Problem::warning(subject, "status.podIP", message));
    }
    one_per_family(subject, "status.podIPs", list.into_iter(), problems)
}

/// Named TCP ports of the containers that run as long as the pod: the containers, and the init containers
/// that always restart ("sidecars"). If two have the same name the first is used, as in Kubernetes' own
/// lookup of a `targetPort`.
fn read_named_ports(
    subject: &ObjectRef,
    spec: &core::PodSpec,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, u16> {
    let containers =
        spec.containers.iter().enumerate().map(|(i, container)| (format!("spec.containers[{i}]"), container));
    let sidecars = spec.init_containers.iter().flatten().enumerate().filter_map(|(i, container)| {
        let always = container.restart_policy.as_deref() == Some("Always");
        always.then(|| (format!("spec.initContainers[{i}]"), container))
    });
    let mut ports = BTreeMap::new();
    for (path, container) in containers.chain(sidecars) {
        for (i, declared) in container.ports.iter().flatten().enumerate() {
            if !port::is_tcp(declared.protocol.as_deref()) {
                continue;
            }
            let field = |name: &str| format!("{path}.ports[{i}].{name}");
            let Some(number) = port::read_number(declared.container_port) else {
                let message =
                    format!("{} is not a port number (1 to 65535); left out", declared.container_port);
                problems.push(Problem::error(subject, field("containerPort"), message));
                continue;
            };
            let Some(name) = declared.name.as_deref().filter(|name| !name.is_empty()) else { continue };
            if let Err(reason) = check_port_name(name) {
                let shown = truncated(name, 60);
                problems.push(Problem::error(
                    subject,
                    field("name"),
                    format!("{shown:?} {reason}; left out"),
                ));
                continue;
            }
            let first = *ports.entry(name.to_owned()).or_insert(number);
            if first != number {
                let message = format!("{name} already names port {first}, which is used");
                problems.push(Problem::warning(subject, field("name"), message));
            }
        }
    }
    ports
}

/// Whether the pod asks for or refuses a sidecar, and what is wrong with how it asks. A pod that never gets
/// one always refuses.
fn read_pod_injection(pod: &core::Pod) -> (Option<bool>, Option<String>) {
    let (stated, problem) = read_injection(pod.metadata.annotations.as_ref());
    let Some(reason) = never(pod) else { return (stated, problem) };
    let message = || format!("{reason}, and such a pod never gets a sidecar");
    (Some(false), problem.or_else(|| (stated == Some(true)).then(message)))
}

/// Why the pod never gets a sidecar, by the rule of the injector. In the host's network interception would
/// take the traffic of the whole machine.
fn never(pod: &core::Pod) -> Option<NotInjected> {
    let mirror = pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(MIRROR_ANNOTATION));
    let spec = pod.spec.as_ref();
    let os = spec.and_then(|spec| spec.os.as_ref()).map(|os| os.name.as_str());
    NotInjected::ever(spec.and_then(|spec| spec.host_network) == Some(true), mirror, os)
}

/// Whether the pod runs with a sidecar: it has the label and the container that injection gives, SMC's or
/// OSM's. The annotations decide about pods that are made; what a pod has, it keeps until it ends. A pod that
/// never gets one has none, whatever it looks like.
fn has_sidecar(pod: &core::Pod) -> bool {
    let labelled = pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(PROXY_UUID_LABEL));
    let Some(spec) = pod.spec.as_ref().filter(|_| never(pod).is_none()) else { return false };
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    labelled && containers.any(|container| container.name == ENVOY)
}

/// Whether a pod in this namespace gets a sidecar of this mesh, decided from the API objects alone: before
/// the catalog knows the pod. Problems of the annotations are reported by [`read_pod`] and
/// [`read_namespace`].
pub fn gets_sidecar(pod: &core::Pod, namespace: &core::Namespace, mesh: &MeshName) -> bool {
    let namespace = read_namespace(namespace, &Rules::api_server(mesh.clone())).object;
    namespace.is_some_and(|namespace| namespace.injects(read_pod_injection(pod).0))
}

/// Whether a pod with an address gets traffic.
///
/// The kubelet says `Ready` of a pod with `ContainersReady` and a `True` condition for each readiness gate
/// (KEP-580). A pod with these and without `Ready` was thus marked by the node controller, which sets the one
/// condition when it does not hear of the node.
fn read_readiness(pod: &core::Pod, platform: Platform) -> Readiness {
    let Some(status) = pod.status.as_ref() else { return Readiness::NotReady };
    // A pod that has not started or has ended serves no traffic, regardless of its conditions.
    if !matches!(status.phase.as_deref(), None | Some("" | "Running" | "Unknown")) {
        return Readiness::NotReady;
    }
    let condition = |name: &str| {
        let found = status.conditions.iter().flatten().find(|condition| condition.type_ == name);
        found.map(|condition| condition.status == "True")
    };
    let holds = |name: &str| condition(name) == Some(true);
    let mut gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let serves = condition("Ready").unwrap_or(platform == Platform::Files);
    let terminating = pod.metadata.deletion_timestamp.is_some();
    if !serves && !terminating && holds("ContainersReady") && gates.all(|gate| holds(&gate.condition_type)) {
        return Readiness::NodeUnreachable;
    }
    Readiness::of(serves, terminating)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use smc_mesh::catalog::{Catalog, Object, SourceEvent};
    use smc_model::topology::Namespace;
    use smc_sidecar::injection::{Decision, decide};
    use smc_types::problem::Severity::{Error, Warning};

    use super::super::namespace::INJECTION_ANNOTATION;
    use super::super::testing::{fields, object};
    use super::*;

    fn read(pod: Value) -> Reading<Workload> {
        read_pod(&object(pod), Platform::Files)
    }

    /// A pod `shop/store` with more metadata, this spec and this status.
    #[expect(clippy::needless_pass_by_value, reason = "every call passes a literal")]
    fn pod(meta: Value, spec: Value, status: Value) -> Value {
        let mut pod =
            json!({"metadata": {"name": "store", "namespace": "shop"}, "spec": spec, "status": status});
        for (key, value) in meta.as_object().unwrap() {
            pod["metadata"][key] = value.clone();
        }
        pod
    }

    #[test]
    fn a_pod_has_an_identity_addresses_ports_and_a_sidecar() {
        let uuid = "0d2f5a52-8f0e-4f3e-9c52-0a3a1b1c2d3e";
        let reading = read(pod(
            json!({"labels": {"app": "store", "osm-proxy-uuid": uuid}}),
            json!({"serviceAccountName": "seller", "containers": [
                {"name": "main", "ports": [{"name": "http", "containerPort": 8080}, {"containerPort": 9090}]},
            ]}),
            json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}),
        ));
        assert_eq!(reading.problems, []);
        let workload = reading.object.unwrap();
        assert_eq!(workload.id.to_string(), "shop/store");
        assert_eq!(workload.proxy.to_string(), uuid);
        assert_eq!(workload.service_account.to_string(), "shop/seller");
        assert_eq!(workload.labels["app"], "store");
        assert_eq!(workload.ips.len(), 2);
        assert_eq!(workload.ports, [("http".to_owned(), 8080)].into());
        assert!(workload.readiness.is_ready());
        assert_eq!(workload.injection, None);
    }

    #[test]
    fn a_pod_without_a_uuid_gets_the_one_derived_from_its_name() {
        let reading = read(pod(json!({}), json!({"containers": []}), json!({})));
        let workload = reading.object.unwrap();
        assert_eq!(workload.proxy, ProxyUuid::derived(&workload.id));
    }

    #[test]
    fn a_pod_whose_sidecar_or_identity_is_uncertain_is_no_pod() {
        for uuid in ["nonsense", "", "00000000-0000-0000-0000-000000000000"] {
            let reading = read(pod(json!({"labels": {"osm-proxy-uuid": uuid}}), json!({}), json!({})));
            assert_eq!(reading.object, None, "{uuid:?}");
            assert_eq!(fields(&reading.problems), [(Error, "metadata.labels[osm-proxy-uuid]")]);
        }
        let reading = read(pod(json!({}), json!({"serviceAccountName": "../admin"}), json!({})));
        assert_eq!(reading.object, None);
        assert_eq!(fields(&reading.problems), [(Error, "spec.serviceAccountName")]);
    }

    #[test]
    fn the_service_account_is_the_named_one_then_the_old_field_then_default() {
        for (spec, account) in [
            (json!({}), "shop/default"),
            (json!({"serviceAccountName": ""}), "shop/default"),
            (json!({"serviceAccount": "old"}), "shop/old"),
            (json!({"serviceAccountName": "new", "serviceAccount": "old"}), "shop/new"),
        ] {
            let workload = read(pod(json!({}), spec, json!({}))).object.unwrap();
            assert_eq!(workload.service_account.to_string(), account);
        }
    }

    #[test]
    fn readiness_is_the_condition_of_a_running_pod_with_an_address() {
        let ready = |status: &str| json!({"type": "Ready", "status": status});
        let ip = "10.0.0.1";
        for (meta, status, with_silence_ready, with_silence_not_ready) in [
            (json!({}), json!({}), false, false),
            (json!({}), json!({"conditions": [ready("True")]}), false, false),
            (json!({}), json!({"podIP": ip}), true, false),
            (json!({}), json!({"podIP": ip, "phase": "Running"}), true, false),
            (json!({}), json!({"podIP": ip, "phase": "Pending"}), false, false),
            (
                json!({}),
                json!({"podIP": ip, "phase": "Succeeded", "conditions": [ready("True")]}),
                false,
                false,
            ),
            (json!({}), json!({"podIP": ip, "phase": "Failed"}), false, false),
            (json!({}), json!({"podIP": ip, "conditions": [ready("True")]}), true, true),
            (json!({}), json!({"podIP": ip, "conditions": [ready("False")]}), false, false),
            (json!({}), json!({"podIP": ip, "conditions": [ready("Unknown")]}), false, false),
            (
                json!({}),
                json!({"podIP": ip, "conditions": [{"type": "Initialized", "status": "True"}]}),
                true,
                false,
            ),
            (
                json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
                json!({"podIP": ip, "conditions": [ready("True")]}),
                false,
                false,
            ),
        ] {
            let pod = object(pod(meta, json!({}), status.clone()));
            let by = |platform| {
                let readiness = read_pod(&pod, platform).object.unwrap().readiness;
                let terminating = pod.metadata.deletion_timestamp.is_some();
                assert!(readiness != Readiness::Draining || terminating);
                readiness.is_ready()
            };
            assert_eq!(by(Platform::Files), with_silence_ready, "{status}");
            assert_eq!(by(Platform::ApiServer), with_silence_not_ready, "{status}");
        }
        let unknown = read(json!({"metadata": {"name": "store"}})).object.unwrap();
        assert_eq!(unknown.readiness, Readiness::NotReady);
    }

    /// Kubernetes leaves the condition as it is while a pod terminates.
    #[test]
    fn a_terminating_pod_drains_as_long_as_it_is_ready_and_runs() {
        for (phase, condition, readiness) in [
            ("Running", "True", Readiness::Draining),
            ("Running", "False", Readiness::NotReady),
            ("Failed", "True", Readiness::NotReady),
            ("Pending", "True", Readiness::NotReady),
        ] {
            let status = json!({"phase": phase, "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": condition}]});
            let pod = pod(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), json!({}), status);
            let workload = read(pod).object.unwrap();
            assert_eq!(workload.readiness, readiness, "{phase} {condition}");
        }
    }

    /// Only the kubelet takes `ContainersReady` away, and only the author of a readiness gate its condition.
    #[test]
    fn a_pod_without_ready_alone_is_on_a_node_that_is_not_heard_of() {
        let gated = json!({"readinessGates": [{"conditionType": "example.com/gate"}]});
        let terminating = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        for (meta, spec, phase, ready, containers, gate, expected) in [
            (json!({}), json!({}), "Running", "False", "True", None, Readiness::NodeUnreachable),
            (json!({}), json!({}), "Running", "Unknown", "True", None, Readiness::NodeUnreachable),
            (json!({}), json!({}), "Unknown", "False", "True", None, Readiness::NodeUnreachable),
            (json!({}), json!({}), "Running", "False", "False", None, Readiness::NotReady),
            (json!({}), json!({}), "Failed", "False", "True", None, Readiness::NotReady),
            (json!({}), gated.clone(), "Running", "False", "True", Some("True"), Readiness::NodeUnreachable),
            (json!({}), gated.clone(), "Running", "False", "True", Some("False"), Readiness::NotReady),
            (json!({}), gated, "Running", "False", "True", None, Readiness::NotReady),
            (terminating, json!({}), "Running", "False", "True", None, Readiness::NotReady),
        ] {
            let condition = |name: &str, status: &str| json!({"type": name, "status": status});
            let mut conditions = vec![condition("Ready", ready), condition("ContainersReady", containers)];
            conditions.extend(gate.map(|status| condition("example.com/gate", status)));
            let status = json!({"phase": phase, "podIP": "10.0.0.1", "conditions": conditions});
            let workload = read(pod(meta, spec, status.clone())).object.unwrap();
            assert_eq!(workload.readiness, expected, "{status}");
        }
    }

    #[test]
    fn a_pod_that_has_ended_has_no_address() {
        for (phase, addresses) in [("Running", 1), ("Pending", 1), ("Succeeded", 0), ("Failed", 0)] {
            let status = json!({"phase": phase, "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]});
            let workload = read(pod(json!({}), json!({}), status)).object.unwrap();
            assert_eq!(workload.ips.len(), addresses, "{phase}");
        }
    }

    #[test]
    fn bad_addresses_are_left_out_one_by_one() {
        let status =
            json!({"podIP": "10.0.0.9", "podIPs": [{"ip": "x"}, {"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]});
        let reading = read(pod(json!({}), json!({}), status));
        let problems = [(Warning, "status.podIP"), (Error, "status.podIPs[0]"), (Error, "status.podIPs[2]")];
        assert_eq!(fields(&reading.problems), problems);
        assert_eq!(reading.object.unwrap().ips, ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
    }

    #[test]
    fn named_ports_come_from_containers_that_keep_running_init_ones_included() {
        let reading = read(pod(
            json!({}),
            json!({
                "containers": [
                    {"name": "a", "ports": [{"name": "http", "containerPort": 8080}]},
                    {"name": "b", "ports": [
                        {"name": "http", "containerPort": 8081},
                        {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                        {"name": "zero", "containerPort": 0},
                        {"name": "Bad", "containerPort": 1},
                    ]},
                ],
                "initContainers": [
                    {"name": "once", "ports": [{"name": "once", "containerPort": 1}]},
                    {"name": "side", "restartPolicy": "Always", "ports": [{"name": "side", "containerPort": 2}]},
                ],
            }),
            json!({}),
        ));
        assert_eq!(reading.object.unwrap().ports, [("http".to_owned(), 8080), ("side".to_owned(), 2)].into());
        let problems = [
            (Warning, "spec.containers[1].ports[0].name"),
            (Error, "spec.containers[1].ports[2].containerPort"),
            (Error, "spec.containers[1].ports[3].name"),
        ];
        assert_eq!(fields(&reading.problems), problems);
    }

    /// What a pod may have beside annotations that decides about a sidecar: metadata and spec, and whether
    /// it may get one.
    fn shapes() -> [(Value, Value, bool); 6] {
        [
            (json!({}), json!({}), true),
            (json!({}), json!({"hostNetwork": false, "os": {"name": "linux"}}), true),
            (json!({}), json!({"hostNetwork": true}), false),
            (json!({}), json!({"os": {"name": "windows"}}), false),
            (json!({MIRROR_ANNOTATION: "0f"}), json!({}), false),
            (json!({MIRROR_ANNOTATION: ""}), json!({"hostNetwork": true}), false),
        ]
    }

    #[test]
    fn a_pod_that_cannot_have_a_sidecar_refuses_one_and_says_why() {
        for (annotations, spec, may) in shapes() {
            for asks in [false, true] {
                let mut annotations = annotations.clone();
                if asks {
                    annotations[INJECTION_ANNOTATION] = "enabled".into();
                }
                let reading = read(pod(json!({ "annotations": annotations }), spec.clone(), json!({})));
                let expected = if may { asks.then_some(true) } else { Some(false) };
                assert_eq!(reading.object.unwrap().injection, expected, "{annotations} {spec}");
                assert_eq!(reading.problems.len(), usize::from(asks && !may), "{annotations} {spec}");
            }
        }
    }

    /// A namespace may have changed its mind since the pod was made.
    #[test]
    fn a_pod_that_has_a_sidecar_is_in_the_mesh_while_its_namespace_is() {
        let labelled = json!({"labels": {"osm-proxy-uuid": "0d2f5a52-8f0e-4f3e-9c52-0a3a1b1c2d3e"}});
        let refusing =
            json!({"labels": labelled["labels"].clone(), "annotations": {INJECTION_ANNOTATION: "no"}});
        let envoy = json!([{"name": "envoy"}]);
        for (what, meta, spec, expected) in [
            ("a native sidecar", labelled.clone(), json!({"initContainers": envoy}), true),
            ("a sidecar of OSM's", labelled.clone(), json!({"containers": envoy}), true),
            ("what it asks for now", refusing, json!({"initContainers": envoy}), true),
            ("a label alone", labelled.clone(), json!({"containers": [{"name": "main"}]}), false),
            ("an Envoy of its own", json!({}), json!({"containers": envoy}), false),
            (
                "the host's network",
                labelled.clone(),
                json!({"containers": envoy, "hostNetwork": true}),
                false,
            ),
            ("Windows", labelled, json!({"containers": envoy, "os": {"name": "windows"}}), false),
        ] {
            let workload = read(pod(meta, spec, json!({}))).object.unwrap();
            for monitored in [true, false] {
                let namespace = Namespace {
                    name: "shop".to_owned(),
                    monitored,
                    injection: Some(false),
                    metrics: false,
                    permissive: false,
                    access_log: None,
                };
                let mut catalog = Catalog::default();
                catalog.apply(SourceEvent::Upsert(Object::Namespace(namespace)));
                assert_eq!(catalog.in_mesh(&workload), expected && monitored, "{what}, {monitored}");
            }
        }
    }

    #[test]
    fn who_gets_a_sidecar_is_who_the_catalog_says_is_in_the_mesh() {
        let says = [None, Some("enabled"), Some("disabled"), Some("nonsense")];
        let annotations = |says: Option<&str>| says.map(|says| json!({ INJECTION_ANNOTATION: says }));
        let labels = [
            json!({}),
            json!({"openservicemesh.io/monitored-by": "smc"}),
            json!({"openservicemesh.io/monitored-by": "smc", "openservicemesh.io/ignore": "true"}),
        ];
        let mut with_sidecar = Vec::new();
        for (labels, namespace_says) in labels.iter().flat_map(|labels| says.map(|says| (labels, says))) {
            let namespace: core::Namespace = object(json!({"metadata": {
                "name": "shop", "labels": labels, "annotations": annotations(namespace_says),
            }}));
            let mut catalog = Catalog::default();
            let read = read_namespace(&namespace, &Rules::default()).object.unwrap();
            catalog.apply(SourceEvent::Upsert(Object::Namespace(read.clone())));
            for (pod_says, (more, spec, _)) in
                says.iter().flat_map(|says| shapes().map(|shape| (*says, shape)))
            {
                let mut annotations = annotations(pod_says).unwrap_or_else(|| json!({}));
                annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                let submitted = pod(json!({ "annotations": annotations }), spec, json!({}));
                let pod: core::Pod = object(submitted.clone());
                let workload = read_pod(&pod, Platform::Files).object.unwrap();
                let sidecar = gets_sidecar(&pod, &namespace, &MeshName::default());
                let injected = decide(&read, &submitted) == Decision::Inject;
                let in_mesh = catalog.in_mesh(&workload);
                assert_eq!(
                    (sidecar, injected),
                    (in_mesh, in_mesh),
                    "{labels} {namespace_says:?} {submitted}"
                );
                if sidecar {
                    with_sidecar.push((namespace_says, pod_says));
                }
            }
        }
        let enabled = Some("enabled");
        let asking = says.map(|namespace| (namespace, enabled));
        let silent = [(None, None), (enabled, None)];
        with_sidecar.sort_unstable();
        with_sidecar.dedup();
        let mut expected = [&asking[..], &silent].concat();
        expected.sort_unstable();
        assert_eq!(with_sidecar, expected);
    }

    #[test]
    fn a_pod_without_a_namespace_is_in_default_and_one_without_a_name_is_none() {
        let workload = read(json!({"metadata": {"name": "store"}})).object.unwrap();
        assert_eq!(workload.id.to_string(), "default/store");
        let nameless = read(json!({"metadata": {"generateName": "store-"}}));
        assert_eq!((nameless.object, fields(&nameless.problems)), (None, vec![(Error, "metadata")]));
    }
}
