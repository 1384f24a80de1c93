//! Controllers whose volumes are lost: two of three, and all. One command puts the group back, and the
//! sidecars that run connect again.

use serde_json::{Value, json};
use smc_test_kubernetes::{ENVOY_IMAGE, SMC_IMAGE};

use crate::mesh::{self, SETTLE, wait_ready};
use crate::program::Program;
use crate::shared;

/// The namespace of the control plane, and that of the application.
const AMBER: &str = "amber-system";
const SHOP: &str = "amber-shop";

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: amber-shop}, spec: {containers: \
                   [{name: web, image: 'tools:test', command: [smc-lab, echo, --http, '8080']}]}}";

/// One test, since its parts are steps of one mesh.
#[tokio::test]
async fn a_group_whose_volumes_are_lost_is_put_back_by_one_command() {
    let Some(cluster) = shared::cluster().await else { return };
    // Helm takes no definitions that it did not make, and other tests use those of its charts.
    mesh::install(&cluster).await;
    let smc = Program { cluster: &cluster, mesh: "amber", namespace: AMBER };
    let images = ["--image", SMC_IMAGE, "--envoy-image", ENVOY_IMAGE];
    smc.succeed(&[&["install", "--replicas", "3", "--permissive"], &images[..]].concat()).await;
    smc.cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: amber-shop}}").await.unwrap();
    smc.succeed(&["namespace", "add", SHOP]).await;
    smc.cluster.apply(POD).await.unwrap();
    wait_ready(smc.cluster, SHOP, &["pod/web"]).await;
    smc.succeed(&["check", "--wait", "90s"]).await;
    let directory = tempfile::tempdir().unwrap();
    let backup = directory.path().join("backup").display().to_string();
    smc.succeed(&["cluster", "backup", &backup]).await;

    for command in [&["cluster", "recover"][..], &["cluster", "restore", &backup]] {
        let refused = smc.run(&[command, &["--confirm"]].concat()).await.refusal();
        assert!(refused.contains("has a leader"), "{refused}");
    }
    an_upgrade_begins_with_the_key(smc).await;
    a_majority_that_is_there_is_left_alone(smc).await;
    a_process_of_a_former_pod_ends(smc).await;
    a_controller_that_is_removed_while_it_runs_joins_again(smc).await;
    a_group_with_older_disks_waits_for_a_person(smc).await;

    lose(smc, &[0, 1]).await;
    finds(smc, "`smc cluster recover`").await;
    let plan = smc.succeed(&["cluster", "recover"]).await;
    assert!(plan.contains("start 3 controllers") && plan.contains("--confirm does it"), "{plan}");
    smc.succeed(&["cluster", "recover", "--confirm"]).await;
    connected_again(smc).await;

    lose(smc, &[0, 1, 2]).await;
    finds(smc, "`smc cluster restore BACKUP`").await;
    let nothing = smc.run(&["cluster", "recover", "--confirm"]).await.refusal();
    assert!(nothing.contains("restore a backup"), "{nothing}");
    // No volume goes for a backup that cannot be restored.
    let damaged = directory.path().join("damaged");
    std::fs::write(&damaged, &std::fs::read(&backup).unwrap()[1..]).unwrap();
    let damaged = damaged.display().to_string();
    let refused = smc.run(&["cluster", "restore", &damaged, "--confirm", "--replicas", "3"]).await.refusal();
    assert!(refused.contains("this is no backup of SMC") && !refused.contains("deleted"), "{refused}");
    let restored = smc.run(&["cluster", "restore", &backup, "--confirm", "--replicas", "3"]).await;
    assert_eq!(restored.code, Some(0), "{restored:#?}\n{}", mesh::state(smc.cluster, AMBER).await);
    connected_again(smc).await;
    smc.succeed(&["uninstall"]).await;
}

