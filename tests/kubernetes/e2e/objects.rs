//! Custom resources: what the API server takes, refuses and converts, and what a controller says of them.
//!
//! The controller is a process of the host, since nothing here needs pods.

mod cold_start;
mod control_plane;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use smc_test_kubernetes::{Cluster, ClusterOptions};

use crate::shared;
use control_plane::ControlPlane;

/// Objects as OSM's users write them, in the versions that OSM serves.
const FROM_OSM: &str = include_str!("objects/from_osm.yaml");

/// The chart of the definitions.
fn definitions() -> PathBuf {
    std::path::absolute("../../charts/smc-crds/templates").unwrap()
}

/// A cluster without a node that has the definitions and the namespace `shop`.
async fn cluster() -> Option<Cluster> {
    let options = ClusterOptions::api_only(shared::api_programs()?);
    // The webhooks' Service leads to an address of the host, and there is no kube-proxy.
    let flags = vec!["--enable-aggregator-routing=true".to_owned()];
    let options = ClusterOptions { api_server_flags: flags, ..options };
    let cluster = Cluster::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    let directory = definitions().display().to_string();
    let applied = cluster.kubectl(&["apply", "--server-side", "-f", &directory]).await.unwrap();
    assert!(applied.success(), "{}", applied.stderr);
    assert_eq!(applied.stderr, "", "the API server warns of nothing");
    let established = ["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"];
    assert!(cluster.kubectl(&established).await.unwrap().success());
    let namespace = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop",
        "labels": {"openservicemesh.io/monitored-by": "smc"}}}"#;
    cluster.apply(namespace).await.unwrap();
    Some(cluster)
}

/// What `kubectl apply` says on standard error, empty if all was taken.
async fn refusal(cluster: &Cluster, manifest: &str) -> String {
    let output = cluster.kubectl_with(&["apply", "--server-side", "-f", "-"], manifest).await.unwrap();
    if output.success() { String::new() } else { output.stderr }
}

/// An object of the namespace `shop`, or of the one before a slash.
async fn get(cluster: &Cluster, resource: &str, name: &str) -> Value {
    let (namespace, name) = name.split_once('/').unwrap_or(("shop", name));
    let output = cluster.kubectl(&["get", "-n", namespace, resource, name, "-o", "json"]).await.unwrap();
    assert!(output.success(), "{}", output.stderr);
    serde_json::from_str(&output.stdout).unwrap()
}

fn target(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: access.smi-spec.io/v1alpha3, kind: TrafficTarget, \
         metadata: {{name: {name}, namespace: shop}}, spec: {spec}}}"
    )
}

fn split(version: &str, name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: split.smi-spec.io/{version}, kind: TrafficSplit, \
         metadata: {{name: {name}, namespace: shop}}, spec: {spec}}}"
    )
}

#[tokio::test]
async fn schemas_refuse_what_can_mean_nothing_without_a_controller() {
    let Some(cluster) = cluster().await else { return };
    let account = "{kind: ServiceAccount, name: a}";
    let rule = "{kind: HTTPRouteGroup, name: r}";
    let spec = |sources: &str, rules: &str| {
        format!("{{destination: {account}, sources: {sources}, rules: {rules}}}")
    };
    let fine = target("fine", &spec(&format!("[{account}]"), &format!("[{rule}]")));
    assert_eq!(refusal(&cluster, &fine).await, "");
    let wrong = [
        (spec("[]", &format!("[{rule}]")), "spec.sources"),
        (spec(&format!("[{account}]"), "[]"), "spec.rules"),
        (spec("[{kind: User, name: a}]", &format!("[{rule}]")), "kind must be ServiceAccount"),
        (
            spec(&format!("[{account}]"), "[{kind: TCPRoute, name: r, matches: [m]}]"),
            "an HTTPRouteGroup only",
        ),
        (spec(&format!("[{account}]"), "[{kind: Route, name: r}]"), "spec.rules[0].kind"),
    ];
    for (spec, words) in wrong {
        let refused = refusal(&cluster, &target("wrong", &spec)).await;
        assert!(refused.contains(words), "{spec}: {refused}");
    }
    let config = "{apiVersion: config.openservicemesh.io/v1alpha2, kind: MeshConfig, \
                  metadata: {name: other, namespace: shop}, spec: {}}";
    let refused = refusal(&cluster, config).await;
    assert!(refused.contains("must be osm-mesh-config"), "{refused}");
    for (spec, words) in [
        ("{matches: [{name: m, headers: text}]}", "headers"),
        ("{matches: [{name: m, headers: [[a]]}]}", "headers"),
        ("{matches: [{name: m, headers: {a: {b: c}}}]}", "headers"),
    ] {
        let group = format!(
            "{{apiVersion: specs.smi-spec.io/v1alpha4, kind: HTTPRouteGroup, metadata: {{name: wrong, namespace: shop}}, spec: {spec}}}"
        );
        let refused = refusal(&cluster, &group).await;
        assert!(refused.contains(words), "{spec}: {refused}");
    }
    for value in ["lots", "{a: b}", "[1]", "-1Gi"] {
        let config = format!(
            "{{apiVersion: config.openservicemesh.io/v1alpha2, kind: MeshConfig, metadata: {{name: osm-mesh-config, namespace: shop}}, spec: {{sidecar: {{resources: {{limits: {{memory: {value}}}}}}}}}}}"
        );
        let refused = refusal(&cluster, &config).await;
        assert!(refused.contains("spec.sidecar.resources.limits.memory"), "{value}: {refused}");
    }
    for (weight, fits) in [("50", true), ("50.0", true), ("0.5", false), ("-1", false), ("10000001", false)] {
        let spec = format!("{{service: root, backends: [{{service: v1, weight: {weight}}}]}}");
        let refused = refusal(&cluster, &split("v1alpha4", "weights", &spec)).await;
        assert_eq!(refused.is_empty(), fits, "{weight}: {refused}");
    }
    cluster.stop().await.unwrap();
}

