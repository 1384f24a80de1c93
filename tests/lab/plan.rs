//! Owns the translation of a Pod into processes on this machine: commands, users, environment, and
//! whether the Pod is in the mesh. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, Probe as PodProbe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;
use smc_decode::core::gets_sidecar;
use smc_types::ids::{MeshName, NamespacedName, ProxyUuid, WorkloadId};

use super::config;
use super::mesh_files::{MeshFiles, PROXY_UUID_LABEL};

/// The default user of containers: neither root nor the proxy's user.
pub(super) const DEFAULT_UID: u32 = 1001;
/// Longest grace period. Labs start and stop more often than clusters.
const MAX_GRACE: Duration = Duration::from_secs(5);
/// How long a Pod in the mesh serves on once it is no endpoint any more, unless its containers say so
/// themselves by `lifecycle.preStop.sleep`: until its callers' sidecars have heard of it. That takes some
/// 200 ms; the rest is for a machine that starts Envoys meanwhile.
const DRAIN: Duration = Duration::from_secs(2);

/// All inputs of a running Pod. A Pod whose plan is unchanged is not restarted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodPlan {
    pub(super) name: NamespacedName,
    pub(super) service_account: String,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) in_mesh: bool,
    /// Whether it is a machine without a pod, which a MeshWorkload declares.
    pub(super) machine: bool,
    /// Flags of `smc init`.
    pub(super) init_flags: Vec<String>,
    pub(super) init_containers: Vec<ContainerPlan>,
    pub(super) containers: Vec<ContainerPlan>,
    /// Between the Pod's withdrawal from its services and SIGTERM to its containers.
    pub(super) drain: Duration,
    pub(super) grace: Duration,
}

/// One container's process.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ContainerPlan {
    pub(super) name: String,
    pub(super) argv: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) probe: Option<Probe>,
}

/// A readiness probe.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Probe {
    pub(super) check: Check,
    pub(super) initial_delay: Duration,
    pub(super) period: Duration,
    pub(super) timeout: Duration,
    pub(super) failure_threshold: u32,
}

/// The action of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Passes if this port accepts a connection.
    Tcp(u16),
    /// Passes for a status from 200 to 399.
    Http {
        /// Port on the Pod's loopback address.
        port: u16,
        /// Path of the GET request.
        path: String,
    },
    /// Passes for exit status 0.
    Exec(Vec<String>),
}

impl PodPlan {
    /// Returns the plan of `pod`, or the reason why it cannot run here, on one line.
    pub(super) fn new(
        name: &NamespacedName,
        pod: &Pod,
        mesh: &MeshFiles,
        addresses: Vec<IpAddr>,
    ) -> Result<Self, String> {
        let spec = pod.spec.as_ref().ok_or("it has no spec")?;
        let annotations = pod.metadata.annotations.clone().unwrap_or_default();
        let namespace = mesh.namespaces.get(name.namespace());
        let in_mesh = namespace.is_some_and(|namespace| gets_sidecar(pod, namespace, &MeshName::default()));
        let init_flags = if in_mesh { init_flags(&annotations, &mesh.traffic)? } else { Vec::new() };
        let uid = |container: &Container| {
            container
                .security_context
                .as_ref()
                .and_then(|context| context.run_as_user)
                .or_else(|| spec.security_context.as_ref().and_then(|context| context.run_as_user))
        };
        let gid = |container: &Container| {
            container
                .security_context
                .as_ref()
                .and_then(|context| context.run_as_group)
                .or_else(|| spec.security_context.as_ref().and_then(|context| context.run_as_group))
        };
        let service_account = spec.service_account_name.clone().unwrap_or_else(|| "default".to_owned());
        let fields = fields(name, pod, &service_account, &addresses);
        let containers = |containers: &[Container]| {
            containers
                .iter()
                .map(|container| ContainerPlan::new(container, uid(container), gid(container), &fields))
                .collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            name: name.clone(),
            in_mesh,
            machine: mesh.machines.contains_key(name),
            init_flags,
            init_containers: containers(spec.init_containers.as_deref().unwrap_or_default())?,
            containers: containers(&spec.containers)?,
            drain: drain(&spec.containers, in_mesh),
            grace: seconds(spec.termination_grace_period_seconds, MAX_GRACE).min(MAX_GRACE),
            service_account,
            addresses,
        })
    }

    /// Returns its name for the controller.
    pub(super) fn workload(&self) -> WorkloadId {
        if self.machine { WorkloadId::machine(self.name.clone()) } else { self.name.clone().into() }
    }

    /// Returns the default user and group of `exec`: the first container's.
    pub(super) fn user(&self) -> (u32, u32) {
        self.containers.first().map_or((DEFAULT_UID, DEFAULT_UID), |first| (first.uid, first.gid))
    }
}

