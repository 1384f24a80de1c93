//! `smc inject`: adds sidecars to Pods in YAML, for clusters without the webhook.
//!
//! Owns the reading and writing; [`smc_sidecar::injection`] makes the change. Only Pods are injected: the
//! pods of a template would share one proxy, and a proxy is known by its UUID.

use std::fmt::Write as _;
use std::io::Read;

use clap::Args;
use serde_json::Value;
use smc_decode::manifest::documents::split;
use smc_host::env::{Env, NoEntropy};
use smc_kubernetes::install::settings::{ENVOY_IMAGE, default_image};
use smc_model::sidecar_settings::LocalProxyMode;
use smc_sidecar::injection::{Drawn, InjectionError, Settings, Site, drawn_for, inject, secret_name};
use thiserror::Error;

use super::outcome::{Outcome, Verdict};
use super::output;

/// The most bytes of input: what the API server takes of one object, many times.
const MAX_INPUT: u64 = 64 << 20;

/// Kinds whose pods come from a template.
const TEMPLATES: [&str; 8] = [
    "CronJob",
    "DaemonSet",
    "Deployment",
    "Job",
    "PodTemplate",
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
];

/// Flags of `smc inject`.
#[derive(Debug, Args)]
pub(super) struct InjectArgs {
    /// The image of Envoy
    #[arg(long, value_name = "IMAGE", default_value = ENVOY_IMAGE)]
    envoy_image: String,
    /// The image with smc, for the init container
    #[arg(long, value_name = "IMAGE", default_value_t = default_image())]
    init_image: String,
    /// A Secret with which both are pulled (repeatable)
    #[arg(long = "image-pull-secret", value_name = "NAME")]
    image_pull_secrets: Vec<String>,
}

/// The input cannot be injected.
#[derive(Debug, Error)]
enum InjectError {
    #[error("cannot read standard input")]
    Read(#[source] std::io::Error),
    #[error("the document on line {line} is no YAML")]
    Yaml {
        line: usize,
        #[source]
        source: serde_saphyr::Error,
    },
    #[error(
        "line {line}: the pods of a {kind} would share one proxy; inject Pods, or let the webhook inject: smc namespace add"
    )]
    Template { line: usize, kind: String },
    #[error("line {line}: the Pod cannot be injected")]
    Injection {
        line: usize,
        #[source]
        source: InjectionError,
    },
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
    #[error("cannot write an injected Pod as YAML")]
    Write(#[from] serde_saphyr::ser::Error),
}

/// What injection makes of a stream of documents.
struct Injected {
    yaml: String,
    /// The Pods that got a sidecar, and the Secrets that they need.
    pods: Vec<(String, String)>,
}

pub(super) fn run(args: InjectArgs) -> Outcome {
    let mut input = String::new();
    std::io::stdin().take(MAX_INPUT).read_to_string(&mut input).map_err(InjectError::Read)?;
    let settings = Settings {
        envoy_image: args.envoy_image,
        init_image: args.init_image,
        pull_secrets: args.image_pull_secrets,
        local_proxy_mode: LocalProxyMode::default(),
        sidecar: std::sync::Arc::default(),
    };
    let env = Env::system();
    let injected = injected(&input, &settings, || env.random())?;
    output::write(&injected.yaml)?;
    for (pod, secret) in injected.pods {
        output::print_progress(&format!(
            "{pod} waits for its certificate once it is created: smc proxy bootstrap {pod} | kubectl create secret \
             generic {secret} -n {} --from-file=bootstrap.json=/dev/stdin",
            pod.split('/').next().unwrap_or_default(),
        ));
    }
    Ok(Verdict::Ok)
}

/// Injects the Pods in `text`. Other objects stay as they are, to the byte.
fn injected(
    text: &str,
    settings: &Settings,
    mut random: impl FnMut() -> Result<[u8; 16], NoEntropy>,
) -> Result<Injected, InjectError> {
    let mut result = Injected { yaml: String::new(), pods: Vec::new() };
    for document in split(text) {
        let line = document.line;
        let value: Value =
            serde_saphyr::from_str(document.text).map_err(|source| InjectError::Yaml { line, source })?;
        let kind = value["kind"].as_str().unwrap_or_default();
        if TEMPLATES.contains(&kind) {
            return Err(InjectError::Template { line, kind: kind.to_owned() });
        }
        if kind != "Pod" {
            result.yaml.push_str("---\n");
            result.yaml.push_str(document.text.trim_start_matches("---").trim_start_matches('\n'));
            if !result.yaml.ends_with('\n') {
                result.yaml.push('\n');
            }
            continue;
        }
        let fresh = Drawn::from_random(random()?, random()?);
        let drawn = drawn_for(&value, fresh).unwrap_or(fresh);
        let pod = inject(&value, Site { drawn, metrics: false, reinvoked: false }, settings);
        let pod = pod.map_err(|source| InjectError::Injection { line, source })?;
        // Writing to a string cannot fail.
        let _ = write!(result.yaml, "---\n{}", serde_saphyr::to_string(&pod)?);
        let name = |pointer| value.pointer(pointer).and_then(Value::as_str);
        let namespace = name("/metadata/namespace").unwrap_or("default");
        let pod = format!("{namespace}/{}", name("/metadata/name").unwrap_or("POD"));
        result.pods.push((pod, secret_name(drawn.uuid)));
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n  \
                       containers: [{name: app, image: app:1}]\n";

    fn of(text: &str) -> Result<Injected, InjectError> {
        let settings = Settings {
            envoy_image: "envoy:x".to_owned(),
            init_image: "smc:x".to_owned(),
            pull_secrets: Vec::new(),
            local_proxy_mode: LocalProxyMode::default(),
            sidecar: std::sync::Arc::default(),
        };
        let mut next = 0;
        injected(text, &settings, || {
            next += 1;
            Ok([next; 16])
        })
    }

    #[test]
    fn a_pod_gets_its_sidecar_once_and_other_objects_stay() {
        let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: web} # kept\n";
        let first = of(&format!("{service}---\n{POD}")).unwrap();
        assert!(first.yaml.starts_with(service), "{}", first.yaml);
        assert!(
            first.yaml.contains("image: envoy:x") && first.yaml.contains("image: smc:x"),
            "{}",
            first.yaml
        );
        let [(pod, secret)] = &first.pods[..] else { panic!("{:?}", first.pods) };
        assert_eq!(pod, "shop/web");
        assert!(secret.starts_with("smc-bootstrap-"), "{secret}");
        let again = of(&first.yaml).unwrap();
        assert_eq!(again.pods, first.pods, "the same proxy");
        assert_eq!(again.yaml, first.yaml);
    }

    #[test]
    fn a_template_is_refused_with_the_way_out() {
        let error = of("kind: Deployment\n").err().unwrap().to_string();
        assert!(error.contains("Deployment") && error.contains("namespace add"), "{error}");
        assert!(of("kind: Pod\n").is_err());
        assert!(of("a: [").is_err());
        assert_eq!(of("").unwrap().yaml, "");
    }
}