/// Splits need a controller, in the version that OSM has.
#[tokio::test]
async fn objects_of_osm_are_stored_as_they_were_written() {
    let Some(cluster) = cluster().await else { return };
    let client_side = ["create", "--dry-run=client", "-o", "json", "-f", "-"];
    let output = cluster.kubectl_with(&client_side, FROM_OSM).await.unwrap();
    assert!(output.success(), "{}", output.stderr);
    let objects = serde_json::Deserializer::from_str(&output.stdout).into_iter::<Value>();
    let written: Vec<_> =
        objects.map(Result::unwrap).filter(|object| object["kind"] != "TrafficSplit").collect();
    assert!(written.len() > 9);
    for object in written {
        let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        assert_eq!(refusal(&cluster, &object.to_string()).await, "", "{kind} {name}");
        assert_eq!(get(&cluster, kind, name).await["spec"], object["spec"], "{kind} {name}");
    }
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn splits_are_converted_objects_judged_and_statuses_written() {
    let Some(cluster) = cluster().await else { return };
    let declared = split(
        "v1alpha4",
        "canary",
        "{service: store, backends: [{service: store-v1, weight: 90}, {service: store-v2, weight: 10}], \
         matches: [{kind: HTTPRouteGroup, name: beta}]}",
    );
    let control_plane = ControlPlane::start(&cluster, &declared).await;
    control_plane.wait_until_trusted(&cluster).await;

    assert_eq!(refusal(&cluster, FROM_OSM).await, "", "OSM's objects are taken as they are");
    let group = get(&cluster, "httproutegroups", "books").await;
    assert_eq!(group["spec"]["matches"][0]["headers"][1]["client-app"], "bookbuyer", "{group}");
    let stored = get(&cluster, "trafficsplits.v1alpha4.split.smi-spec.io", "from-osm").await;
    assert_eq!(stored["spec"]["backends"][0]["weight"], 50);

    every_version_says_the_same(&cluster, &declared).await;
    the_webhook_names_the_field_and_the_reason(&cluster).await;
    statuses_say_what_is_in_effect(&cluster).await;
    drop(control_plane);
    cluster.stop().await.unwrap();
}

/// Replaces an object. kubectl asks for its version first, and the controller may write its status in
/// between: a person types the command again.
async fn replace(cluster: &Cluster, object: &str) {
    for _ in 0..10 {
        let replaced = cluster.kubectl_with(&["replace", "-f", "-"], object).await.unwrap();
        if replaced.success() {
            return;
        }
        assert!(replaced.stderr.contains("the object has been modified"), "{}", replaced.stderr);
    }
    panic!("ten others wrote the object at the same time: {object}");
}

async fn every_version_says_the_same(cluster: &Cluster, declared: &str) {
    assert_eq!(refusal(cluster, declared).await, "");
    let original = get(cluster, "trafficsplits", "canary").await;
    assert_eq!(original["apiVersion"], "split.smi-spec.io/v1alpha4");
    for version in ["v1alpha1", "v1alpha2", "v1alpha3", "v1alpha4"] {
        let resource = format!("trafficsplits.{version}.split.smi-spec.io");
        let mut written = get(cluster, &resource, "canary").await;
        assert_eq!(written["apiVersion"], format!("split.smi-spec.io/{version}"));
        if version == "v1alpha1" {
            assert_eq!(written["spec"]["backends"][0]["weight"], "90m");
        }
        // A client of that version changes a label and writes the object back.
        written["metadata"]["labels"] = serde_json::json!({ "written-as": version });
        written["metadata"].as_object_mut().unwrap().remove("managedFields");
        written["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        replace(cluster, &written.to_string()).await;
        let now = get(cluster, "trafficsplits", "canary").await;
        assert_eq!(now["spec"], original["spec"], "{version}");
        assert_eq!(now["metadata"]["labels"]["written-as"], version);
        assert_eq!(now["metadata"]["generation"], original["metadata"]["generation"], "{version}");
    }
    let quantities = "{service: root, backends: [{service: v1, weight: 500m}, {service: v2, weight: 1}]}";
    assert_eq!(refusal(cluster, &split("v1alpha1", "quantities", quantities)).await, "");
    let stored = get(cluster, "trafficsplits", "quantities").await;
    let weights: Vec<_> =
        stored["spec"]["backends"].as_array().unwrap().iter().map(|b| &b["weight"]).collect();
    assert_eq!(weights, [500, 1000]);
    let fine = "{service: other, backends: [{service: v1, weight: 0.1m}]}";
    let refused = refusal(cluster, &split("v1alpha1", "fine", fine)).await;
    assert!(refused.contains("spec.backends[0].weight"), "{refused}");
    let lost =
        "{service: other, backends: [{service: v1, weight: 1}], matches: [{kind: HTTPRouteGroup, name: g}]}";
    let refused = refusal(cluster, &split("v1alpha2", "lost", lost)).await;
    assert!(refused.contains("matches belongs to v1alpha3 and later"), "{refused}");
}

async fn the_webhook_names_the_field_and_the_reason(cluster: &Cluster) {
    let group = "{apiVersion: specs.smi-spec.io/v1alpha4, kind: HTTPRouteGroup, \
                 metadata: {name: wrong, namespace: shop}, spec: {matches: [{name: m, pathRegex: '/a('}]}}";
    let route = "{apiVersion: specs.smi-spec.io/v1alpha4, kind: HTTPRouteGroup, \
                 metadata: {name: wrong, namespace: shop}, spec: {matches: [{name: m, headers: [{x: '(?=a)'}]}]}}";
    let elsewhere = "{destination: {kind: ServiceAccount, name: a, namespace: other}, \
                     sources: [{kind: ServiceAccount, name: b}], rules: [{kind: TCPRoute, name: r}]}";
    let egress = "{apiVersion: policy.openservicemesh.io/v1alpha1, kind: Egress, \
                  metadata: {name: wrong, namespace: shop}, spec: {sources: [{kind: ServiceAccount, name: a, \
                  namespace: shop}], ipAddresses: [10.0.0.0/33], ports: [{number: 80, protocol: http}]}}";
    for (manifest, words) in [
        (group.to_owned(), "spec.matches[0].pathRegex"),
        (route.to_owned(), "spec.matches[0].headers"),
        (target("wrong", elsewhere), "spec.destination.namespace"),
        (
            split("v1alpha4", "wrong", "{service: root, backends: [{service: v1, weight: 0}]}"),
            "spec.backends",
        ),
        (
            split("v1alpha2", "wrong", "{service: a.b.c, backends: [{service: v1, weight: 1}]}"),
            "spec.service",
        ),
        (
            split(
                "v1alpha4",
                "twice",
                "{service: store, backends: [{service: v1, weight: 1}, {service: v1, weight: 1}]}",
            ),
            "spec.backends[1].service",
        ),
        (egress.to_owned(), "spec.ipAddresses[0]"),
    ] {
        let refused = refusal(cluster, &manifest).await;
        assert!(refused.contains("denied the request") && refused.contains(words), "{manifest}: {refused}");
    }
}

async fn statuses_say_what_is_in_effect(cluster: &Cluster) {
    let condition = |object: &Value, kind: &str| {
        let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = all.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default();
        format!("{} {}", found["status"].as_str().unwrap_or("-"), found["reason"].as_str().unwrap_or("-"))
    };
    // What means the whole mesh is in effect where the control plane is, which is not in the mesh.
    for namespace in ["smc-system", "elsewhere"] {
        let made = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}");
        assert_eq!(refusal(cluster, &made).await, "");
        let log = format!(
            "{{apiVersion: policy.openservicemesh.io/v1alpha1, kind: Telemetry, metadata: {{name: all, \
             namespace: {namespace}}}, spec: {{accessLog: {{}}}}}}"
        );
        assert_eq!(refusal(cluster, &log).await, "");
    }
    // As OSM 1.2 makes it, with a Secret that is not used, and the one that is to replace it.
    let secret = "{ca: {secretRef: {name: osm-ca-bundle, namespace: smc-system}}}";
    for (name, spec) in [
        ("first", format!("trustDomain: cluster.local, provider: {{tresor: {secret}}}")),
        ("second", "role: passive, provider: {tresor: {}}".to_owned()),
    ] {
        let root = format!(
            "{{apiVersion: config.openservicemesh.io/v1alpha2, kind: MeshRootCertificate, metadata: {{name: {name}, \
             namespace: smc-system}}, spec: {{{spec}}}}}"
        );
        assert_eq!(refusal(cluster, &root).await, "");
    }
    // The splits have no root, so they are not in effect.
    for (resource, name, accepted, programmed) in [
        ("trafficsplits", "canary", "True Accepted", "False NotWhollyInEffect"),
        ("trafficsplits", "quantities", "True Accepted", "False NotWhollyInEffect"),
        ("egresses", "httpbin", "True Accepted", "True Programmed"),
        ("telemetries", "logs", "True Accepted", "True Programmed"),
        // It is called in clear text.
        ("extensionservices", "otel", "True AcceptedWithWarnings", "True Programmed"),
        ("telemetries", "smc-system/all", "True Accepted", "True Programmed"),
        ("meshrootcertificates", "smc-system/first", "True AcceptedWithWarnings", "True Programmed"),
        ("meshrootcertificates", "smc-system/second", "True Accepted", "True Programmed"),
        ("retries", "retry", "True Accepted", "True Programmed"),
        // Its status is one that Envoy cannot give.
        ("upstreamtrafficsettings", "httpbin", "True AcceptedWithWarnings", "True Programmed"),
        ("upstreamtrafficsettings", "external", "True Accepted", "False NotWhollyInEffect"),
        // Its service, and that of its gateway, are not there.
        ("ingressbackends", "httpbin", "True Accepted", "False NotWhollyInEffect"),
    ] {
        let written = || async {
            let object = get(cluster, resource, name).await;
            let found = (condition(&object, "Accepted"), condition(&object, "Programmed"));
            let generation = &object["metadata"]["generation"];
            let observed = &object["status"]["observedGeneration"];
            if found == (accepted.to_owned(), programmed.to_owned()) && generation == observed {
                Ok(())
            } else {
                Err(format!("{found:?}: {}", object["status"]))
            }
        };
        let limit = Duration::from_secs(30);
        cluster
            .wait(&format!("the status of {name}"), limit, written)
            .await
            .unwrap_or_else(|e| panic!("{}", e.chain()));
    }
    assert_eq!(get(cluster, "telemetries", "elsewhere/all").await["status"], Value::Null);
    let shown = cluster.kubectl(&["get", "trafficsplit", "-n", "shop", "canary"]).await.unwrap().stdout;
    assert!(shown.contains("PROGRAMMED") && shown.contains("NotWhollyInEffect"), "{shown}");
    let before = get(cluster, "trafficsplits", "canary").await["metadata"]["resourceVersion"].clone();
    let events = || async {
        let events = cluster.kubectl(&["get", "events.events.k8s.io", "-n", "shop", "-o", "json"]).await;
        let text = events.map_err(|error| error.chain())?.stdout;
        if text.contains("NotWhollyInEffect") { Ok(()) } else { Err(text) }
    };
    cluster
        .wait("the Event", Duration::from_secs(10), events)
        .await
        .unwrap_or_else(|e| panic!("{}", e.chain()));
    // Longer than the writer waits between two looks.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let after = get(cluster, "trafficsplits", "canary").await["metadata"]["resourceVersion"].clone();
    assert_eq!(before, after, "nothing changed, so nothing is written");
}
