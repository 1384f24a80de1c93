//! What injection makes of a Pod.
//!
//! Owns the whole change. It is idempotent: the result, injected again for the same site, stays as it is,
//! also after the API server has filled in its defaults. Of the author's containers it changes probes and
//! hooks alone.

use serde_json::{Map, Value, json};
use smc_types::ids::ProxyUuid;
use smc_types::ports::METRICS_PORT;

use super::decision::switch;
use super::drawn::{Drawn, ProbeToken};
use super::error::InjectionError;
use super::names::{ENVOY, INIT, METRICS_ANNOTATION, PROXY_UUID_LABEL, SECRET_PREFIX, VOLUME, secret_name};
use super::probe_config::{self, MAX_ARGUMENT, READY_PATH};
use super::probes::{self, Targets};
use super::settings::Settings;
use super::statistics::Statistics;
use super::{containers, exclusions, resources};
use crate::interception::PROXY_UID;

/// Where Kubernetes mounts the token of the pod's service account.
const TOKEN_MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What is known about a Pod besides its own content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// The UUID of its proxy, and the token of its probes. The pod may have no name yet (`generateName`),
    /// so the former cannot be derived.
    pub drawn: Drawn,
    /// Whether the namespace asks for scraped sidecars.
    pub metrics: bool,
    /// Whether the API server asks once more, after other webhooks. What they changed of the sidecar stays.
    pub reinvoked: bool,
}

/// The proxy of a Pod that has been injected before. A Pod with such a proxy may be a copy of another one, so
/// the caller decides whether the UUID is its own.
pub fn proxy_of(pod: &Value) -> Option<ProxyUuid> {
    let label: ProxyUuid = pod["metadata"]["labels"][PROXY_UUID_LABEL].as_str()?.parse().ok()?;
    (is_injected(pod) && !label.0.is_nil()).then_some(label)
}

/// The token in the probes of a Pod that has been injected before. Former versions gave none.
pub(super) fn token_of(pod: &Value) -> Option<ProbeToken> {
    let mut containers = pod["spec"]["initContainers"].as_array()?.iter();
    let envoy = containers.find(|container| container["name"] == ENVOY)?;
    let path = envoy["startupProbe"]["httpGet"]["path"].as_str()?;
    ProbeToken::parse(path.strip_prefix('/')?.strip_suffix(READY_PATH)?)
}

/// What was drawn for the sidecar that a Pod carries, with the token of `fresh` if it has none yet.
pub fn drawn_for(pod: &Value, fresh: Drawn) -> Option<Drawn> {
    Some(Drawn { uuid: proxy_of(pod)?, token: token_of(pod).unwrap_or(fresh.token) })
}

/// The Pod with the sidecar of `site.drawn`. A sidecar that is there already is brought up to date.
pub fn inject(pod: &Value, site: Site, settings: &Settings) -> Result<Value, InjectionError> {
    check_names(pod)?;
    check_users(pod)?;
    let exclusions = exclusions::read(pod, &settings.sidecar)?;
    let statistics = Statistics::read(pod)?;
    let resources = resources::read(pod, settings.sidecar.resources.as_ref())?;
    let mut pod = pod.clone();
    let metrics = wants_metrics(&pod, site) && !is_scraped(&pod);
    let root = pod.as_object_mut().ok_or(InjectionError::NotAPod)?;
    let meta = object(root, "metadata")?;
    object(meta, "labels")?.insert(PROXY_UUID_LABEL.to_owned(), json!(site.drawn.uuid.to_string()));
    if metrics {
        let annotations = object(meta, "annotations")?;
        for (name, value) in [
            ("scrape", "true".to_owned()),
            ("port", METRICS_PORT.to_string()),
            ("path", "/stats/prometheus".to_owned()),
        ] {
            annotations.insert(format!("prometheus.io/{name}"), json!(value));
        }
    }
    let spec = object(root, "spec")?;
    let mut targets = Targets::new(site.drawn.token);
    let intercepted = |port| !exclusions.inbound_ports.contains(&port);
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if ![Some(ENVOY), Some(INIT)].contains(&container["name"].as_str()) {
                probes::rewrite(container, intercepted, &mut targets);
            }
            if targets.count() > probes::MAX_TARGETS {
                return Err(too_many(&targets));
            }
        }
    }
    let argument = probe_config::argument(&targets, settings.local_proxy_mode, statistics);
    let argument = argument.ok_or_else(|| too_many(&targets))?;
    for secret in &settings.pull_secrets {
        let listed = array(spec, "imagePullSecrets")?;
        if !listed.iter().any(|known| known["name"] == secret.as_str()) {
            listed.push(json!({"name": secret}));
        }
    }
    put(array(spec, "volumes")?, usize::MAX, volume(site.drawn.uuid), false);
    let first = array(spec, "initContainers")?;
    put(first, 0, containers::init(&exclusions, &resources, settings), site.reinvoked);
    put(first, 1, containers::envoy(&targets, &argument, &resources, settings), site.reinvoked);
    Ok(pod)
}

fn too_many(targets: &Targets) -> InjectionError {
    InjectionError::Probes {
        targets: targets.count(),
        bytes: MAX_ARGUMENT,
        annotation: exclusions::INBOUND_PORTS,
    }
}

fn volume(uuid: ProxyUuid) -> Value {
    // Readable for all users, since the sidecar's user is not root. Only the sidecar mounts the volume.
    json!({ "name": VOLUME, "secret": { "secretName": secret_name(uuid), "defaultMode": 0o444 } })
}

/// The sidecar's volume is the mark of a Pod that has been injected.
fn is_injected(pod: &Value) -> bool {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter(|volume| volume["name"] == VOLUME).any(|volume| {
        volume["secret"]["secretName"].as_str().is_some_and(|name| name.starts_with(SECRET_PREFIX))
    })
}

