//! The charts, judged by helm and by a real API server: what they render, and what an upgrade leaves alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use smc_test_kubernetes::{Cluster, ClusterOptions, MESH_NAMESPACE};
use tempfile::TempDir;

use crate::{mesh, shared};

/// The namespace of the control plane as `smc install` makes it: its pods keep to the restricted standard.
const NAMESPACE: &str = r"
apiVersion: v1
kind: Namespace
metadata: { name: smc-system, labels: { pod-security.kubernetes.io/enforce: restricted } }
";

/// The fields that the chart uses of the Prometheus operator's kinds, which take no others.
const MONITORS: &str = include_str!("charts/monitors.yaml");

/// Time limit for the controller manager to make a pod, on a machine that is busy.
const LIMIT: Duration = Duration::from_mins(1);

const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn chart(name: &str) -> String {
    // Cargo starts tests in the directory of their package.
    std::path::absolute(Path::new("../../charts").join(name)).unwrap().display().to_string()
}

/// A cluster without a node that has the definitions and the namespace of the control plane.
async fn cluster() -> Option<Cluster> {
    // Those of envtest have no helm, and no controller manager that makes the pods of a StatefulSet.
    let cluster = Cluster::start(ClusterOptions::api_only(shared::programs()?)).await;
    let cluster = cluster.unwrap_or_else(|error| panic!("{}", error.chain()));
    cluster.apply(NAMESPACE).await.unwrap();
    helm(&cluster, &["install", "smc-crds", &chart("smc-crds"), "--namespace", "default"]).await;
    cluster.apply(MONITORS).await.unwrap();
    let established = ["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"];
    assert!(cluster.kubectl(&established).await.unwrap().success());
    Some(cluster)
}

async fn helm(cluster: &Cluster, args: &[&str]) -> String {
    let output = cluster.helm(args).await.unwrap();
    assert!(output.success(), "helm {}: {}{}", args.join(" "), output.stdout, output.stderr);
    output.stdout
}

async fn get(cluster: &Cluster, what: &[&str]) -> Value {
    let output = cluster.kubectl(&[&["get", "-o", "json"], what].concat()).await.unwrap();
    assert!(output.success(), "{what:?}: {}", output.stderr);
    serde_json::from_str(&output.stdout).unwrap()
}

/// Every values file, alone and with all that is off by default.
fn profiles() -> Vec<Vec<String>> {
    let digest = format!("--set=image.digest={DIGEST}");
    let ha = format!("--values={}/values-ha.yaml", chart("smc"));
    let all = "--set=podMonitor.enabled=true,serviceMonitor.enabled=true,priorityClassName=system-cluster-critical,\
               persistence.storageClassName=fast,imagePullSecrets[0].name=pull,nodeSelector.disk=ssd,\
               tolerations[0].operator=Exists,webhooks.excludedNamespaces[0]=legacy,extraArgs[0]=--request-retries=1,\
               podMonitor.labels.team=mesh,podAnnotations.a=b,podLabels.c=d,listenAddress=[::],\
               kek.secretName=smc-kek-2,kek.alsoSecretName=smc-kek,networkPolicy.apiServers[0]=192.0.2.0/28,\
               networkPolicy.apiServers[1]=2001:db8::/64,networkPolicy.scrapers[0].namespaceSelector.matchLabels.a=b";
    let none = "--set=podDisruptionBudget.enabled=false,networkPolicy.enabled=false,persistence.enabled=false,\
                kek.create=false";
    let rows: [&[&str]; 4] = [&[], &[&ha], &[&ha, all, &digest], &[none]];
    rows.iter().map(|row| row.iter().map(|flag| (*flag).to_owned()).collect()).collect()
}

#[tokio::test]
async fn what_the_charts_render_is_taken_by_the_api_server() {
    let Some(cluster) = cluster().await else { return };
    helm(&cluster, &["lint", "--strict", &chart("smc-crds")]).await;
    for profile in profiles() {
        let profile: Vec<&str> = profile.iter().map(String::as_str).collect();
        let chart = chart("smc");
        helm(&cluster, &[&["lint", "--strict", &chart], &profile[..]].concat()).await;
        let template = ["template", "smc", &chart, "--namespace", MESH_NAMESPACE, "--kube-version=1.34.0"];
        let rendered = helm(&cluster, &[&template, &profile[..]].concat()).await;
        let dry_run = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"];
        let judged = cluster.kubectl_with(&dry_run, &rendered).await.unwrap();
        assert!(judged.success(), "{profile:?}: {}", judged.stderr);
        // A pod template that the restricted standard refuses is a warning here.
        assert_eq!(judged.stderr, "", "{profile:?}");
        let count = |kind: &str| rendered.matches(&format!("\nkind: {kind}\n")).count();
        let optional = ["PodDisruptionBudget", "NetworkPolicy", "PodMonitor", "ServiceMonitor"].map(count);
        let expected = match &profile[..] {
            [flag] if flag.contains("networkPolicy.enabled=false") => [0, 0, 0, 0],
            [_, _, _] => [1, 1, 1, 1],
            _ => [1, 1, 0, 0],
        };
        assert_eq!(optional, expected, "{profile:?}");
        let pinned = rendered.contains(&format!("smc@{DIGEST}"));
        let narrow = rendered.contains("cidr: \"2001:db8::/64\"") && rendered.contains("a: b");
        assert_eq!((pinned, narrow), (expected == [1, 1, 1, 1], expected == [1, 1, 1, 1]), "{profile:?}");
    }
    for (wrong, words) in [
        ("replicas=6", "greater than maxReplicas"),
        ("replicas=many", "replicas"),
        ("webhooks.failurePolicy=Sometimes", "failurePolicy"),
        ("meshName=Two Words", "meshName"),
        ("typo=1", "typo"),
        ("image.digest=latest", "digest"),
        ("networkPolicy.apiServers[0]=everywhere", "apiServers"),
    ] {
        let template = ["template", "smc", &chart("smc"), "--kube-version=1.34.0", "--set", wrong];
        let refused = cluster.helm(&template).await.unwrap();
        assert!(!refused.success() && refused.stderr.contains(words), "{wrong}: {}", refused.stderr);
    }
    cluster.stop().await.unwrap();
}

