//! Rewriting probes, so that the kubelet, which is outside the mesh, asks the sidecar.
//!
//! Owns what is rewritten: every probe, and every lifecycle hook over HTTP, that goes to the pod's own
//! address. Each becomes a GET at one port of the sidecar, below the pod's token, which strangers do not
//! know. The sidecar asks the application ([`super::probe_config`]). What a probe says about time and
//! thresholds stays.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use smc_types::ports::PROBE_PORTS;

use super::drawn::ProbeToken;
use super::probe_headers::Headers;
use super::probe_target::{Target, encoded};

/// The port of rewritten probes: the first of those that interception leaves out.
pub(super) const PROBE_PORT: u16 = *PROBE_PORTS.start();

/// The most targets of a pod. Each takes more than 256 bytes of the argument that the sidecar is started with
/// ([`super::probe_config::MAX_ARGUMENT`]), so that more never fit. It bounds what a Pod of megabytes, which
/// has tens of thousands of probes, costs before that is known.
pub(super) const MAX_TARGETS: usize = 512;

/// Kubernetes' default of `periodSeconds`.
const PERIOD: u64 = 10;

/// How the sidecar checks what has no request that it could pass on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timing {
    /// Seconds between two checks: half the period of the probe, so that an answer is no older than that.
    pub(super) interval: u64,
    /// Seconds that a check may take.
    pub(super) timeout: u64,
}

/// The targets of the probes of a pod.
#[derive(Debug)]
pub(super) struct Targets {
    /// The pod's token.
    pub(super) token: ProbeToken,
    /// When each is checked. Two probes of one target share the more frequent timing.
    pub(super) timings: BTreeMap<Target, Timing>,
    /// The requests that are passed on: a target, and the number of the headers that go with it. So two
    /// probes of one target that declare other headers have each their own path.
    requests: BTreeSet<(Target, usize)>,
    /// The headers, by their number.
    headers: Vec<Headers>,
}

impl Targets {
    /// None yet. The number 0 is that of no declared headers.
    pub(super) fn new(token: ProbeToken) -> Self {
        Self { token, timings: BTreeMap::new(), requests: BTreeSet::new(), headers: vec![Headers::default()] }
    }

    /// How many there are: requests that are passed on, and what Envoy checks by itself.
    pub(super) fn count(&self) -> usize {
        self.requests.len() + self.timings.keys().filter(|target| target.is_checked()).count()
    }

    /// The requests that are passed on.
    pub(super) fn requests(&self) -> impl Iterator<Item = (&Target, usize, &Headers)> {
        self.requests
            .iter()
            .filter_map(|(target, number)| Some((target, *number, self.headers.get(*number)?)))
    }

    /// The path at the probes' port before that of a target ([`Target::path`]).
    pub(super) fn prefix(&self, number: usize) -> String {
        self.token.path(&if number == 0 { String::new() } else { format!("/{number}") })
    }

    /// Adds the target of a probe, and returns the path at which the kubelet asks for it.
    fn add(&mut self, target: Target, headers: Headers, timing: Timing) -> String {
        let known = self.timings.entry(target.clone()).or_insert(timing);
        known.interval = known.interval.min(timing.interval);
        known.timeout = known.timeout.max(timing.timeout);
        if target.is_checked() {
            return self.prefix(0) + &target.path();
        }
        let number = self.headers.iter().position(|known| *known == headers).unwrap_or_else(|| {
            self.headers.push(headers);
            self.headers.len() - 1
        });
        let path = self.prefix(number) + &target.path();
        self.requests.insert((target, number));
        path
    }
}

/// Rewrites the probes and hooks of a container that go to ports for which `intercepted` holds, and adds
/// their targets. Of rewritten ones, only the token changes.
pub(super) fn rewrite(container: &mut Value, intercepted: impl Fn(u16) -> bool, targets: &mut Targets) {
    let ports = named_ports(container);
    let Some(container) = container.as_object_mut() else { return };
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).and_then(Value::as_object_mut) {
            rewrite_one(probe, &ports, &intercepted, targets);
        }
    }
    let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) else { return };
    for hook in ["postStart", "preStop"] {
        if let Some(hook) = lifecycle.get_mut(hook).and_then(Value::as_object_mut)
            && hook.contains_key("httpGet")
        {
            rewrite_one(hook, &ports, &intercepted, targets);
        }
    }
}

fn rewrite_one(
    probe: &mut Map<String, Value>,
    ports: &BTreeMap<String, u16>,
    intercepted: impl Fn(u16) -> bool,
    targets: &mut Targets,
) {
    let Some(target) = target(probe, ports) else { return };
    if !intercepted(target.port()) {
        return;
    }
    let seconds = |name: &str| probe.get(name).and_then(Value::as_u64).filter(|seconds| *seconds > 0);
    let interval = (seconds("periodSeconds").unwrap_or(PERIOD) / 2).clamp(1, PERIOD);
    // Kubernetes sets no upper bound; an hour is longer than any probe waits.
    let timeout = seconds("timeoutSeconds").unwrap_or(1).min(3600);
    let headers = probe.get("httpGet").map(Headers::read).unwrap_or_default();
    let declared = probe.get_mut("httpGet").and_then(|get| get.get_mut("httpHeaders")).map(Value::take);
    probe.retain(|key, _| !["httpGet", "tcpSocket", "grpc"].contains(&key.as_str()));
    let path = targets.add(target, headers, Timing { interval, timeout });
    let mut get = json!({ "path": path, "port": PROBE_PORT, "scheme": "HTTP" });
    if let (Some(declared), Some(get)) = (declared, get.as_object_mut()) {
        get.insert("httpHeaders".to_owned(), declared);
    }
    probe.insert("httpGet".to_owned(), get);
}

/// The target of a probe, rewritten or not. `None` for a probe that does not go to the pod's own address,
/// such as a command, and for one that means no port.
fn target(probe: &Map<String, Value>, ports: &BTreeMap<String, u16>) -> Option<Target> {
    let of = |handler: &Value| {
        let elsewhere = handler["host"].as_str().is_some_and(|host| !host.is_empty());
        let port = &handler["port"];
        let number = port.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        let port = number.or_else(|| ports.get(port.as_str()?).copied());
        port.filter(|_| !elsewhere)
    };
    if let Some(get) = probe.get("httpGet") {
        let port = of(get)?;
        let path = get["path"].as_str().unwrap_or("/");
        if port == PROBE_PORT
            && let Some(target) = Target::from_path(path)
        {
            return Some(target);
        }
        let path = encoded(path);
        let tls = get["scheme"].as_str() == Some("HTTPS");
        return Some(if tls { Target::Https { port, path } } else { Target::Http { port, path } });
    }
    if let Some(socket) = probe.get("tcpSocket") {
        return Some(Target::Tcp { port: of(socket)? });
    }
    let grpc = probe.get("grpc")?;
    let service = encoded(grpc["service"].as_str().unwrap_or_default());
    Some(Target::Grpc { port: of(grpc)?, service: service.trim_start_matches('/').to_owned() })
}

/// The ports of a container that have a name.
fn named_ports(container: &Value) -> BTreeMap<String, u16> {
    let ports = container["ports"].as_array().into_iter().flatten();
    let named = ports.filter_map(|port| {
        let number = u16::try_from(port["containerPort"].as_u64()?).ok()?;
        Some((port["name"].as_str()?.to_owned(), number))
    });
    named.collect()
}