/// Controllers that restart without it would stand still, all of them, and the upgrade would be their
/// restart.
async fn an_upgrade_begins_with_the_key(smc: Program<'_>) {
    let secret = kubectl(smc, &["get", "secret", "smc-kek", "-o", "json"]).await;
    let mut kept: Value = serde_json::from_str(&secret).unwrap();
    kept["metadata"] = json!({ "name": "smc-kek", "namespace": AMBER });
    let mut another = kept.clone();
    another["data"]["kek"] = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=".into();
    for (secret, reason) in [(None, "smc-kek is missing"), (Some(another), "smc-kek does not hold")] {
        kubectl(smc, &["delete", "secret", "smc-kek", "--ignore-not-found"]).await;
        if let Some(secret) = secret {
            smc.cluster.apply(&secret.to_string()).await.unwrap();
        }
        let refused = smc.run(&["upgrade", "--wait", "0s"]).await.refusal();
        assert!(refused.contains(reason) && refused.contains("so nothing was changed"), "{refused}");
    }
    kubectl(smc, &["delete", "secret", "smc-kek"]).await;
    smc.cluster.apply(&kept.to_string()).await.unwrap();
    smc.succeed(&["upgrade", "--image", SMC_IMAGE, "--envoy-image", ENVOY_IMAGE]).await;
}

/// Scaled to 0 the group has no leader, and nothing is lost but the record of the founding, as where it was
/// lost with its namespace. The next leader makes it again, so that no disk that is lost founds another
/// mesh.
async fn a_majority_that_is_there_is_left_alone(smc: Program<'_>) {
    kubectl(smc, &["scale", "statefulset", "smc-controller", "--replicas=0"]).await;
    kubectl(smc, &["wait", "pod", "-l", "app.kubernetes.io/component=controller", "--for=delete"]).await;
    kubectl(smc, &["delete", "configmap", "smc-founding"]).await;
    let refused = smc.run(&["cluster", "recover", "--confirm", "--replicas", "3"]).await.refusal();
    assert!(refused.contains("the volumes of a majority"), "{refused}");
    connected_again(smc).await;
    let recorded = smc.cluster.wait("the record of the founding", SETTLE, || async {
        let found = smc.cluster.kubectl(&["get", "configmap", "smc-founding", "-n", AMBER]).await;
        let found = found.map_err(|error| error.chain())?;
        if found.success() { Ok(()) } else { Err(found.stderr) }
    });
    recorded.await.unwrap_or_else(|error| panic!("{}", error.chain()));
}

/// A process as that of a node which was thought dead: with the name of a controller, and another UID.
async fn a_process_of_a_former_pod_ends(smc: Program<'_>) {
    let set = kubectl(smc, &["get", "statefulset", "smc-controller", "-o", "json"]).await;
    let mut pod: Value = serde_json::from_str::<Value>(&set).unwrap()["spec"]["template"].take();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"] = json!({ "name": "former", "namespace": AMBER });
    pod["spec"]["restartPolicy"] = "Never".into();
    pod["spec"]["volumes"].as_array_mut().unwrap().push(json!({ "name": "data", "emptyDir": {} }));
    let pod = pod.to_string().replace("$(POD_NAME)", "smc-controller-0").replace("$(POD_UID)", "former");
    smc.cluster.apply(&pod).await.unwrap();
    let ended = ["wait", "pod", "former", "--for=jsonpath={.status.phase}=Failed", "--timeout=90s"];
    kubectl(smc, &ended).await;
    let log = kubectl(smc, &["logs", "former"]).await;
    assert!(log.contains("the pod smc-controller-0 is another one"), "{log}");
    kubectl(smc, &["delete", "pod", "former"]).await;
    connected_again(smc).await;
}

