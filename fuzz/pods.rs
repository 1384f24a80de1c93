//! A Pod as its author submits it: decided on, and given a sidecar.
//!
//! The first byte chooses the settings, the rest is the Pod as JSON.

use std::sync::Arc;

use serde_json::Value;
use smc_model::sidecar_settings::{LocalProxyMode, SidecarSettings};
use smc_model::topology::Namespace;
use smc_sidecar::injection::{self, Drawn, Settings, Site};

/// Injects one Pod.
pub(crate) fn run(input: &[u8]) {
    let Some((choice, json)) = input.split_first() else { return };
    let Ok(pod) = serde_json::from_slice::<Value>(json) else { return };
    let namespace = Namespace {
        name: "shop".to_owned(),
        monitored: true,
        injection: None,
        metrics: false,
        permissive: false,
        access_log: None,
    };
    let _ = (injection::decide(&namespace, &pod), injection::proxy_of(&pod));
    let settings = Settings {
        envoy_image: "envoy:1".to_owned(),
        init_image: "smc:1".to_owned(),
        pull_secrets: Vec::new(),
        local_proxy_mode: if choice & 2 == 0 { LocalProxyMode::Localhost } else { LocalProxyMode::PodIp },
        sidecar: Arc::new(SidecarSettings::default()),
    };
    let site = Site {
        drawn: Drawn::from_random([1; 16], [2; 16]),
        metrics: choice & 4 != 0,
        reinvoked: choice & 8 != 0,
    };
    let injected = match injection::inject(&pod, site, &settings) {
        Ok(injected) => injected,
        Err(refused) => {
            assert!(!refused.to_string().is_empty());
            return;
        }
    };
    // Kubernetes refuses a Pod that names two containers alike, after the webhooks.
    let before = [names(&pod, "containers"), names(&pod, "initContainers")].concat();
    if (1..before.len()).any(|at| before[..at].contains(&before[at])) {
        return;
    }
    assert_eq!(injection::proxy_of(&injected), Some(site.drawn.uuid), "the proxy of the Pod is another one");
    let again = injection::inject(&injected, site, &settings);
    assert_eq!(again.as_ref(), Ok(&injected), "a second injection changes the Pod");
    // What the API server makes of the patch.
    let patch = json_patch::diff(&pod, &injected);
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &patch).expect("the patch fits the Pod");
    assert_eq!(patched, injected);
    let sidecars = ["containers", "initContainers"].map(|list| named(&injected, list, "envoy"));
    assert_eq!(sidecars, [0, 1], "one Envoy, in its place");
    assert_eq!(named(&injected, "initContainers", "smc-init"), 1, "traffic is intercepted once");
    let marked = injection::proxy_of(&pod).is_some();
    for list in ["containers", "initContainers"] {
        assert!(marked || own(&injected, list) == own(&pod, list), "a container of the author is gone");
    }
}

fn names<'a>(pod: &'a Value, list: &str) -> Vec<&'a Value> {
    let containers = pod["spec"][list].as_array().into_iter().flatten();
    containers.map(|container| &container["name"]).collect()
}

/// How many containers have this name.
fn named(pod: &Value, list: &str, name: &str) -> usize {
    names(pod, list).into_iter().filter(|named| **named == name).count()
}

/// The names of the containers that are not the sidecar's.
fn own<'a>(pod: &'a Value, list: &str) -> Vec<&'a Value> {
    names(pod, list).into_iter().filter(|name| **name != "envoy" && **name != "smc-init").collect()
}
