//! Thousands of pods at once: Deployments make them, the injector gives each a sidecar, and kwok reports them
//! as a kubelet does. Then nearly all go.
//!
//! No container runs, so this shows the controller's part alone: injection, Secrets, the mesh, and what is
//! released afterwards.

use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Client;
use kube::api::{Api, ListParams, PartialObjectMeta};
use serde_json::Value;
use smc_test_kubernetes::{Cluster, ClusterOptions, Programs, injector_webhook};
use smc_testkit::held_port::HeldPort;
use tempfile::NamedTempFile;
use tokio::time::Instant;

use crate::controller::{Controller, Process, admits, process};
use crate::shared;

/// Namespaces, the Deployments of each, and the pods of each Deployment.
const NAMESPACES: [&str; 4] = ["shop", "books", "orders", "mail"];
const DEPLOYMENTS: usize = 10;
const PODS: usize = 50;

/// The most memory of the controller, which is the goal of the issue for 10,000 pods.
const MEMORY_MIB: u64 = 300;

/// How often a step is looked at: what is counted grows with the pods, and the API server reads all of it.
const LOOK: Duration = Duration::from_secs(3);

/// How long a step may stand still. A busy API server gives reviewed pods up, and the ReplicaSet makes
/// others: a Secret whose pod never came stays for five minutes (docs/injection.md). One minute is for the
/// rest.
const PATIENCE: Duration = Duration::from_mins(6);

/// A node of kwok, on which the pods are from the beginning: there is no scheduler.
const NODE: &str = r"
apiVersion: v1
kind: Node
metadata: { name: fake, annotations: { kwok.x-k8s.io/node: fake } }
status: { allocatable: { cpu: '1000', memory: 4Ti, pods: '10000' } }
";

const NAMESPACE: &str = r"
---
apiVersion: v1
kind: Namespace
metadata: { name: TENANT, labels: { openservicemesh.io/monitored-by: smc } }
";

const DEPLOYMENT: &str = r"
---
apiVersion: v1
kind: Service
metadata: { name: STORE, namespace: TENANT }
spec: { selector: { app: STORE }, ports: [{ name: http, port: 80, targetPort: 8080 }] }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: STORE, namespace: TENANT }
spec:
  replicas: 0
  selector: { matchLabels: { app: STORE } }
  template:
    metadata: { labels: { app: STORE } }
    spec:
      nodeName: fake
      containers:
        - name: app
          image: store:1
          ports: [{ name: http, containerPort: 8080 }]
          readinessProbe: { httpGet: { port: http, path: /healthz } }
";

/// The namespaces, and their Services and Deployments, which have no pods yet.
fn objects() -> String {
    let in_namespace = |namespace: &str| {
        let deployment = |number| DEPLOYMENT.replace("STORE", &format!("store-{number}"));
        let all: String = (0..DEPLOYMENTS).map(deployment).collect();
        format!("{NAMESPACE}{all}").replace("TENANT", namespace)
    };
    NAMESPACES.map(in_namespace).concat()
}

/// The program that stands in for kubelets. It ends when this is dropped.
struct Kwok {
    _process: Process,
    log: NamedTempFile,
}

impl Kwok {
    fn start(programs: &Programs, cluster: &Cluster) -> Self {
        let log = NamedTempFile::new().unwrap();
        let kwok = process(&programs.find("kwok").unwrap())
            .arg("--kubeconfig")
            .arg(cluster.kubeconfig())
            .args(["--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--cidr=10.64.0.1/16"])
            // Without a lease the node is heard of too rarely, and then all its pods count as not ready.
            .arg("--node-lease-duration-seconds=40")
            .stdout(Stdio::null())
            .stderr(log.reopen().unwrap())
            .spawn();
        Self { _process: Process(kwok.unwrap()), log }
    }
}

/// The mesh, and what happens to it.
struct Scene {
    cluster: Cluster,
    client: Client,
    kwok: Kwok,
    controller: Controller,
}

impl Scene {
    async fn scale(&self, replicas: usize) {
        for namespace in NAMESPACES {
            let scale = ["scale", "-n", namespace, "deployment", "--all", &format!("--replicas={replicas}")];
            let scaled = self.cluster.kubectl(&scale).await.unwrap();
            assert!(scaled.success(), "{scaled:?}");
        }
    }

