//! A mesh that is installed, taken away and installed again with other numbers of controllers: it gets ready,
//! or the program says what stands against it and what to type.

use std::time::Duration;

use smc_test_kubernetes::{ENVOY_IMAGE, SMC_IMAGE};
use tokio::time::sleep;

use crate::mesh::{self, SETTLE, wait_ready};
use crate::program::Program;
use crate::shared;

/// The namespace of the control plane, and that of the application.
const GREEN: &str = "green-system";
const SHOP: &str = "green-shop";

const INSTALL: [&str; 7] =
    ["install", "--image", SMC_IMAGE, "--envoy-image", ENVOY_IMAGE, "--kek-secret", "smc-kek-2"];

/// The pause between two checks, each of which starts processes in pods.
const LOOK: Duration = Duration::from_secs(2);

/// A pod of the application.
fn pod(name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {SHOP}}}, spec: {{containers: [{{name: \
         web, image: 'tools:test', command: [smc-lab, echo, --http, '8080']}}]}}}}"
    )
}

/// Installs so many controllers, with further flags.
async fn install(smc: Program<'_>, flags: &[&str]) -> String {
    let said = smc.run(&[&INSTALL[..], flags].concat()).await;
    assert_eq!(said.code, Some(0), "{said:#?}\n{}", mesh::state(smc.cluster, GREEN).await);
    said.errors
}

/// One test, since its parts are steps of one mesh.
#[tokio::test]
async fn a_mesh_that_is_installed_again_gets_ready_or_says_what_to_type() {
    let Some(cluster) = shared::cluster().await else { return };
    // Helm takes no definitions that it did not make, and other tests use those of its charts.
    mesh::install(&cluster).await;
    let smc = Program { cluster: &cluster, mesh: "green", namespace: GREEN };
    let refused = smc.run(&["namespace", "add", SHOP]).await.refusal();
    assert!(refused.contains("there is no mesh green in this cluster"), "{refused}");

    let said = smc.succeed_in_words(&[&INSTALL[..5], &["--permissive"]].concat()).await;
    assert!(said.contains("created   MeshConfig osm-mesh-config in green-system"), "{said}");
    an_application_that_moves_in_is_seen(smc).await;
    the_key_changes_step_by_step(smc).await;
    images_change_one_by_one(smc).await;

    smc.succeed(&["uninstall"]).await;
    let said = install(smc, &["--replicas", "3"]).await;
    assert!(said.contains("kept      the MeshConfig that is there"), "{said}");
    smc.succeed(&["check", "--wait", "60s"]).await;
    smc.succeed(&["uninstall"]).await;
    fewer_controllers_than_the_group_has_are_found(smc).await;
    smc.succeed(&["uninstall"]).await;
}

/// What `smc check` says about sidecars, and about a mesh that refuses every call.
async fn an_application_that_moves_in_is_seen(smc: Program<'_>) {
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: green-shop}}";
    smc.cluster.apply(namespace).await.unwrap();
    let said = smc.succeed(&["namespace", "add", SHOP]).await;
    assert!(!said.contains("not permissive"), "{said}");
    smc.cluster.apply(&pod("web")).await.unwrap();
    wait_ready(smc.cluster, SHOP, &["pod/web"]).await;
    let check = smc.succeed(&["check"]).await;
    for passes in ["√ their sidecars are connected", "√ their sidecars start", "√ some traffic is allowed"]
    {
        assert!(check.contains(passes), "{check}");
    }
    // The way to the sidecar's statistics is there, and nothing was called yet.
    let suggested = smc.run(&["mesh", "policy", "--suggest"]).await;
    assert!(suggested.code == Some(0) && !suggested.output.contains("kind: TrafficTarget"), "{suggested:#?}");
    let dump = smc.succeed(&["proxy", "config", "green-shop/web", "--dump"]).await;
    let dump: serde_json::Value = serde_json::from_str(&dump).unwrap();
    let dump = dump.to_string();
    assert!(
        dump.contains("envoy.admin.v3.ListenersConfigDump")
            && dump.contains(r#""name":"inbound-prometheus-listener""#),
        "{dump}"
    );
    // As text, and as Envoy prints bytes: the end of a PEM's first line, wherever it begins.
    let key = ["PRIVATE KEY", "UFJJVkFURSBLRV", "BSSVZBVEUgS0V", "QUklWQVRFIEtF"];
    assert!(!key.iter().any(|key| dump.contains(key)), "{dump}");
    let close = r#"{"spec":{"traffic":{"enablePermissiveTrafficPolicyMode":false}}}"#;
    let patch = ["patch", "meshconfig", "osm-mesh-config", "-n", GREEN, "--type=merge", "-p", close];
    let patched = smc.cluster.kubectl(&patch).await.unwrap();
    assert!(patched.success(), "{patched:?}");
    let closed = smc.cluster.wait("the hint", SETTLE, || async {
        let check = smc.succeed(&["check"]).await;
        if check.contains("‼ some traffic is allowed") {
            return Ok(());
        }
        sleep(LOOK).await;
        Err(check)
    });
    closed.await.unwrap_or_else(|error| panic!("{}", error.chain()));
    what_is_taken_from_the_mesh_is_found(smc).await;
    let leaving = smc.run(&["namespace", "remove", SHOP]).await;
    assert!(leaving.code == Some(79) && leaving.output.contains("1 of its pods have one"), "{leaving:#?}");
    let check = smc.succeed(&["check"]).await;
    assert!(check.contains("‼ no namespace is about to leave"), "{check}");
    let said = smc.succeed(&["namespace", "remove", SHOP, "--now"]).await;
    assert!(
        said.contains("1 of its pods still have sidecars") && said.contains("kubectl rollout restart"),
        "{said}"
    );
    let check = smc.run(&["check"]).await;
    assert!(check.code == Some(79) && check.output.contains("of no mesh: green-shop/web"), "{check:#?}");
    let said = smc.succeed(&["namespace", "add", SHOP]).await;
    assert!(said.contains("the mesh is not permissive"), "{said}");
}