/// As where the leader had begun to remove a controller that was scaled away when it was asked for again: the
/// removal is committed once the controller answers.
async fn a_controller_that_is_removed_while_it_runs_joins_again(smc: Program<'_>) {
    let remove = ["exec", "-n", AMBER, "smc-controller-0", "--", "smc", "cluster", "remove", "2"];
    let removed = smc.cluster.kubectl(&remove).await.unwrap();
    assert!(removed.success(), "{}", removed.stderr);
    let restarted = smc.cluster.wait("an end of controller 2", SETTLE, || async {
        let path = "jsonpath={.status.containerStatuses[0].restartCount}";
        let count = smc.cluster.kubectl(&["get", "pod", "smc-controller-2", "-n", AMBER, "-o", path]).await;
        let count = count.map_err(|error| error.chain())?.stdout;
        if count == "0" { Err(count) } else { Ok(()) }
    });
    restarted.await.unwrap_or_else(|error| panic!("{}", error.chain()));
    connected_again(smc).await;
}

/// The record says that the group was further than its disks are, as where all of them were put back from a
/// copy.
async fn a_group_with_older_disks_waits_for_a_person(smc: Program<'_>) {
    let refused = smc.run(&["cluster", "accept-disks", "--confirm"]).await.refusal();
    assert!(refused.contains("wait for no such word"), "{refused}");
    kubectl(smc, &["scale", "statefulset", "smc-controller", "--replicas=0"]).await;
    kubectl(smc, &["wait", "pod", "-l", "app.kubernetes.io/component=controller", "--for=delete"]).await;
    let further = json!({ "data": { "entry": "1000000000" } }).to_string();
    kubectl(smc, &["patch", "configmap", "smc-group", "--type=merge", "-p", &further]).await;
    kubectl(smc, &["scale", "statefulset", "smc-controller", "--replicas=3"]).await;
    let found = smc.cluster.wait("the finding", SETTLE * 3, || async {
        let check = smc.run(&["check"]).await;
        let cause = check.output.contains("× their disks are as far as their group was");
        if cause && check.code == Some(79) { Ok(()) } else { Err(format!("{check:#?}")) }
    });
    found.await.unwrap_or_else(|error| panic!("{}", error.chain()));
    let plan = smc.succeed(&["cluster", "accept-disks"]).await;
    assert!(plan.contains("entry 1000000000") && plan.contains("--confirm goes on"), "{plan}");
    smc.succeed(&["cluster", "accept-disks", "--confirm"]).await;
    connected_again(smc).await;
}

/// Waits until the check names the cause, and this command: members count as heard for some seconds.
async fn finds(smc: Program<'_>, command: &str) {
    let found = smc.cluster.wait("the finding", SETTLE * 3, || async {
        let check = smc.run(&["check"]).await;
        let cause = check.output.contains("× their group has a leader") && check.output.contains(command);
        if cause && check.code == Some(79) { Ok(()) } else { Err(format!("{check:#?}")) }
    });
    found.await.unwrap_or_else(|error| panic!("{}", error.chain()));
}

/// Loses volumes of controllers, and their pods, at once: otherwise the first is a member again before the
/// second is lost.
async fn lose(smc: Program<'_>, ordinals: &[u64]) {
    let pods: Vec<_> = ordinals.iter().map(|ordinal| format!("smc-controller-{ordinal}")).collect();
    let claims: Vec<_> = pods.iter().map(|pod| format!("data-{pod}")).collect();
    let deleted = async |kind: &str, names: &[String], flags: &[&str]| {
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        kubectl(smc, &[&["delete", kind], &*names, flags].concat()).await;
    };
    deleted("pvc", &claims, &["--wait=false"]).await;
    deleted("pod", &pods, &["--force", "--grace-period=0"]).await;
}

/// Every check passes, that of the sidecars included: the one that runs was not restarted.
async fn connected_again(smc: Program<'_>) {
    let check = smc.succeed(&["check", "--wait", "180s"]).await;
    assert!(
        check.contains("√ their sidecars are connected") && check.contains("√ every controller votes"),
        "{check}"
    );
}

async fn kubectl(smc: Program<'_>, args: &[&str]) -> String {
    let output = smc.cluster.kubectl(&[args, &["-n", AMBER]].concat()).await.unwrap();
    assert!(output.success(), "{args:?}: {}", output.stderr);
    output.stdout
}