fn check_names(pod: &Value) -> Result<(), InjectionError> {
    let spec = pod["spec"].as_object().ok_or(InjectionError::NotAPod)?;
    let listed = |list: &str| spec.get(list).and_then(Value::as_array).into_iter().flatten();
    if listed("containers").next().is_none() {
        return Err(InjectionError::NotAPod);
    }
    let injected = is_injected(pod);
    // Those of the sidecar itself are init containers.
    let containers = || listed("containers").chain(listed("initContainers").filter(|_| !injected));
    for name in [ENVOY, INIT] {
        if containers().any(|container| container["name"] == name) {
            return Err(InjectionError::NameTaken { what: "container", name });
        }
    }
    if !injected && listed("volumes").any(|volume| volume["name"] == VOLUME) {
        return Err(InjectionError::NameTaken { what: "volume", name: VOLUME });
    }
    Ok(())
}

fn check_users(pod: &Value) -> Result<(), InjectionError> {
    let spec = &pod["spec"];
    let refuse = |context: &Value, path: &dyn Fn() -> String| {
        if context["runAsUser"].as_u64() == Some(u64::from(PROXY_UID)) {
            return Err(InjectionError::ProxyUser { field: format!("{}securityContext.runAsUser", path()) });
        }
        Ok(())
    };
    refuse(&spec["securityContext"], &|| "spec.".to_owned())?;
    for list in ["initContainers", "containers"] {
        for (number, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            if container["name"] != ENVOY {
                refuse(&container["securityContext"], &|| format!("spec.{list}[{number}]."))?;
            }
        }
    }
    Ok(())
}

/// The pod's annotation decides, then the namespace's.
fn wants_metrics(pod: &Value, site: Site) -> bool {
    let own = pod["metadata"]["annotations"][METRICS_ANNOTATION].as_str().and_then(switch);
    own.unwrap_or(site.metrics)
}

/// Whether its author has it scraped at a port of its own. Prometheus reads one port of a pod, by convention.
fn is_scraped(pod: &Value) -> bool {
    let annotation = |name: &str| pod["metadata"]["annotations"][format!("prometheus.io/{name}")].as_str();
    annotation("scrape") == Some("true") && annotation("port") != Some(&METRICS_PORT.to_string())
}

fn object<'a>(
    parent: &'a mut Map<String, Value>,
    key: &str,
) -> Result<&'a mut Map<String, Value>, InjectionError> {
    let value = parent.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().ok_or(InjectionError::NotAPod)
}

fn array<'a>(parent: &'a mut Map<String, Value>, key: &str) -> Result<&'a mut Vec<Value>, InjectionError> {
    let value = parent.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut().ok_or(InjectionError::NotAPod)
}

/// Puts a named entry into a list: in the place of the one of that name, or at `place`. An entry that says
/// the same and more stays, since the API server fills in defaults, and other webhooks add to ours.
fn put(list: &mut Vec<Value>, place: usize, mut wanted: Value, reinvoked: bool) {
    match list.iter_mut().find(|entry| entry["name"] == wanted["name"]) {
        Some(existing) => {
            if reinvoked {
                keep_of_others(existing, &mut wanted);
            }
            if !covers(existing, &wanted) {
                *existing = wanted;
            }
            drop_token(existing);
        }
        None => list.insert(place.min(list.len()), wanted),
    }
}

/// Keeps what other webhooks change of a container of the sidecar between two questions about one Pod, and
/// what they add: a mirror the image, an autoscaler the resources, some the arguments. Its probes follow from
/// the containers that are there now, and its rights are ours.
fn keep_of_others(existing: &Value, wanted: &mut Value) {
    let probes = probes_at(&wanted["args"]).map(|at| wanted["args"][at].clone());
    let (Some(existing), Some(wanted)) = (existing.as_object(), wanted.as_object_mut()) else { return };
    for (key, value) in existing {
        let is_theirs = ["image", "resources"].contains(&key.as_str());
        if is_theirs || wanted.get(key).is_none_or(|ours| covers(value, ours)) {
            wanted.insert(key.clone(), value.clone());
        }
    }
    if let (Some(probes), Some(at)) = (probes, existing.get("args").and_then(probes_at)) {
        let mut arguments = existing["args"].clone();
        arguments[at] = probes;
        wanted.insert("args".to_owned(), arguments);
    }
}

/// Where in Envoy's arguments the probes stand.
fn probes_at(arguments: &Value) -> Option<usize> {
    let arguments = arguments.as_array()?;
    let at = arguments.iter().position(|argument| argument == containers::PROBES)? + 1;
    (at < arguments.len()).then_some(at)
}

/// Takes the token of the pod's service account from a container of the sidecar, which needs none.
/// Kubernetes' own admission mounts it into every container that it sees, and then webhooks are asked once
/// more.
fn drop_token(container: &mut Value) {
    if let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) {
        mounts.retain(|mount| mount["mountPath"] != TOKEN_MOUNT);
    }
}

/// Whether `existing` says everything that `wanted` says. Lists of objects may have more entries; lists of
/// texts, such as arguments, must be the same.
fn covers(existing: &Value, wanted: &Value) -> bool {
    match (existing, wanted) {
        (Value::Object(existing), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| existing.get(key).is_some_and(|existing| covers(existing, wanted))),
        (Value::Array(existing), Value::Array(wanted)) if wanted.iter().all(Value::is_object) => {
            wanted.iter().all(|wanted| existing.iter().any(|existing| covers(existing, wanted)))
        }
        _ => existing == wanted,
    }
}
