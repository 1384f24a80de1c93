//! A replica in a temporary directory, and a client that speaks delta ADS to it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use serde_json::Value;
use smc_mesh::bootstrap::ControllerAddress;
use smc_mesh::ids::TrustDomain;
use smc_mesh::resource::ResourceType;
use smc_proto::admin::v1 as pb;
use smc_raft::LocalLedger;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Streaming};

use crate::admin::client;
use crate::ca::seal::LocalKey;
use crate::config::{ANSWER_LIMIT, Config, RELEASE_GRACE};
use crate::env::Env;
use crate::server::{Server, ServerError, Storage};
use crate::telemetry::Metrics;

const MESH: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {openservicemesh.io/monitored-by: osm}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: buyer, namespace: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: store, namespace: shop}
---
apiVersion: v1
kind: Service
metadata: {name: store, namespace: shop}
spec: {clusterIP: 10.96.0.10, selector: {app: store}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: buyer, namespace: shop, labels: {app: buyer}}
spec: {serviceAccountName: buyer, containers: [{name: app}]}
status: {podIPs: [{ip: 10.0.0.3}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: config.openservicemesh.io/v1alpha2
kind: MeshConfig
metadata: {name: osm-mesh-config, namespace: osm-system}
spec: {traffic: {enablePermissiveTrafficPolicyMode: true}}
"#;

const STORE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: store, namespace: shop, labels: {app: store}}
spec: {serviceAccountName: store, containers: [{name: app}]}
status: {podIPs: [{ip: 10.0.0.2}], conditions: [{type: Ready, status: "True"}]}
"#;

const ANOTHER: &str = r"
apiVersion: v1
kind: Service
metadata: {name: another, namespace: shop}
spec: {clusterIP: 10.96.0.11, selector: {app: store}, ports: [{name: tcp, port: 90, targetPort: 9090}]}
";

const THIEF: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: evil, labels: {openservicemesh.io/monitored-by: osm}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: thief, namespace: evil}
---
apiVersion: v1
kind: Pod
metadata: {name: thief, namespace: evil, labels: {osm-proxy-uuid: UUID}}
spec: {serviceAccountName: thief, containers: [{name: app}]}
status: {podIPs: [{ip: 10.0.0.66}], conditions: [{type: Ready, status: "True"}]}
"#;

/// What a test may want shorter than usual.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// How long proxies are given to answer.
    pub(super) answer: Duration,
    /// How long a pod must be gone before its proxy is released.
    pub(super) release_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { answer: ANSWER_LIMIT, release_grace: RELEASE_GRACE }
    }
}

/// A running replica.
pub(super) struct Replica {
    directory: TempDir,
    limits: Limits,
    shutdown: CancellationToken,
    ended: Option<JoinHandle<Result<(), ServerError>>>,
    pub(super) xds: SocketAddr,
    pub(super) metrics: Metrics,
}

/// What a bootstrap gives a proxy.
#[derive(Clone)]
pub(super) struct Credentials {
    node: String,
    pub(super) certificate: Option<(String, String)>,
    pub(super) roots: String,
}

impl Credentials {
    pub(super) fn node(&self) -> Node {
        Node { id: self.node.clone(), ..Node::default() }
    }
}

impl Replica {
    pub(super) async fn start() -> Self {
        Self::start_with(Limits::default()).await
    }

    pub(super) async fn start_with(limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mesh = directory.path().join("mesh");
        std::fs::create_dir(&mesh).unwrap();
        std::fs::write(mesh.join("mesh.yaml"), MESH).unwrap();
        std::fs::write(mesh.join("store.yaml"), STORE).unwrap();
        let (shutdown, ended, xds, metrics) = run(directory.path(), limits).await;
        Self { directory, limits, shutdown, ended: Some(ended), xds, metrics }
    }

    /// Ends the replica and starts it again on the same state.
    pub(super) async fn restart(&mut self) {
        self.shutdown.cancel();
        self.ended.take().unwrap().await.unwrap().unwrap();
        let (shutdown, ended, xds, metrics) = run(self.directory.path(), self.limits).await;
        (self.shutdown, self.ended, self.xds, self.metrics) = (shutdown, Some(ended), xds, metrics);
    }

    /// Ends the replica, which must take less than ten seconds.
    pub(super) async fn stop(mut self) {
        self.shutdown.cancel();
        let ended = self.ended.take().unwrap();
        tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap().unwrap().unwrap();
        assert!(!self.directory.path().join("admin.sock").exists());
    }

    pub(super) async fn admin(&self) -> client::Client {
        client::connect(&self.directory.path().join("admin.sock")).await.unwrap()
    }

    /// A bootstrap for a pod, as soon as the pod is known.
    pub(super) async fn bootstrap(&self, pod: &str) -> Credentials {
        let mut admin = self.admin().await;
        let request = pb::BootstrapRequest { workload: pod.to_owned(), ..pb::BootstrapRequest::default() };
        let text = loop {
            match admin.bootstrap(request.clone()).await {
                Ok(response) => break response.into_inner().bootstrap,
                Err(status) if status.code() == Code::NotFound => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(status) => panic!("{status}"),
            }
        };
        let bootstrap: Value = serde_json::from_str(&text).unwrap();
        let tls = &bootstrap["static_resources"]["clusters"][0]["transport_socket"]["typed_config"]["common_tls_context"];
        let inline = |value: &Value| value["inline_string"].as_str().unwrap().to_owned();
        let own = &tls["tls_certificates"][0];
        Credentials {
            node: bootstrap["node"]["id"].as_str().unwrap().to_owned(),
            certificate: Some((inline(&own["certificate_chain"]), inline(&own["private_key"]))),
            roots: inline(&tls["validation_context"]["trusted_ca"]),
        }
    }