impl ContainerPlan {
    fn new(
        container: &Container,
        uid: Option<i64>,
        gid: Option<i64>,
        fields: &BTreeMap<&'static str, String>,
    ) -> Result<Self, String> {
        let name = container.name.clone();
        if NamespacedName::new("x", &name).is_err() {
            return Err(format!("container name `{name}` is not valid"));
        }
        let command = container.command.clone().unwrap_or_default();
        if command.is_empty() {
            return Err(format!("container {name}: the lab has no images, so it needs `command`"));
        }
        let id = |what: &str, id: Option<i64>, default: u32| match id.map(u32::try_from) {
            None => Ok(default),
            Some(Ok(id)) => Ok(id),
            Some(Err(_)) => Err(format!("container {name}: {what} is not a user id")),
        };
        let uid = id("runAsUser", uid, DEFAULT_UID)?;
        let gid = id("runAsGroup", gid, uid)?;
        let env = environment(container.env.as_deref().unwrap_or_default(), fields)
            .map_err(|problem| format!("container {name}: {problem}"))?;
        let argv = command
            .iter()
            .chain(container.args.iter().flatten())
            .map(|argument| expand(argument, &env))
            .collect();
        let probe = container
            .readiness_probe
            .as_ref()
            .map(|probe| Probe::new(probe, container))
            .transpose()
            .map_err(|problem| format!("container {name}: {problem}"))?;
        Ok(Self { name, argv, env, uid, gid, probe })
    }
}

impl Probe {
    fn new(probe: &PodProbe, container: &Container) -> Result<Self, String> {
        let check = if let Some(tcp) = &probe.tcp_socket {
            Check::Tcp(container_port(&tcp.port, container)?)
        } else if let Some(http) = &probe.http_get {
            Check::Http {
                port: container_port(&http.port, container)?,
                path: http.path.clone().unwrap_or_else(|| "/".to_owned()),
            }
        } else if let Some(exec) = &probe.exec {
            Check::Exec(exec.command.clone().unwrap_or_default())
        } else {
            return Err("readinessProbe: only tcpSocket, httpGet and exec are known".to_owned());
        };
        let positive =
            |value: Option<i32>, default| value.and_then(|n| u32::try_from(n).ok()).unwrap_or(default);
        Ok(Self {
            check,
            initial_delay: seconds(probe.initial_delay_seconds.map(i64::from), Duration::ZERO),
            // One second. Kubernetes' default of ten seconds would slow every test.
            period: seconds(probe.period_seconds.map(i64::from), Duration::from_secs(1))
                .max(Duration::from_millis(200)),
            timeout: seconds(probe.timeout_seconds.map(i64::from), Duration::from_secs(1))
                .max(Duration::from_millis(100)),
            failure_threshold: positive(probe.failure_threshold, 3).max(1),
        })
    }
}

/// Resolves a port that may be given by its name in the container.
pub(super) fn container_port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_deref() == Some(name))
            .map(|port| port.container_port),
    };
    number
        .and_then(|number| u16::try_from(number).ok())
        .filter(|&number| number != 0)
        .ok_or_else(|| format!("port {port:?} is not one of the container's"))
}

/// The longest `lifecycle.preStop.sleep` of the containers.
fn drain(containers: &[Container], in_mesh: bool) -> Duration {
    let stop = |container: &Container| container.lifecycle.as_ref()?.pre_stop.as_ref()?.sleep.clone();
    let sleeps = containers.iter().filter_map(stop).map(|sleep| seconds(Some(sleep.seconds), Duration::ZERO));
    let default = if in_mesh { DRAIN } else { Duration::ZERO };
    sleeps.max().unwrap_or(default).min(MAX_GRACE)
}

fn seconds(value: Option<i64>, default: Duration) -> Duration {
    value.and_then(|value| u64::try_from(value).ok()).map_or(default, Duration::from_secs)
}

