//! Contour brings requests into the mesh, as OSM's guide has it: with a certificate that the MeshConfig asks
//! for, and roots that follow the mesh's.

use smc_test_kubernetes::{Cluster, ENVOY_IMAGE, MESH_NAMESPACE};

use crate::gateway::{ask, certificate};
use crate::mesh::{self, SETTLE, smc};
use crate::shared;
use crate::traffic::{Steady, lab};

const MANIFESTS: &str = include_str!("contour.yaml");

/// Where a gateway brings requests for `shop.example`: to the server's port, over TLS, where the server has
/// to be this identity.
fn proxy(identity: &str) -> String {
    format!(
        "
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{ name: web, namespace: shopfront }}
spec:
  virtualhost: {{ fqdn: shop.example }}
  routes:
    - services:
        - name: web
          port: 80
          protocol: tls
          validation: {{ caSecret: {MESH_NAMESPACE}/smc-ca-bundle, subjectName: {identity} }}
"
    )
}

/// Opens the server's port to Contour's Envoy, if it shows a certificate for this name.
fn ingress(principal: &str) -> String {
    format!(
        "
apiVersion: policy.openservicemesh.io/v1alpha1
kind: IngressBackend
metadata: {{ name: web, namespace: shopfront }}
spec:
  backends: [{{ name: web, port: {{ number: 8080, protocol: https }} }}]
  sources:
    - {{ kind: Service, namespace: projectcontour, name: envoy }}
    - {{ kind: AuthenticatedPrincipal, name: {principal} }}
"
    )
}

/// Waits until a request of the client has one of these statuses, and returns what the server saw.
async fn expect(cluster: &Cluster, statuses: &[u64], sentence: &str) -> serde_json::Value {
    let args = ["fetch", "-H", "host: shop.example", "--url", "http://envoy.projectcontour/"];
    let seen = std::cell::RefCell::new(serde_json::Value::Null);
    let waited = cluster.wait(sentence, SETTLE, || async {
        let fetched = lab(cluster, "town/client", &[], &args).await?;
        let fetched = fetched.into_iter().next().ok_or("no result")?;
        if fetched.status().is_some_and(|status| statuses.contains(&status)) {
            *seen.borrow_mut() = fetched.0;
            Ok(())
        } else {
            Err(format!("{fetched:?}"))
        }
    });
    if let Err(error) = waited.await {
        panic!("{}\n{}", error.chain(), mesh::state(cluster, "projectcontour").await);
    }
    seen.into_inner()
}

/// The serial number of the certificate of a service account.
async fn serial(cluster: &Cluster, account: &str) -> String {
    let status = smc(cluster, 0, &["ca", "status", "-o", "json"]).await.unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let mut services = status["service_certificates"].as_array().unwrap().iter();
    let found = services.find(|service| service["service_account"] == account).unwrap();
    found["serial"].as_str().unwrap().to_owned()
}

/// How long service certificates are valid.
async fn set_validity(cluster: &Cluster, validity: Option<&str>) {
    let certificate = serde_json::json!({ "serviceCertValidityDuration": validity });
    mesh::patch_settings(cluster, &serde_json::json!({ "certificate": certificate })).await;
}