/// Each of these is green for half a minute and longer, to those who ask the controllers alone.
async fn what_is_taken_from_the_mesh_is_found(smc: Program<'_>) {
    let kubectl = async |args: &[&str]| {
        let output = smc.cluster.kubectl(args).await.unwrap();
        assert!(output.success(), "{args:?}: {output:?}");
    };
    let says = async |finding: &str| {
        let check = smc.run(&["check", "-o", "short"]).await;
        assert!(check.output.contains(finding), "{finding}: {check:#?}");
        check.code
    };
    let finds = async |finding: &str| assert_eq!(says(finding).await, Some(79), "{finding}");
    let label = "openservicemesh.io/monitored-by";
    kubectl(&["label", "namespace", SHOP, &format!("{label}=greenn"), "--overwrite"]).await;
    // A warning, beside other meshes.
    says("green-shop for greenn, with 1 sidecars that no controller serves").await;
    let refused = smc.run(&["namespace", "add", SHOP]).await.refusal();
    assert!(refused.contains("smc namespace remove green-shop --mesh-name greenn"), "{refused}");
    kubectl(&["label", "namespace", SHOP, &format!("{label}=green"), "--overwrite"]).await;
    kubectl(&["delete", "clusterrolebinding", "smc-controller-green"]).await;
    finds("the ClusterRoleBinding smc-controller-green is missing: smc upgrade --mesh-name green").await;
    kubectl(&["delete", "mutatingwebhookconfiguration", "smc-injector-green"]).await;
    finds("the MutatingWebhookConfiguration smc-injector-green is missing: smc upgrade").await;
    smc.succeed(&["upgrade", "--image", SMC_IMAGE]).await;
    smc.succeed(&["check", "--wait", "60s"]).await;
}