/// Returns the proxy's UUID: the Pod's own label, or one derived from the Pod's name and its
/// incarnation. Of a machine it is what the controller derives: a MeshWorkload is published without a label.
pub(super) fn proxy_uuid(workload: &WorkloadId, pod: &Pod, incarnation: u64) -> String {
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(PROXY_UUID_LABEL));
    label.cloned().unwrap_or_else(|| {
        if workload.is_machine() {
            return ProxyUuid::derived(workload).to_string();
        }
        let text = format!("{workload}#{incarnation}");
        uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, text.as_bytes()).to_string()
    })
}

/// The exclusions of the Pod's annotations and of the MeshConfig, as flags of `smc init`.
fn init_flags(annotations: &BTreeMap<String, String>, traffic: &Value) -> Result<Vec<String>, String> {
    let lists = [
        ("outbound-port-exclusion-list", "outboundPortExclusionList", "--exclude-outbound-port"),
        ("inbound-port-exclusion-list", "inboundPortExclusionList", "--exclude-inbound-port"),
        ("outbound-ip-range-exclusion-list", "outboundIPRangeExclusionList", "--exclude-outbound-cidr"),
        ("outbound-ip-range-inclusion-list", "outboundIPRangeInclusionList", "--include-outbound-cidr"),
    ];
    let mut flags = Vec::new();
    for (annotation, field, flag) in lists {
        let own = annotations.get(&format!("openservicemesh.io/{annotation}"));
        let mut values: Vec<String> = own
            .iter()
            .flat_map(|list| list.split(','))
            .map(|value| value.trim().to_owned())
            .filter(|value| !value.is_empty())
            .collect();
        for value in traffic.get(field).and_then(Value::as_array).into_iter().flatten() {
            values.push(match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                other => return Err(format!("MeshConfig {field}: `{other}` is neither text nor number")),
            });
        }
        values.sort();
        values.dedup();
        // Joined by `=`, so that a value that starts with a dash is not taken for a flag.
        flags.extend(values.into_iter().map(|value| format!("{flag}={value}")));
    }
    Ok(flags)
}

/// The Pod's fields that an environment variable may refer to.
fn fields(
    name: &NamespacedName,
    pod: &Pod,
    service_account: &str,
    addresses: &[IpAddr],
) -> BTreeMap<&'static str, String> {
    let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    BTreeMap::from([
        ("metadata.name", name.name().to_owned()),
        ("metadata.namespace", name.namespace().to_owned()),
        ("metadata.uid", pod.metadata.uid.clone().unwrap_or_default()),
        ("spec.serviceAccountName", service_account.to_owned()),
        ("spec.nodeName", super::network::NODE_NAME.to_owned()),
        ("status.podIP", all.first().cloned().unwrap_or_default()),
        ("status.podIPs", all.join(",")),
        ("status.hostIP", super::addresses::NODE_V4.to_string()),
    ])
}

fn environment(
    variables: &[EnvVar],
    fields: &BTreeMap<&'static str, String>,
) -> Result<BTreeMap<String, String>, String> {
    let mut env = BTreeMap::from([
        ("PATH".to_owned(), config::PATH.to_owned()),
        ("HOME".to_owned(), "/".to_owned()),
        ("HOSTNAME".to_owned(), fields.get("metadata.name").cloned().unwrap_or_default()),
    ]);
    for variable in variables {
        let name = &variable.name;
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(format!("`{name}` can't be the name of an environment variable"));
        }
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) => expand(value, &env),
            (None, None) => String::new(),
            (None, Some(source)) => {
                let path = source.field_ref.as_ref().map(|field| field.field_path.as_str());
                let value = path.and_then(|path| fields.get(path));
                value
                    .cloned()
                    .ok_or_else(|| format!("env {name}: only some fieldRefs are known to the lab"))?
            }
        };
        env.insert(name.clone(), value);
    }
    Ok(env)
}

/// Expands Kubernetes' `$(NAME)`: unknown names stay as they are, `$$` is a dollar sign.
fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(position) = rest.find('$') {
        expanded.push_str(&rest[..position]);
        rest = &rest[position + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')'))
            && let Some(value) = env.get(name)
        {
            expanded.push_str(value);
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded + rest
}

#[cfg(test)]
mod tests;