#[tokio::test]
async fn contour_brings_requests_in_through_rotations_of_certificates_and_roots() {
    let Some(cluster) = shared::alone().await else { return };
    mesh::install(&cluster).await;
    let cluster: &Cluster = &cluster;
    let definitions = shared::programs().unwrap().find("contour-crds.yaml").unwrap();
    let definitions = ["apply", "--server-side", "-f", definitions.to_str().unwrap()];
    let applied = cluster.kubectl(&definitions).await.unwrap();
    assert!(applied.success(), "{applied:?}");
    ask(cluster, Some(("projectcontour", "gateway", "contour.projectcontour.cluster.local"))).await;
    cluster.apply(&MANIFESTS.replace("ENVOY", ENVOY_IMAGE)).await.unwrap();
    let roots = smc(cluster, 0, &["ca", "roots"]).await.unwrap();
    let gateway = ("projectcontour", "gateway");
    let first = certificate(cluster, gateway, "", &roots).await;
    mesh::wait_ready(cluster, "projectcontour", &["pod", "-l", "app in (contour, envoy)"]).await;
    mesh::wait_ready(cluster, "shopfront", &["pod", "-l", "app=web"]).await;
    mesh::wait_ready(cluster, "town", &["pod/client"]).await;

    cluster.apply(&proxy("web.shopfront.cluster.local")).await.unwrap();
    expect(cluster, &[503], "nothing is opened to Contour yet").await;
    cluster.apply(&ingress("contour.projectcontour.cluster.local")).await.unwrap();
    let seen = expect(cluster, &[200], "Contour brings a request in").await;
    let header = |name: &str| seen["body"]["headers"][name].as_str().unwrap_or_default().to_owned();
    assert_eq!(header("host"), "shop.example", "{seen}");
    assert!(header("x-forwarded-client-cert").contains("DNS=contour.projectcontour.cluster.local"), "{seen}");

    // Neither a new certificate, nor a new issuing CA, nor a new root costs a request.
    let mut calls = Steady::of(cluster, "town/client").await;
    calls.start();
    smc(cluster, 0, &["ca", "rotate"]).await.unwrap();
    let second = certificate(cluster, gateway, &first, &roots).await;
    smc(cluster, 0, &["ca", "rotate", "--root"]).await.unwrap();
    smc(cluster, 0, &["ca", "rotate", "--hasten", "--confirm"]).await.unwrap();
    let both = smc(cluster, 0, &["ca", "roots"]).await.unwrap();
    assert_eq!(both.matches("BEGIN CERTIFICATE").count(), 2);
    let under_the_new_root = cluster.wait("the new root signs", SETTLE * 2, || async {
        let status = smc(cluster, 0, &["ca", "status", "-o", "json"]).await?;
        if status.contains("\"signing\": true") { Ok(()) } else { Err(status) }
    });
    under_the_new_root.await.unwrap_or_else(|error| panic!("{}", error.chain()));
    let both = smc(cluster, 0, &["ca", "roots"]).await.unwrap();
    certificate(cluster, gateway, &second, &both).await;
    // The server has a certificate under the new root as well: one of another lifetime is issued at once.
    let former = serial(cluster, "shopfront/web").await;
    set_validity(cluster, Some("1h")).await;
    let renewed = cluster.wait("a certificate of the server", SETTLE, || async {
        if serial(cluster, "shopfront/web").await == former { Err(former.clone()) } else { Ok(()) }
    });
    renewed.await.unwrap_or_else(|error| panic!("{}", error.chain()));
    let until = calls.count() + 100;
    let enough = cluster.wait("requests", SETTLE, || async {
        if calls.count() < until { Err(calls.count().to_string()) } else { Ok(()) }
    });
    enough.await.unwrap_or_else(|error| panic!("{}", error.chain()));
    calls.assert_no_failure(100, "rotations");
    set_validity(cluster, None).await;

    // The server that Contour expects is another identity.
    cluster.apply(&proxy("other.shopfront.cluster.local")).await.unwrap();
    expect(cluster, &[503], "the server is not the one that Contour expects").await;
    cluster.apply(&proxy("web.shopfront.cluster.local")).await.unwrap();
    expect(cluster, &[200], "Contour brings requests in again").await;
    // Another principal is let in: Contour gets no new connection, and no request on one that is open.
    cluster.apply(&ingress("other.projectcontour.cluster.local")).await.unwrap();
    expect(cluster, &[403, 503], "Contour is not the one that is let in").await;
    ask(cluster, None).await;
    for namespace in ["town", "shopfront", "projectcontour"] {
        let deleted = cluster.kubectl(&["delete", "namespace", namespace, "--wait=false"]).await.unwrap();
        assert!(deleted.success(), "{deleted:?}");
    }
}
