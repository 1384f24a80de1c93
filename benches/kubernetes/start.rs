//! The start of a controller against a mesh of few and of many namespaces: until it is ready, until it knows
//! everything, and what that costs the API server and itself.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value, json};
use smc_benches::controller::{Controller, PATIENCE};
use smc_benches::mesh::Mesh;
use smc_benches::{Result, percentile_ms};
use smc_proto::admin::v1::{ListProxiesRequest, ListServicesRequest};
use smc_test_kubernetes::{Cluster, ClusterOptions, Programs, create_all};
use smc_testkit::held_port::HeldPort;
use smc_testkit::relay::Relay;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::{api, sync};

/// Namespaces of the two meshes, which are the same otherwise.
const NAMESPACES: [usize; 2] = [10, 200];

/// The user of all requests, who the API server records.
const USER: &str = "admin";

/// How long a controller is left alone once it knows everything, for the requests that it makes late: the
/// leader begins to write status.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// Measures so many starts against each of the meshes. Each has an empty disk.
pub(crate) async fn measure(programs: &Programs, mesh: Mesh, starts: usize) -> Result<Value> {
    let mut report = Map::new();
    for namespaces in NAMESPACES {
        let mesh = Mesh { namespaces, ..mesh };
        let scene = Scene::begin(programs, mesh).await?;
        let mut all = Vec::new();
        for _ in 0..starts {
            all.push(scene.start().await?);
        }
        scene.cluster.stop().await.map_err(|error| error.chain())?;
        report.extend(
            figures(&all).into_iter().map(|(name, figure)| (format!("start_{namespaces}ns_{name}"), figure)),
        );
    }
    report.insert("start_services".to_owned(), mesh.services.into());
    report.insert("start_pods".to_owned(), mesh.proxies.into());
    Ok(Value::Object(report))
}

/// An API server with a mesh, and the way to it, where connections are counted.
struct Scene {
    cluster: Cluster,
    mesh: Mesh,
    relay: Relay,
    directory: TempDir,
}

struct Start {
    /// Until the controller said that it was ready.
    ready: Duration,
    /// Until it was ready and knew all pods and services.
    whole: Duration,
    /// The pods and the services that it knew when it was ready.
    known: usize,
    /// Requests until then, and those two seconds later.
    requests: usize,
    requests_later: usize,
    connections: u64,
    cpu: Duration,
}

impl Scene {
    async fn begin(programs: &Programs, mesh: Mesh) -> Result<Self> {
        let audited = vec![USER.to_owned()];
        let options = ClusterOptions { audited, ..ClusterOptions::api_only(programs.clone()) };
        let cluster = api::api_server_with(options).await?;
        let client = cluster.client().await.map_err(|error| error.chain())?;
        for objects in api::objects(mesh)? {
            create_all(&client, objects).await.map_err(|error| error.chain())?;
        }
        sync::slices(&cluster, mesh.services).await?;
        let relay = Relay::start(&cluster.api_address().to_string()).await?;
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        cluster.write_kubeconfig(&kubeconfig, relay.address.port()).map_err(|error| error.chain())?;
        Ok(Self { cluster, mesh, relay, directory })
    }

    async fn start(&self) -> Result<Start> {
        let (asked, connected) = (self.requests()?, self.relay.accepted());
        let (directory, port) = (tempfile::tempdir()?, HeldPort::loopback());
        let metrics = port.address;
        let flags = [format!("--metrics-listen={metrics}")];
        let begun = Instant::now();
        let controller =
            api::controller(&self.directory.path().join("kubeconfig"), directory.path(), &flags)?;
        api::ready(metrics).await?;
        let ready = begun.elapsed();
        let mut known = known(&controller).await?;
        let known_at_ready = known;
        while known < self.mesh.proxies + self.mesh.services {
            if begun.elapsed() > PATIENCE {
                return Err(format!("the controller knows {known} pods and services alone").into());
            }
            sleep(Duration::from_millis(20)).await;
            known = self::known(&controller).await?;
        }
        let (whole, cpu) = (begun.elapsed(), controller.cpu()?);
        let requests = self.requests()? - asked;
        sleep(AFTERWARDS).await;
        let requests_later = self.requests()? - asked;
        let connections = self.relay.accepted() - connected;
        controller.kill().await?;
        Ok(Start {
            ready,
            whole: if known_at_ready == known { ready } else { whole },
            known: known_at_ready,
            requests,
            requests_later,
            connections,
            cpu,
        })
    }

    /// How many requests the API server has recorded that read.
    fn requests(&self) -> Result<usize> {
        let events = self.cluster.audit().map_err(|error| error.chain())?;
        let reads =
            events.iter().filter(|event| matches!(event["verb"].as_str(), Some("list" | "watch" | "get")));
        // A watch is recorded when it begins and when it ends, which may be in the next start.
        let known: BTreeSet<_> = reads.filter_map(|event| event["auditID"].as_str()).collect();
        Ok(known.len())
    }
}

/// How many pods with a proxy, and services, a controller knows.
async fn known(controller: &Controller) -> Result<usize> {
    let mut client = controller.client().await?;
    let proxies = client.list_proxies(ListProxiesRequest {}).await?.into_inner().proxies;
    let services = client.list_services(ListServicesRequest {}).await?.into_inner().services;
    Ok(proxies.iter().filter(|proxy| proxy.discovered).count() + services.len())
}

/// The figures of all starts.
fn figures(starts: &[Start]) -> Vec<(&'static str, Value)> {
    let times = |of: fn(&Start) -> Duration| starts.iter().map(of).collect::<Vec<_>>();
    let mut requests: Vec<usize> = starts.iter().map(|start| start.requests).collect();
    requests.sort_unstable();
    let most = |of: fn(&Start) -> u64| json!(starts.iter().map(of).max());
    let (whole, ready, cpu) =
        (times(|start| start.whole), times(|start| start.ready), times(|start| start.cpu));
    vec![
        ("ms", json!(percentile_ms(&whole, 50))),
        ("min_ms", json!(percentile_ms(&whole, 0))),
        ("max_ms", json!(percentile_ms(&whole, 100))),
        ("ready_ms", json!(percentile_ms(&ready, 50))),
        ("known_at_ready_min", json!(starts.iter().map(|start| start.known).min())),
        ("requests", json!(requests.get(requests.len() / 2))),
        ("requests_max", json!(requests.last())),
        ("requests_later", most(|start| start.requests_later as u64)),
        ("connections", most(|start| start.connections)),
        ("cpu_ms", json!(percentile_ms(&cpu, 50))),
    ]
}