    /// Waits until something has become `wanted`, which it comes nearer to all the time, and returns how
    /// long that took.
    async fn becomes(&self, what: &str, wanted: usize, count: impl AsyncFn(&Self) -> usize) -> Duration {
        let start = Instant::now();
        let (mut nearest, mut since) = (usize::MAX, start);
        loop {
            let found = count(self).await;
            if found == wanted {
                return start.elapsed();
            }
            if found.abs_diff(wanted) < nearest {
                (nearest, since) = (found.abs_diff(wanted), Instant::now());
            }
            assert!(since.elapsed() < PATIENCE, "{what}: {found} of {wanted}\n{}", self.state().await);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What went wrong, for a person: the last warnings of the cluster, and the ends of the logs.
    async fn state(&self) -> String {
        let events = ["get", "events", "-A", "--field-selector=type=Warning", "--sort-by=.lastTimestamp"];
        let events =
            self.cluster.kubectl(&events).await.map_or_else(|error| error.chain(), |events| events.stdout);
        let repeated = ["\"level\":\"INFO\"", "the mesh has problems"];
        let says = |line: &&str| !repeated.iter().any(|repeated| line.contains(repeated));
        let last = |text: &str| text.lines().rev().filter(says).take(20).collect::<Vec<_>>().join("\n");
        let kwok = std::fs::read_to_string(self.kwok.log.path()).unwrap();
        format!("{}\n{}\n{}", last(&events), last(&kwok), last(&self.controller.log()))
    }

    /// Replicas that are ready, by the status of the Deployments, which are much fewer than the pods.
    async fn ready(&self) -> usize {
        let deployments: Api<Deployment> = Api::all(self.client.clone());
        let deployments = deployments.list(&ListParams::default()).await.unwrap();
        let ready = deployments.items.into_iter().filter_map(|one| one.status?.ready_replicas);
        ready.map(|ready| usize::try_from(ready).unwrap()).sum()
    }

    /// The metadata of all objects of a kind that these labels select.
    async fn metadata<K>(&self, labels: &str) -> Vec<PartialObjectMeta<K>>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug,
        K: serde::de::DeserializeOwned,
    {
        let all: Api<K> = Api::all(self.client.clone());
        all.list_metadata(&ListParams::default().labels(labels)).await.unwrap().items
    }

    /// Pods with the label of a proxy.
    async fn injected(&self) -> usize {
        self.metadata::<Pod>("app,osm-proxy-uuid").await.len()
    }

    /// Secrets of sidecars.
    async fn secrets(&self) -> Vec<PartialObjectMeta<Secret>> {
        self.metadata::<Secret>("app.kubernetes.io/managed-by=smc").await
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.controller.smc(&[arguments, &["-o", "json"]].concat()).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Endpoints of all services, as the controller has them.
    fn endpoints(&self) -> usize {
        let services = self.json(&["mesh", "services"]);
        let ports = services["services"].as_array().into_iter().flatten();
        let ports = ports.flat_map(|service| service["ports"].as_array().into_iter().flatten());
        ports.map(|port| port["endpoints"].as_array().map_or(0, Vec::len)).sum()
    }

    /// Certificates that no proxy has used yet: those of all sidecars, since none runs.
    fn certificates(&self) -> usize {
        let status = self.json(&["ca", "status"]);
        usize::try_from(status["proxy_certificates_unclaimed"].as_u64().unwrap()).unwrap()
    }
}

#[tokio::test]
async fn thousands_of_pods_get_a_sidecar_and_leave_nothing_when_they_go() {
    let Some(programs) = shared::programs() else { return };
    let cluster = Cluster::start(ClusterOptions::api_only(programs.clone())).await.unwrap();
    let port = HeldPort::loopback();
    let webhooks = port.address;
    cluster.apply(&format!("{NODE}{}", objects())).await.unwrap();
    cluster.apply(&injector_webhook(webhooks)).await.unwrap();
    let kwok = Kwok::start(&programs, &cluster);
    // Shorter than a busy API server takes from the review of a pod to the pod: it is for pods that were
    // there.
    let controller = Controller::with(&["--release-grace", "3s"], &cluster, webhooks);
    // A Deployment whose pods are refused waits longer and longer.
    admits(&cluster).await;
    let client = cluster.client().await.unwrap();
    let scene = Scene { cluster, client, kwok, controller };
    let deployments = NAMESPACES.len() * DEPLOYMENTS;

    let all = deployments * PODS;
    scene.scale(PODS).await;
    let ready = scene.becomes("ready replicas", all, Scene::ready).await;
    assert_eq!(scene.injected().await, all, "each pod has a sidecar");
    let known = scene.becomes("endpoints", all, async |scene| scene.endpoints()).await;
    let single = scene.becomes("Secrets", all, async |scene| scene.secrets().await.len()).await;
    let owner = |secret: &PartialObjectMeta<Secret>| {
        secret.metadata.owner_references.iter().flatten().all(|owner| owner.kind == "ReplicaSet")
    };
    assert!(scene.secrets().await.iter().all(owner), "Kubernetes deletes them where no controller runs");
    scene.becomes("certificates", all, async |scene| scene.certificates()).await;
    let memory = scene.controller.memory_mib();
    assert!(memory <= MEMORY_MIB, "{memory} MiB");

    // One pod of each stays: a mesh that has lost its last pod releases no certificate.
    scene.scale(1).await;
    let gone = scene.becomes("endpoints", deployments, async |scene| scene.endpoints()).await;
    let deleted = scene.becomes("Secrets", deployments, async |scene| scene.secrets().await.len()).await;
    let released = scene.becomes("certificates", deployments, async |scene| scene.certificates()).await;
    eprintln!(
        "{all} pods: ready after {ready:?}, endpoints {known:?} and one Secret each \
         {single:?} later, {memory} MiB; gone after {gone:?}, Secrets {deleted:?} and certificates {released:?} later"
    );
    scene.cluster.stop().await.unwrap();
}
