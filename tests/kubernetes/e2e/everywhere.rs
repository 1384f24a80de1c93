//! The status of an object over three replicas: it is in effect everywhere, or the condition names the proxy
//! or the replica that stands against it.
//!
//! The controllers are processes of the host, and the proxies are clients of one of them.

use std::path::PathBuf;
use std::time::Duration;

use smc_proto::admin::v1::{BootstrapRequest, GetClusterStatusRequest};
use smc_server::admin::client::{self, Client};
use smc_test_kubernetes::{Cluster, ClusterOptions, beside};
use smc_testkit::ads::{Credentials, DeltaStream, ack, nack, subscribe};
use smc_testkit::held_port::HeldPort;
use smc_testkit::shop;
use smc_xds::resource::ResourceType;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::controller::process;
use crate::programmed::{PATIENCE, wait_programmed};
use crate::shared;

const REPLICAS: usize = 3;

const OBJECTS: &str = r"
apiVersion: v1
kind: Namespace
metadata: { name: smc-system }
---
apiVersion: v1
kind: Namespace
metadata: { name: shop, labels: { openservicemesh.io/monitored-by: smc } }
---
apiVersion: v1
kind: ServiceAccount
metadata: { name: buyer, namespace: shop }
---
apiVersion: v1
kind: Service
metadata: { name: store, namespace: shop }
spec: { selector: { app: store }, ports: [{ name: http, port: 80 }] }
---
apiVersion: v1
kind: Service
metadata: { name: store-v1, namespace: shop }
spec: { selector: { app: store }, ports: [{ name: http, port: 80 }] }
---
apiVersion: v1
kind: Service
metadata: { name: store-v2, namespace: shop }
spec: { selector: { app: store }, ports: [{ name: http, port: 80 }] }
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: { name: all, namespace: shop }
spec: { matches: [{ name: all }] }
---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: { name: buyers, namespace: shop }
spec:
  destination: { kind: ServiceAccount, name: store, namespace: shop }
  sources: [{ kind: ServiceAccount, name: buyer, namespace: shop }]
  rules: [{ kind: HTTPRouteGroup, name: all }]
";

const PODS: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: { name: store, namespace: shop }
---
apiVersion: v1
kind: Pod
metadata: { name: buyer, namespace: shop, labels: { osm-proxy-uuid: 0d2f5a52-8f0e-4f3e-9c52-0a3a1b1c2d3e } }
spec: { serviceAccountName: buyer, containers: [{ name: app, image: app }] }
---
apiVersion: v1
kind: Pod
metadata:
  name: store
  namespace: shop
  labels: { app: store, osm-proxy-uuid: 0d2f5a52-8f0e-4f3e-9c52-0a3a1b1c2d3f }
spec: { serviceAccountName: store, containers: [{ name: app, image: app }] }
";

fn split(weight: u32) -> String {
    format!(
        "{{apiVersion: split.smi-spec.io/v1alpha4, kind: TrafficSplit, metadata: {{name: canary, \
         namespace: shop}}, spec: {{service: store, backends: [{{service: store-v1, weight: {weight}}}, \
         {{service: store-v2, weight: 50}}]}}}}"
    )
}

/// Three controllers of one group, over one API server.
struct Controllers {
    running: Vec<Option<Child>>,
    directory: TempDir,
    /// Where the replicas speak with one another, also while one is away.
    _ports: Vec<HeldPort>,
}

impl Controllers {
    fn start(cluster: &Cluster) -> Self {
        let directory = tempfile::tempdir().unwrap();
        shop::key_file(&directory.path().join("kek"), [7; 32]);
        let ports: Vec<HeldPort> = (0..REPLICAS).map(|_| HeldPort::loopback()).collect();
        let raft: Vec<String> = ports.iter().map(|port| port.address.to_string()).collect();
        let mut controllers = Self { running: Vec::new(), directory, _ports: ports };
        for replica in 0..REPLICAS {
            let at = |name: &str| controllers.at(replica, name);
            std::fs::create_dir(at("")).unwrap();
            let log = std::fs::File::create(at("log")).unwrap();
            let mut command = Command::from(process(&beside("smc").unwrap()));
            command
                .args(["controller", "--kubernetes", "--kubeconfig"])
                .arg(cluster.kubeconfig())
                .arg("--data-dir")
                .arg(at("data"))
                .arg("--admin-socket")
                .arg(at("admin.sock"))
                .arg("--kek-file")
                .arg(controllers.directory.path().join("kek"))
                .args(["--xds-listen", "127.0.0.1:0", "--mesh-namespace", "smc-system"])
                .args(["--webhook-listen", "127.0.0.1:0", "--webhook-address", "127.0.0.1:9443"])
                .args(["--init-image", "smc:test", "--envoy-image", "envoy:test"])
                .args(["--replica-id", &replica.to_string(), "--raft-listen", &raft[replica]]);
            for (id, address) in raft.iter().enumerate() {
                command.arg(format!("--initial-member={id}={address}"));
            }
            let child = command.stdout(log.try_clone().unwrap()).stderr(log);
            controllers.running.push(Some(child.kill_on_drop(true).spawn().unwrap()));
        }
        controllers
    }

    fn at(&self, replica: usize, name: &str) -> PathBuf {
        self.directory.path().join(format!("replica-{replica}")).join(name)
    }