/// The steps of docs/operation.md, and that a Secret with another key is found before a restart needs it.
async fn the_key_changes_step_by_step(smc: Program<'_>) {
    let secret = |name: &str, byte: char| {
        let key = byte.to_string().repeat(64);
        format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: {GREEN}}}, stringData: {{kek: \
             '{key}'}}}}"
        )
    };
    smc.cluster.apply(&secret("smc-kek-2", 'b')).await.unwrap();
    smc.succeed(&["upgrade", "--also-kek-secret", "smc-kek-2"]).await;
    smc.succeed(&["upgrade", "--kek-secret", "smc-kek-2", "--also-kek-secret", "smc-kek"]).await;
    smc.succeed(&["check", "--wait", "60s"]).await;
    smc.succeed(&["ca", "rekey"]).await;
    smc.succeed(&["upgrade", "--also-kek-secret", ""]).await;
    let check = smc.succeed(&["check", "--wait", "60s"]).await;
    assert!(check.contains("√ it opens what the mesh has sealed"), "{check}");
    // The leader's record follows; that of the founding stays as it was made.
    let field = async |map: &str, field: &str| {
        let path = format!("jsonpath={{.data.{field}}}");
        smc.cluster.kubectl(&["get", "configmap", map, "-n", GREEN, "-o", &path]).await.unwrap().stdout
    };
    let founded = field("smc-founding", "keyEncryptionKey").await;
    let recorded = smc.cluster.wait("the record", SETTLE, || async {
        let keys = field("smc-group", "keyEncryptionKeys").await;
        if keys.len() == founded.len() && keys != founded {
            Ok(())
        } else {
            Err(format!("{founded}: {keys}"))
        }
    });
    recorded.await.unwrap_or_else(|error| panic!("{}", error.chain()));
    // Later upgrades keep it.
    let manifest = smc.succeed(&["upgrade", "--dry-run"]).await;
    assert!(manifest.contains("secretName: smc-kek-2") && !manifest.contains("kek-also"), "{manifest}");

    // The former name, and then the name in use with a key that is none of the mesh's.
    let gone = ["delete", "secret", "smc-kek", "smc-kek-2", "-n", GREEN];
    assert!(smc.cluster.kubectl(&gone).await.unwrap().success());
    let refused = smc.run(&["upgrade"]).await.refusal();
    let missing = format!("the Secret {GREEN}/smc-kek-2 is missing");
    assert!(refused.contains(&missing) && refused.contains("nothing was changed"), "{refused}");
    smc.cluster.apply(&secret("smc-kek-2", 'c')).await.unwrap();
    let check = smc.run(&["check"]).await;
    assert!(
        check.code == Some(79) && check.output.contains("× it opens what the mesh has sealed"),
        "{check:#?}"
    );
    let replace = ["delete", "secret", "smc-kek-2", "-n", GREEN];
    assert!(smc.cluster.kubectl(&replace).await.unwrap().success());
    smc.cluster.apply(&secret("smc-kek-2", 'b')).await.unwrap();
    smc.succeed(&["check"]).await;
}

/// An image of Envoy that cannot be pulled is no reason to exchange the controllers' image, and is seen.
async fn images_change_one_by_one(smc: Program<'_>) {
    smc.succeed(&["upgrade", "--envoy-image", "nowhere.invalid/envoy:1"]).await;
    let image = ["get", "statefulset", "smc-controller", "-n", GREEN, "-o"];
    let image = [&image[..], &["jsonpath={.spec.template.spec.containers[0].image}"]].concat();
    assert_eq!(smc.cluster.kubectl(&image).await.unwrap().stdout, SMC_IMAGE);
    let deleted = ["delete", "pod", "-n", SHOP, "web", "--grace-period=0", "--force"];
    assert!(smc.cluster.kubectl(&deleted).await.unwrap().success());
    smc.cluster.apply(&pod("late")).await.unwrap();
    let stuck = smc.cluster.wait("the image", SETTLE * 3, || async {
        let check = smc.run(&["check"]).await;
        let found = check.code == Some(79) && check.output.contains("green-shop/late: envoy: ");
        if found {
            return Ok(());
        }
        sleep(LOOK).await;
        Err(format!("{check:#?}"))
    });
    stuck.await.unwrap_or_else(|error| panic!("{}", error.chain()));
    let gone = ["delete", "namespace", SHOP, "--wait=false"];
    assert!(smc.cluster.kubectl(&gone).await.unwrap().success());
}

/// The volumes of three controllers have a group of three, which one of them cannot lead.
async fn fewer_controllers_than_the_group_has_are_found(smc: Program<'_>) {
    let command = "kubectl scale statefulset smc-controller -n green-system --replicas=3";
    let refused = smc.run(&INSTALL).await.refusal();
    assert!(refused.contains(command), "{refused}");
    let check = smc.run(&["check"]).await;
    assert_eq!(check.code, Some(79), "{check:#?}");
    assert!(
        check.output.contains("× enough of their group is asked for") && check.output.contains(command),
        "{check:#?}"
    );
    let status = smc.succeed(&["cluster", "status"]).await;
    assert!(
        status.contains("2 of the controllers 0, 1, 2 of its group have to run with their disks"),
        "{status}"
    );
    // As it is typed: without the name of the program.
    let scaled = smc.cluster.kubectl(&command.split(' ').skip(1).collect::<Vec<_>>()).await.unwrap();
    assert!(scaled.success(), "{scaled:?}");
    smc.succeed(&["check", "--wait", "90s"]).await;
    let fewer = ["scale", "statefulset", "smc-controller", "-n", GREEN, "--replicas=1"];
    assert!(smc.cluster.kubectl(&fewer).await.unwrap().success());
    smc.succeed(&["check", "--wait", "90s"]).await;
}
