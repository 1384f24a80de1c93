//! The Secrets that gateways read: their certificate, as MeshConfig asks for it, and the roots of the mesh.

use std::time::Duration;

use data_encoding::BASE64;
use serde_json::{Value, json};
use smc_test_kubernetes::{Cluster, MESH_NAMESPACE};

use crate::mesh::{self, smc};
use crate::shared;

/// Longer than the minute after which a Secret is written again that a person deleted, on a busy machine.
const LIMIT: Duration = Duration::from_mins(2);

/// A gateway's namespace, and a Secret in it that is a person's.
const OBJECTS: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: gateway}}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {name: theirs, namespace: gateway}
stringData: {tls.crt: theirs, tls.key: theirs}
";

/// Asks for a certificate in this Secret, with this name, or for none.
pub(crate) async fn ask(cluster: &Cluster, asked: Option<(&str, &str, &str)>) {
    let asked = asked.map(|(namespace, secret, name)| {
        json!({
            "subjectAltNames": [name], "validityDuration": "24h",
            "secret": { "name": secret, "namespace": namespace },
        })
    });
    mesh::patch_settings(cluster, &json!({ "certificate": { "ingressGateway": asked } })).await;
}

/// A Secret, if it is there.
async fn secret(cluster: &Cluster, namespace: &str, name: &str) -> Option<Value> {
    let get = ["get", "secret", name, "-n", namespace, "-o", "json"];
    let output = cluster.kubectl(&get).await.unwrap();
    output.success().then(|| serde_json::from_str(&output.stdout).unwrap())
}

fn entry(secret: &Value, key: &str) -> String {
    let encoded = secret["data"][key].as_str().unwrap_or_default();
    String::from_utf8(BASE64.decode(encoded.as_bytes()).unwrap()).unwrap()
}

async fn eventually(cluster: &Cluster, sentence: &str, holds: impl AsyncFn() -> Result<(), String>) {
    let waited = cluster.wait(sentence, LIMIT, || holds()).await;
    waited.unwrap_or_else(|error| panic!("{}", error.chain()));
}

/// Waits for a gateway's certificate other than `former`, beside these roots, and returns it.
pub(crate) async fn certificate(
    cluster: &Cluster,
    (namespace, name): (&str, &str),
    former: &str,
    roots: &str,
) -> String {
    eventually(cluster, "there is a certificate", async || {
        let found = secret(cluster, namespace, name).await.ok_or("there is none")?;
        if entry(&found, "tls.crt") == former {
            Err("it is the former one".to_owned())
        } else if entry(&found, "ca.crt") != roots {
            Err(format!("the roots are others: {}", entry(&found, "ca.crt")))
        } else {
            Ok(())
        }
    })
    .await;
    let found = secret(cluster, namespace, name).await.unwrap();
    assert_eq!(found["type"], "kubernetes.io/tls");
    assert_eq!(found["metadata"]["labels"]["mesh.smc.dev/gateway-of"], "smc");
    assert_eq!(entry(&found, "tls.crt").matches("BEGIN CERTIFICATE").count(), 2, "it comes with its issuer");
    assert_eq!(entry(&found, "tls.key").matches("BEGIN PRIVATE KEY").count(), 1);
    entry(&found, "tls.crt")
}

#[tokio::test]
async fn a_gateways_certificate_is_in_the_secret_that_mesh_config_names() {
    let Some(cluster) = shared::cluster().await else { return };
    mesh::install(&cluster).await;
    let cluster: &Cluster = &cluster;
    cluster.apply(OBJECTS).await.unwrap();
    let roots = smc(cluster, 0, &["ca", "roots"]).await.unwrap();
    let theirs = secret(cluster, "gateway", "theirs").await;

    // A Secret that is there and is another's stays as it is.
    ask(cluster, Some(("gateway", "theirs", "gateway.example"))).await;
    eventually(cluster, "it is a problem of the MeshConfig", async || {
        let config = ["get", "meshconfig", "osm-mesh-config", "-n", MESH_NAMESPACE, "-o", "json"];
        let config = cluster.kubectl(&config).await.map_err(|error| error.chain())?.stdout;
        let words = "Secret gateway/theirs cannot be written";
        if config.contains(words) { Ok(()) } else { Err(config) }
    })
    .await;
    assert_eq!(secret(cluster, "gateway", "theirs").await, theirs);

    ask(cluster, Some(("gateway", "own", "gateway.example"))).await;
    let first = certificate(cluster, ("gateway", "own"), "", &roots).await;
    let status = smc(cluster, 0, &["ca", "status"]).await.unwrap();
    assert!(status.contains("gateway/own") && !status.contains("gateway/theirs"), "{status}");
    assert_eq!(secret(cluster, "gateway", "theirs").await, theirs);

    // What a person deletes comes back as it was; so do the roots.
    for (namespace, name) in [("gateway", "own"), (MESH_NAMESPACE, "smc-ca-bundle")] {
        let deleted = cluster.kubectl(&["delete", "secret", name, "-n", namespace]).await.unwrap();
        assert!(deleted.success(), "{deleted:?}");
    }
    assert_eq!(certificate(cluster, ("gateway", "own"), "", &roots).await, first);
    eventually(cluster, "the roots are back", async || {
        let found = secret(cluster, MESH_NAMESPACE, "smc-ca-bundle").await.ok_or("there are none")?;
        if entry(&found, "ca.crt") == roots { Ok(()) } else { Err(entry(&found, "ca.crt")) }
    })
    .await;

    ask(cluster, Some(("gateway", "own", "other.example"))).await;
    certificate(cluster, ("gateway", "own"), &first, &roots).await;
    ask(cluster, None).await;
    eventually(cluster, "it is deleted", async || match secret(cluster, "gateway", "own").await {
        Some(_) => Err("it is still there".to_owned()),
        None => Ok(()),
    })
    .await;
    assert_eq!(secret(cluster, "gateway", "theirs").await, theirs);
}