    async fn client(&self, replica: usize) -> Client {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match client::connect(&self.at(replica, "admin.sock")).await {
                Ok(client) => return client,
                Err(error) if Instant::now() > deadline => panic!("{error}\n{}", self.log(replica)),
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn log(&self, replica: usize) -> String {
        std::fs::read_to_string(self.at(replica, "log")).unwrap_or_default()
    }

    /// Two replicas that do not lead.
    async fn followers(&self) -> [usize; 2] {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.client(0).await.get_cluster_status(GetClusterStatusRequest {}).await;
            if let Ok(Some(leader)) = status.map(|status| status.into_inner().leader) {
                let mut others = (0..REPLICAS).filter(|&replica| replica as u64 != leader);
                return [others.next().unwrap(), others.next().unwrap()];
            }
            assert!(Instant::now() < deadline, "no leader\n{}", self.log(0));
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The bootstrap of the pod `shop/buyer`, from this replica.
    async fn bootstrap(&self, replica: usize) -> Credentials {
        let deadline = Instant::now() + PATIENCE;
        let mut client = self.client(replica).await;
        loop {
            let request =
                BootstrapRequest { workload: "shop/buyer".to_owned(), ..BootstrapRequest::default() };
            match client.bootstrap(request).await {
                Ok(answer) => return Credentials::read(&answer.into_inner().bootstrap).unwrap(),
                Err(error) if Instant::now() > deadline => panic!("{error}\n{}", self.log(replica)),
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

/// Waits until the split is programmed like this, of its present generation; returns the message.
async fn programmed(cluster: &Cluster, status: &str, reason: &str) -> String {
    wait_programmed(cluster, ["trafficsplit", "shop", "canary"], status, reason).await
}

async fn apply(cluster: &Cluster, manifest: &str) {
    cluster.apply(manifest).await.unwrap_or_else(|error| panic!("{}", error.chain()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_says_what_proxies_of_all_replicas_have_and_reject() {
    let Some(programs) = shared::api_programs() else { return };
    let cluster = Cluster::start(ClusterOptions::api_only(programs)).await.unwrap();
    let definitions = std::path::absolute("../../charts/smc-crds/templates").unwrap().display().to_string();
    let applied = cluster.kubectl(&["apply", "--server-side", "-f", &definitions]).await.unwrap();
    assert!(applied.success(), "{}", applied.stderr);
    let established = ["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"];
    assert!(cluster.kubectl(&established).await.unwrap().success());
    apply(&cluster, OBJECTS).await;
    apply(&cluster, PODS).await;
    for (pod, ip) in [("buyer", "10.0.0.1"), ("store", "10.0.0.2")] {
        let status = format!(
            "{{\"status\": {{\"phase\": \"Running\", \"podIP\": \"{ip}\", \"podIPs\": [{{\"ip\": \"{ip}\"}}], \
             \"conditions\": [{{\"type\": \"Ready\", \"status\": \"True\"}}]}}}}"
        );
        let patch =
            ["patch", "pod", "-n", "shop", pod, "--subresource=status", "--type=merge", "-p", &status];
        let patched = cluster.kubectl(&patch).await.unwrap();
        assert!(patched.success(), "{}", patched.stderr);
    }
    let mut controllers = Controllers::start(&cluster);
    apply(&cluster, &split(10)).await;
    let message = programmed(&cluster, "True", "Programmed").await;
    assert!(message.contains("every replica serves it"), "{message}");

    // A proxy of a replica that does not lead takes one set of routes, and then says nothing.
    let [replica, other] = controllers.followers().await;
    let own = controllers.bootstrap(replica).await;
    let channel = own.connect(&own.controllers[0]).await.unwrap();
    let routes = subscribe(&own, ResourceType::Route, &["outbound_shop/store_80"]);
    let mut stream = DeltaStream::open(channel, [routes]).await.unwrap();
    let first = timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(first.resources.len(), 1, "{first:?}");
    stream.send(ack(&first)).await.unwrap();
    apply(&cluster, &split(20)).await;
    let changed = timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
    let message = programmed(&cluster, "Unknown", "Waiting").await;
    assert!(message.contains("Pod shop/buyer"), "{message}");
    assert!(message.contains(&format!("smc-controller-{replica}")), "{message}");

    stream.send(nack(&changed, "weights of 20 are odd")).await.unwrap();
    let message = programmed(&cluster, "False", "Rejected").await;
    assert!(message.contains("the proxy of Pod shop/buyer rejected"), "{message}");
    assert!(message.contains("weights of 20 are odd"), "{message}");
    let shown = cluster.kubectl(&["get", "trafficsplit", "-n", "shop", "canary"]).await.unwrap().stdout;
    assert!(shown.contains("Rejected"), "{shown}");

    // Without the proxy, nothing stands against it.
    drop(stream);
    programmed(&cluster, "True", "Programmed").await;

    // What a replica that is gone serves is not known, of a new generation.
    controllers.running[other].take().unwrap().kill().await.unwrap();
    apply(&cluster, &split(30)).await;
    let message = programmed(&cluster, "Unknown", "Waiting").await;
    assert!(message.contains(&format!("smc-controller-{other}")), "{message}");
    drop(controllers);
    cluster.stop().await.unwrap();
}