/// A copy of the chart that calls itself the next version.
fn next_version() -> (TempDir, String) {
    let copy = tempfile::tempdir().unwrap();
    let mut directories = vec![PathBuf::from(chart("smc"))];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let target = copy.path().join(path.strip_prefix(chart("smc")).unwrap());
            if path.is_dir() {
                fs::create_dir_all(&target).unwrap();
                directories.push(path);
            } else {
                fs::copy(&path, &target).unwrap();
            }
        }
    }
    let file = copy.path().join("Chart.yaml");
    let text = fs::read_to_string(&file).unwrap().replace("0.1.0", "0.2.0");
    assert!(text.contains("\nversion: 0.2.0\n"), "{text}");
    fs::write(&file, text).unwrap();
    let path = copy.path().display().to_string();
    (copy, path)
}

/// No scheduler runs, so the pod stays where the API server has judged it.
#[tokio::test]
async fn an_upgrade_leaves_alone_what_persons_and_controllers_have_set() {
    let Some(cluster) = cluster().await else { return };
    helm(&cluster, &["install", "smc", &chart("smc"), "--namespace", MESH_NAMESPACE]).await;
    let pod = || async {
        let args = ["get", "-n", MESH_NAMESPACE, "pod", "smc-controller-0"];
        let found = cluster.kubectl(&args).await.map_err(|error| error.chain())?;
        if found.success() { Ok(()) } else { Err(found.stderr) }
    };
    let waited = cluster.wait("a pod that the restricted standard admits", LIMIT, pod).await;
    waited.unwrap_or_else(|error| panic!("{}", error.chain()));

    let bundle = r#"[{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "BUNDLE"}]"#;
    // The API server takes certificates only.
    let root = fs::read(cluster.state_dir().path().join("keys/ca.crt")).unwrap();
    let bundle = bundle.replace("BUNDLE", &data_encoding::BASE64.encode(&root));
    for webhooks in
        ["mutatingwebhookconfiguration/smc-injector-smc", "validatingwebhookconfiguration/smc-validator-smc"]
    {
        let patch = ["patch", webhooks, "--field-manager=smc-controller", "--type=json", "-p", &bundle];
        let patched = cluster.kubectl(&patch).await.unwrap();
        assert!(patched.success(), "{}", patched.stderr);
    }
    let scale = ["scale", "-n", MESH_NAMESPACE, "statefulset/smc-controller", "--replicas=3"];
    assert!(cluster.kubectl(&scale).await.unwrap().success());

    let (_copy, next) = next_version();
    helm(&cluster, &["upgrade", "smc", &next, "--namespace", MESH_NAMESPACE]).await;
    let set = get(&cluster, &["-n", MESH_NAMESPACE, "statefulset", "smc-controller"]).await;
    assert_eq!(set["spec"]["replicas"], 3, "as `kubectl scale` has it");
    assert_eq!(set["spec"]["template"]["spec"]["containers"][0]["image"], "smc:0.2.0");
    for webhooks in
        ["mutatingwebhookconfiguration/smc-injector-smc", "validatingwebhookconfiguration/smc-validator-smc"]
    {
        let found = get(&cluster, &[webhooks]).await;
        assert!(found["webhooks"][0]["clientConfig"]["caBundle"].is_string(), "{webhooks} is trusted still");
    }
    let replicas = ["upgrade", "smc", &next, "--namespace", MESH_NAMESPACE, "--set", "replicas=5"];
    helm(&cluster, &replicas).await;
    let set = get(&cluster, &["-n", MESH_NAMESPACE, "statefulset", "smc-controller"]).await;
    assert_eq!(set["spec"]["replicas"], 5, "a value that changes counts");
    helm(&cluster, &["uninstall", "smc", "--namespace", MESH_NAMESPACE]).await;
    let left = [
        "get",
        "-A",
        "clusterrole,clusterrolebinding,role,service,mutatingwebhookconfiguration,\
                 validatingwebhookconfiguration",
        "-l",
        "app.kubernetes.io/part-of=smc",
        "-o",
        "name",
    ];
    let left = cluster.kubectl(&left).await.unwrap().stdout;
    let kept: Vec<_> = (0..5).map(|replica| format!("service/smc-controller-{replica}")).collect();
    assert_eq!(left.lines().collect::<Vec<_>>(), kept, "the controllers' own Services alone stay");
    helm(&cluster, &["uninstall", "smc-crds", "--namespace", "default"]).await;
    get(&cluster, &["crd", "trafficsplits.split.smi-spec.io"]).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn the_charts_own_test_finds_controllers_that_are_ready() {
    let Some(cluster) = shared::cluster().await else { return };
    mesh::install(&cluster).await;
    let tested = helm(&cluster, &["test", "smc", "--namespace", MESH_NAMESPACE, "--timeout=90s"]).await;
    assert!(tested.contains("Phase:") && tested.contains("Succeeded"), "{tested}");
}
