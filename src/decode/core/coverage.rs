//! Which fields of Kubernetes' own kinds the mesh obeys, so that none is ignored in silence.
//!
//! Owns a row for each field of a Service, an EndpointSlice and a Pod's spec. A test walks the schemas of
//! these kinds, and fails at a field without a row. Of a custom kind, the reader reports what it does not
//! obey.

use k8s_openapi::api::core::v1::ServiceSpec;
use smc_types::object_ref::ObjectRef;
use smc_types::problem::Problem;
use smc_types::text::truncated;

use Treatment::{Meaningless, NotObeyed, Obeyed};

/// How long, in seconds, Kubernetes keeps a silent caller's pod by default (Service API).
const DEFAULT_AFFINITY_SECONDS: i32 = 10_800;

/// What the mesh does with a field.
#[derive(Debug, Clone, Copy)]
pub enum Treatment {
    /// It has the effect that Kubernetes documents, or its reader reports what it has not.
    Obeyed,
    /// It changes nothing of what the mesh carries; why.
    Meaningless(&'static str),
    /// It has no effect. The function says so of a value that would change, without the mesh, where traffic
    /// of a caller goes.
    NotObeyed(fn(&ServiceSpec) -> Option<String>),
}

/// A field, by its path; `[]` is each element of a list. A row stands for all below it that have no row.
pub type Row = (&'static str, Treatment);

const OUTSIDE: &str = "about traffic from outside the cluster, which has no sidecar at the caller's end";
const NAMES: &str = "names are resolved before the mesh sees an address";
const RUNNING: &str = "about where and how the pod runs, and not about what is sent to it";

/// A Service's fields.
pub const SERVICE: &[Row] = &[
    ("apiVersion", Obeyed),
    ("kind", Obeyed),
    ("metadata", Obeyed),
    ("spec.type", Obeyed),
    ("spec.clusterIP", Obeyed),
    ("spec.clusterIPs", Obeyed),
    ("spec.selector", Obeyed),
    ("spec.ports[].name", Obeyed),
    ("spec.ports[].port", Obeyed),
    ("spec.ports[].targetPort", Obeyed),
    ("spec.ports[].protocol", Obeyed),
    ("spec.ports[].appProtocol", Obeyed),
    ("spec.ports[].nodePort", Meaningless(OUTSIDE)),
    ("spec.sessionAffinity", Obeyed),
    ("spec.sessionAffinityConfig.clientIP.timeoutSeconds", NotObeyed(affinity_timeout)),
    ("spec.internalTrafficPolicy", NotObeyed(internal_traffic_policy)),
    ("spec.trafficDistribution", NotObeyed(traffic_distribution)),
    ("spec.externalIPs", NotObeyed(external_ips)),
    (
        "spec.publishNotReadyAddresses",
        Meaningless("EndpointSlices list such pods as ready, and say so to the mesh"),
    ),
    ("spec.ipFamilies", Meaningless("Kubernetes gives addresses by it, which the mesh reads")),
    ("spec.ipFamilyPolicy", Meaningless("Kubernetes gives addresses by it, which the mesh reads")),
    ("spec.externalName", Meaningless("of ExternalName services alone, which their type reports")),
    ("spec.externalTrafficPolicy", Meaningless(OUTSIDE)),
    ("spec.healthCheckNodePort", Meaningless(OUTSIDE)),
    ("spec.allocateLoadBalancerNodePorts", Meaningless(OUTSIDE)),
    ("spec.loadBalancerClass", Meaningless(OUTSIDE)),
    ("spec.loadBalancerIP", Meaningless(OUTSIDE)),
    ("spec.loadBalancerSourceRanges", Meaningless(OUTSIDE)),
    ("status", Meaningless("about the load balancer's own address, at which the mesh is outside")),
];

/// An EndpointSlice's fields.
pub const ENDPOINT_SLICE: &[Row] = &[
    ("apiVersion", Obeyed),
    ("kind", Obeyed),
    ("metadata", Obeyed),
    ("addressType", Obeyed),
    ("ports[].name", Obeyed),
    ("ports[].port", Obeyed),
    ("ports[].protocol", Obeyed),
    ("ports[].appProtocol", Meaningless("a copy of the Service's own, which decides")),
    ("endpoints[].addresses", Obeyed),
    ("endpoints[].conditions", Obeyed),
    ("endpoints[].targetRef", Obeyed),
    (
        "endpoints[].hints",
        Meaningless("made from the Service's trafficDistribution, which is reported there"),
    ),
    ("endpoints[].nodeName", Meaningless("the mesh reaches endpoints on all nodes alike")),
    ("endpoints[].zone", Meaningless("the mesh reaches endpoints in all zones alike")),
    ("endpoints[].deprecatedTopology", Meaningless("a former form of zone and nodeName")),
    ("endpoints[].hostname", Meaningless(NAMES)),
];

/// The fields of a Pod's spec. Those of containers are the injector's.
pub const POD_SPEC: &[Row] = &[
    ("containers", Obeyed),
    ("initContainers", Obeyed),
    ("hostNetwork", Obeyed),
    ("os", Obeyed),
    ("readinessGates", Obeyed),
    ("serviceAccountName", Obeyed),
    ("serviceAccount", Obeyed),
    ("ephemeralContainers", Meaningless("they have no ports; what they send is intercepted as any")),
    ("dnsConfig", Meaningless(NAMES)),
    ("dnsPolicy", Meaningless(NAMES)),
    ("hostAliases", Meaningless(NAMES)),
    ("hostname", Meaningless(NAMES)),
    ("hostnameOverride", Meaningless(NAMES)),
    ("setHostnameAsFQDN", Meaningless(NAMES)),
    ("subdomain", Meaningless(NAMES)),
    ("enableServiceLinks", Meaningless("gives addresses of services in the environment; the mesh has them")),
    ("activeDeadlineSeconds", Meaningless(RUNNING)),
    ("affinity", Meaningless(RUNNING)),
    ("automountServiceAccountToken", Meaningless(RUNNING)),
    ("evictionResponders", Meaningless(RUNNING)),
    ("hostIPC", Meaningless(RUNNING)),
    ("hostPID", Meaningless(RUNNING)),
    ("hostUsers", Meaningless(RUNNING)),
    ("imagePullSecrets", Meaningless(RUNNING)),
    ("nodeName", Meaningless(RUNNING)),
    ("nodeSelector", Meaningless(RUNNING)),
    ("overhead", Meaningless(RUNNING)),
    ("preemptionPolicy", Meaningless(RUNNING)),
    ("priority", Meaningless(RUNNING)),
    ("priorityClassName", Meaningless(RUNNING)),
    ("resourceClaims", Meaningless(RUNNING)),
    ("resources", Meaningless(RUNNING)),
    ("restartPolicy", Meaningless(RUNNING)),
    ("runtimeClassName", Meaningless(RUNNING)),
    ("schedulerName", Meaningless(RUNNING)),
    ("schedulingGates", Meaningless(RUNNING)),
    ("schedulingGroup", Meaningless(RUNNING)),
    ("securityContext", Meaningless(RUNNING)),
    ("shareProcessNamespace", Meaningless(RUNNING)),
    ("terminationGracePeriodSeconds", Meaningless(RUNNING)),
    ("tolerations", Meaningless(RUNNING)),
    ("topologySpreadConstraints", Meaningless(RUNNING)),
    ("volumes", Meaningless(RUNNING)),
];

/// Reports the fields of a Service that would change where a caller's traffic goes, and do not.
pub(super) fn report(subject: &ObjectRef, spec: &ServiceSpec, problems: &mut Vec<Problem>) {
    for (field, treatment) in SERVICE {
        if let NotObeyed(message) = treatment
            && let Some(message) = message(spec)
        {
            problems.push(Problem::warning(subject, *field, message));
        }
    }
}

fn affinity_timeout(spec: &ServiceSpec) -> Option<String> {
    // Without affinity it has no effect in Kubernetes, either.
    spec.session_affinity.as_deref().filter(|affinity| *affinity == "ClientIP")?;
    let config = spec.session_affinity_config.as_ref()?.client_ip.as_ref()?;
    let seconds = config.timeout_seconds.filter(|seconds| *seconds != DEFAULT_AFFINITY_SECONDS)?;
    Some(format!(
        "{seconds} s has no effect: a caller in the mesh stays at its pod however long it is silent"
    ))
}

fn internal_traffic_policy(spec: &ServiceSpec) -> Option<String> {
    let policy = stated(spec.internal_traffic_policy.as_deref()).filter(|policy| *policy != "Cluster")?;
    let shown = truncated(policy, 40);
    Some(format!(
        "{shown} has no effect: callers in the mesh reach pods on all nodes, and not on their own alone"
    ))
}

fn traffic_distribution(spec: &ServiceSpec) -> Option<String> {
    let shown = truncated(stated(spec.traffic_distribution.as_deref())?, 40);
    Some(format!("{shown} has no effect: callers in the mesh reach pods in all zones and on all nodes alike"))
}

fn external_ips(spec: &ServiceSpec) -> Option<String> {
    let shown = truncated(spec.external_ips.as_ref()?.first()?, 60);
    Some(format!(
        "such as {shown} do not lead to the service in the mesh: a caller that dials one is refused, or with \
         egress on leaves the mesh in clear text"
    ))
}

fn stated(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
