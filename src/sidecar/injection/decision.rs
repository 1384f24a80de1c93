//! Whether one Pod, as it is submitted, gets a sidecar.

use std::fmt;

use serde_json::Value;
use smc_model::topology::Namespace;

use super::names::INJECTION_ANNOTATION;

/// The annotation of a mirror pod: the API server's copy of a static pod, which the kubelet owns.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// What becomes of a submitted Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It gets a sidecar.
    Inject,
    /// It is admitted as it is.
    Leave(NotInjected),
}

/// Why a Pod gets no sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotInjected {
    /// Its namespace is not in the mesh.
    NotMonitored,
    /// Its annotation, or its namespace's, refuses one.
    Disabled,
    /// It shares the network of its machine, where interception would take everything's traffic.
    HostNetwork,
    /// It is a copy of a static pod, which admission cannot change.
    Mirror,
    /// It does not run on Linux.
    Windows,
}

impl NotInjected {
    /// Why no pod like this ever gets a sidecar, whatever annotations say: with the network of its machine,
    /// as the mirror of a static pod, or for an operating system by this name.
    pub fn ever(host_network: bool, mirror: bool, os: Option<&str>) -> Option<Self> {
        if host_network {
            Some(Self::HostNetwork)
        } else if mirror {
            Some(Self::Mirror)
        } else {
            os.filter(|name| *name != "linux").map(|_| Self::Windows)
        }
    }

    /// A short name, for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotMonitored => "not_monitored",
            Self::Disabled => "disabled",
            Self::HostNetwork => "host_network",
            Self::Mirror => "mirror",
            Self::Windows => "windows",
        }
    }
}

impl fmt::Display for NotInjected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotMonitored => "its namespace is not in the mesh",
            Self::Disabled => "its annotation, or that of its namespace, refuses a sidecar",
            Self::HostNetwork => "it has spec.hostNetwork",
            Self::Mirror => "it is the mirror of a static pod",
            Self::Windows => "it does not run on Linux",
        })
    }
}

/// Reads a switch of an annotation: `enabled`, `yes`, `true`, `disabled`, `no` or `false`, in any case.
/// `None` for any other text.
pub fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "enabled" | "yes" | "true" => Some(true),
        "disabled" | "no" | "false" => Some(false),
        _ => None,
    }
}

/// Whether `pod` gets a sidecar in `namespace`. An annotation that cannot be read refuses, as it does for the
/// catalog: the two must agree.
pub fn decide(namespace: &Namespace, pod: &Value) -> Decision {
    let annotation = |name: &str| pod["metadata"]["annotations"][name].as_str();
    let spec = &pod["spec"];
    let own = annotation(INJECTION_ANNOTATION).map(|text| switch(text).unwrap_or(false));
    let host_network = spec["hostNetwork"].as_bool() == Some(true);
    let mirror = annotation(MIRROR_ANNOTATION).is_some();
    let reason = if !namespace.monitored {
        NotInjected::NotMonitored
    } else if let Some(ever) = NotInjected::ever(host_network, mirror, spec["os"]["name"].as_str()) {
        ever
    } else if !namespace.injects(own) {
        NotInjected::Disabled
    } else {
        return Decision::Inject;
    };
    Decision::Leave(reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_gets_a_sidecar_unless_there_is_a_reason_against_it() {
        let (inject, leave) = (Decision::Inject, Decision::Leave);
        let annotated = |text: &str| json!({"metadata": {"annotations": {INJECTION_ANNOTATION: text}}});
        let host = json!({"spec": {"hostNetwork": true}, "metadata": annotated("enabled")["metadata"]});
        let mirror = json!({"metadata": {"annotations": {MIRROR_ANNOTATION: "0"}}});
        for (sentence, monitored, injection, pod, expected) in [
            ("a plain pod of the mesh", true, None, json!({}), inject),
            ("outside the mesh", false, None, json!({}), leave(NotInjected::NotMonitored)),
            ("outside the mesh, and asks", false, None, annotated("yes"), leave(NotInjected::NotMonitored)),
            ("the namespace refuses", true, Some(false), json!({}), leave(NotInjected::Disabled)),
            ("the pod asks all the same", true, Some(false), annotated("Enabled"), inject),
            ("the pod refuses", true, Some(true), annotated("no"), leave(NotInjected::Disabled)),
            ("a typing error refuses", true, None, annotated("enable"), leave(NotInjected::Disabled)),
            ("the machine's network", true, None, host, leave(NotInjected::HostNetwork)),
            ("a mirror", true, None, mirror, leave(NotInjected::Mirror)),
            (
                "Windows",
                true,
                None,
                json!({"spec": {"os": {"name": "windows"}}}),
                leave(NotInjected::Windows),
            ),
            ("Linux by name", true, None, json!({"spec": {"os": {"name": "linux"}}}), inject),
            ("no pod at all", true, None, json!(7), inject),
        ] {
            let namespace = Namespace {
                name: "shop".to_owned(),
                monitored,
                injection,
                metrics: false,
                permissive: false,
                access_log: None,
            };
            assert_eq!(decide(&namespace, &pod), expected, "{sentence}");
        }
    }
}
