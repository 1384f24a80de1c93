//! Tests the roots that a person declares, by the roles of MeshRootCertificates, under traffic.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::continuity::{PODS, Traffic, ca, eventually_authority, mesh, signs_for_all};
use crate::eventually::{eventually, eventually_acknowledged, eventually_answering, eventually_by};
use crate::{SETTLE, start_with};
use smc_lab::LabHandle;
use tokio::time::Instant;

/// Objects with these names and roles, in the control plane's namespace.
fn roots(all: &[(&str, &str)]) -> String {
    let object = |(name, role): &(&str, &str)| {
        format!(
            "apiVersion: config.openservicemesh.io/v1alpha2\nkind: MeshRootCertificate\nmetadata: {{name: {name}, \
             namespace: smc-system}}\nspec: {{role: {role}, trustDomain: cluster.local, provider: {{tresor: {{}}}}}}\n"
        )
    };
    all.iter().map(object).collect::<Vec<_>>().join("---\n")
}

/// The serial number and the state of the root that an object declares.
fn declared(status: &Value, name: &str) -> Option<(String, String)> {
    let roots = status["authorities"].as_array()?.iter();
    let root = roots.clone().find(|root| root["declared_by"] == format!("smc-system/{name}"))?;
    Some((root["serial"].as_str()?.to_owned(), root["state"].as_str()?.to_owned()))
}

/// Waits until the root of an object has this state, and returns its serial number.
async fn eventually_root(lab: &LabHandle, name: &str, state: &str) -> String {
    let is_there = |status: &Value| declared(status, name).is_some_and(|(_, found)| found == state);
    eventually_authority(lab, 0, &format!("the root of {name} is {state}"), is_there).await;
    declared(&ca(lab, 0, &["status"]).await.unwrap(), name).unwrap().0
}

/// Waits until the problems have this text.
async fn eventually_said(lab: &LabHandle, text: &str) {
    eventually(text, async || {
        let shown = lab.smc(&["mesh", "problems"]).await.map_err(|error| error.chain())?.stdout;
        if shown.contains(text) { Ok(()) } else { Err(shown) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mesh_root_certificates_drive_the_rotation_of_the_root() {
    let mesh = mesh().with("roots.yaml", &roots(&[("a", "active")]));
    let lab = start_with(&mesh, |options| {
        options.controller_args = vec!["--service-cert-lifetime".to_owned(), "20s".to_owned()];
    })
    .await;
    eventually_answering(&lab, &["web-v1", "web-v2"]).await;
    let old = eventually_root(&lab, "a", "signing").await;
    let traffic = Traffic::start(&lab).await;

    lab.apply("roots.yaml", &roots(&[("a", "active"), ("b", "passive")])).await.unwrap();
    let new = eventually_root(&lab, "b", "next").await;
    // All else that it waits for is over.
    let waits = "waits for MeshRootCertificate smc-system/b to be active";
    eventually_by(Instant::now() + 4 * SETTLE, waits, async || {
        let shown = lab.smc(&["ca", "status"]).await.map_err(|error| error.chain())?.stdout;
        if shown.contains(waits) { Ok(()) } else { Err(shown) }
    })
    .await;
    // A controller that starts has not read the objects yet, and takes no step by itself.
    lab.stop_controller(Signal::SIGKILL).await.unwrap();
    lab.start_controller().await.unwrap();
    for pod in PODS {
        eventually_acknowledged(&lab, &[0], pod).await;
    }
    lab.apply("roots.yaml", &roots(&[("a", "active"), ("b", "passive"), ("c", "passive")])).await.unwrap();
    eventually_said(&lab, "3 MeshRootCertificates are passive or active").await;
    let status = ca(&lab, 0, &["status"]).await.unwrap();
    assert_eq!(declared(&status, "b"), Some((new.clone(), "next".to_owned())));

    lab.apply("roots.yaml", &roots(&[("a", "active"), ("b", "active")])).await.unwrap();
    eventually_authority(&lab, 0, "the newer of two active roots signs", |status| {
        signs_for_all(status, &new)
    })
    .await;
    assert_eq!(eventually_root(&lab, "a", "former").await, old);
    eventually_said(&lab, "the root signs no more").await;
    lab.apply("roots.yaml", &roots(&[("a", "inactive"), ("b", "active")])).await.unwrap();
    eventually_said(&lab, "the root is trusted until nothing that it signed").await;
    traffic.assert_undisturbed(&lab).await;
    lab.stop().await.unwrap();
}