    /// Declares a pod of another namespace that carries the UUID of `victim`'s sidecar.
    pub(super) fn copy_the_uuid_of(&self, victim: &Credentials) {
        let (uuid, _) = victim.node.split_once('.').unwrap();
        let text = THIEF.replace("UUID", uuid);
        std::fs::write(self.directory.path().join("mesh/thief.yaml"), text).unwrap();
    }

    pub(super) fn declare_another_service(&self) {
        std::fs::write(self.directory.path().join("mesh/another.yaml"), ANOTHER).unwrap();
    }

    pub(super) fn remove_the_store(&self) {
        std::fs::remove_file(self.directory.path().join("mesh/store.yaml")).unwrap();
    }
}

type Running = (CancellationToken, JoinHandle<Result<(), ServerError>>, SocketAddr, Metrics);

/// What a replica in this directory is started with.
pub(super) fn parts(directory: &Path, limits: Limits) -> (Config, Env, Storage) {
    let Limits { answer: answer_limit, release_grace } = limits;
    let env = Env::system();
    let keys = LocalKey::load_or_create(&directory.join("kek"), true, &env).unwrap();
    let ledger = LocalLedger::open(&directory.join("ledger")).unwrap();
    let failure = ledger.failure();
    let storage = Storage { ledger: Arc::new(ledger), failure, keys: Arc::new(keys) };
    let config = Config {
        mesh_dir: directory.join("mesh"),
        xds_listen: "127.0.0.1:0".parse().unwrap(),
        xds_address: None::<ControllerAddress>,
        admin_socket: directory.join("admin.sock"),
        metrics_listen: None,
        trust_domain: TrustDomain::new("cluster.local").unwrap(),
        service_cert_lifetime: Duration::from_hours(1),
        release_grace,
        answer_limit,
    };
    (config, env, storage)
}

async fn run(directory: &Path, limits: Limits) -> Running {
    let (config, env, storage) = parts(directory, limits);
    let shutdown = CancellationToken::new();
    let handle = Server::start(config, env, storage, shutdown.clone()).await.unwrap();
    let (xds, metrics) = (handle.addresses().xds, handle.metrics().clone());
    (shutdown, tokio::spawn(handle.join()), xds, metrics)
}

/// A delta ADS stream.
pub(super) struct Client {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    pub(super) responses: Streaming<DeltaDiscoveryResponse>,
}

impl Client {
    pub(super) async fn channel(
        replica: &Replica,
        credentials: &Credentials,
    ) -> Result<Channel, tonic::transport::Error> {
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&credentials.roots))
            .domain_name(smc_mesh::pki::CONTROLLER_IDENTITY);
        if let Some((chain, key)) = &credentials.certificate {
            tls = tls.identity(Identity::from_pem(chain, key));
        }
        let uri = format!("https://{}", replica.xds);
        Endpoint::from_shared(uri).unwrap().tls_config(tls)?.connect().await
    }

    /// Opens a stream. With TLS 1.3 a client learns that its certificate was refused only when it first reads,
    /// thus at the latest with the stream's headers.
    pub(super) async fn try_connect(
        replica: &Replica,
        credentials: &Credentials,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let channel = Self::channel(replica, credentials).await?;
        let (requests, receiver) = mpsc::channel(16);
        let mut ads = AggregatedDiscoveryServiceClient::new(channel);
        let responses = ads.delta_aggregated_resources(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(Self { requests, responses })
    }

    pub(super) async fn connect(replica: &Replica, credentials: &Credentials) -> Self {
        Self::try_connect(replica, credentials).await.unwrap()
    }

    pub(super) async fn send(&self, request: DeltaDiscoveryRequest) {
        self.requests.send(request).await.unwrap();
    }

    pub(super) async fn receive(&mut self) -> DeltaDiscoveryResponse {
        let received = tokio::time::timeout(Duration::from_secs(10), self.responses.message()).await;
        received.expect("an answer in time").unwrap().expect("an open stream")
    }

    /// Reads on to the stream's end, and says how it ended.
    pub(super) async fn ended(&mut self) -> Code {
        let end = async {
            loop {
                match self.responses.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return Code::Ok,
                    Err(status) => return status.code(),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), end).await.expect("an end in time")
    }
}

/// The first request for a type: everything, if the type has that.
pub(super) fn subscribe(credentials: &Credentials, kind: ResourceType) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: Some(credentials.node()),
        type_url: kind.url().to_owned(),
        ..DeltaDiscoveryRequest::default()
    }
}

/// The acknowledgement of a response.
pub(super) fn ack(response: &DeltaDiscoveryResponse) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: response.type_url.clone(),
        response_nonce: response.nonce.clone(),
        ..DeltaDiscoveryRequest::default()
    }
}
