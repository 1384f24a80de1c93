//! The webhooks of a whole replica over real sockets, before a stand-in for the API.

mod api;
mod statuses;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use smc_issuing::tls::Clients;
use smc_kubernetes::custom_objects::CustomObjects;
use smc_kubernetes::replica::{Webhooks, start};
use smc_kubernetes::webhook::injector::SidecarImages;
use smc_proto::admin::v1 as pb;
use smc_server::admin::Administration;
use smc_server::metrics::Metrics;
use smc_server::{Server, ServerError};
use smc_testkit::ads::Credentials;
use smc_types::ids::MeshName;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::replica::{Limits, PATIENCE, declared, parts};
use api::Api;

/// A replica with webhooks.
struct Served {
    address: SocketAddr,
    api: Api,
    trust: Arc<ClientConfig>,
    administration: Administration,
    metrics: Metrics,
    shutdown: CancellationToken,
    ended: JoinHandle<Result<(), ServerError>>,
    _directory: TempDir,
}

impl Served {
    async fn start() -> Self {
        Self::with(watch::channel(CustomObjects::new()).1).await
    }

    /// Starts a replica that is to write the status of these objects.
    async fn with(custom: watch::Receiver<CustomObjects>) -> Self {
        let directory = declared();
        let (config, env, storage) = parts(directory.path(), Limits::default()).await;
        let api = Api::default();
        let (envoy, init, pull_secrets) = ("envoy:1".to_owned(), "smc:1".to_owned(), Vec::new());
        let images = SidecarImages { envoy, init, pull_secrets };
        let webhooks = Webhooks {
            client: api.client(),
            listen: "127.0.0.1:0".parse().unwrap(),
            address: None,
            clients: Clients::All,
            mesh: MeshName::default(),
            namespace: config.mesh_namespace.clone(),
            images,
            custom,
        };
        let group = Arc::clone(&storage.group);
        let shutdown = CancellationToken::new();
        let mut opened = Server::open(config, env, storage, shutdown.clone()).await.unwrap();
        let address = start(webhooks, opened.parts(), opened.tasks()).await.unwrap();
        let handle = opened.announce(None).await.unwrap();
        let (administration, metrics) = (handle.administration(), handle.metrics().clone());
        let ended = tokio::spawn(async move {
            let ended = handle.join().await;
            group.stop().await;
            ended
        });
        let bundle = tokio::time::timeout(PATIENCE, api.trusted()).await.unwrap();
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(&bundle) {
            roots.add(root.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let trust =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let trust = Arc::new(trust.with_root_certificates(roots).with_no_client_auth());
        Self { address, api, trust, administration, metrics, shutdown, ended, _directory: directory }
    }

    /// Sends one request over a connection of its own.
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Vec<u8>), hyper::Error> {
        let socket = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("smc-webhook.smc-system.svc").unwrap();
        let stream = TlsConnector::from(Arc::clone(&self.trust)).connect(name, socket).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes().to_vec();
        drop(sender);
        // How the connection ends says nothing about the answer.
        let _ = connection.await.unwrap();
        Ok((status, body))
    }

    async fn post(&self, path: &str, body: impl Into<Bytes>) -> (StatusCode, Vec<u8>) {
        let request = Request::post(path).header("host", "smc-webhook").body(Full::new(body.into()));
        let sent = self.send(request.unwrap()).await;
        sent.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The response to a review, once the replica has read its mesh.
    async fn review(&self, request: Value) -> Value {
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        loop {
            let (status, body) = self.post("/mutate", review.to_string()).await;
            assert_eq!(status, StatusCode::OK);
            let mut answer: Value = serde_json::from_slice(&body).unwrap();
            let response = answer["response"].take();
            assert_eq!(response["uid"], request["uid"]);
            if !response["status"]["message"].as_str().unwrap_or_default().contains("not read the mesh") {
                return response;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(10), self.ended).await.unwrap().unwrap().unwrap();
    }
}

/// The question about a new Pod.
fn admission(namespace: &str, pod: &Value) -> Value {
    json!({"uid": "705ab4f5", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE",
        "namespace": namespace, "object": pod})
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "store-"},
        "spec": {"serviceAccountName": "store", "containers": [{"name": "app", "image": "app"}]}})
}

/// The Pod that the response makes of it.
fn patched(pod: &Value, response: &Value) -> Value {
    assert_eq!(response["allowed"], true, "{response}");
    let patch = BASE64.decode(response["patch"].as_str().unwrap().as_bytes()).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &patch).unwrap();
    patched
}

#[tokio::test]
async fn a_pod_gets_a_sidecar_whose_certificate_and_secret_exist() {
    let mut served = Served::start().await;
    let response = served.review(admission("shop", &pod())).await;
    let injected = patched(&pod(), &response);
    let uuid = injected["metadata"]["labels"]["osm-proxy-uuid"].as_str().unwrap().to_owned();

    let secrets = served.api.made(&Method::POST, "/api/v1/namespaces/shop/secrets");
    let [secret] = secrets.as_slice() else { panic!("{secrets:?}") };
    assert_eq!(secret.body["metadata"]["name"], format!("smc-bootstrap-{uuid}"));
    assert_eq!(secret.body["metadata"]["labels"]["osm-proxy-uuid"], uuid);
    let bootstrap =
        BASE64.decode(secret.body["data"]["bootstrap.json"].as_str().unwrap().as_bytes()).unwrap();
    let credentials = Credentials::read(std::str::from_utf8(&bootstrap).unwrap()).unwrap();
    assert_eq!(credentials.node, format!("{uuid}.shop"));

    let request = pb::ListProxiesRequest {};
    let proxies = served.administration.list_proxies(request).await.unwrap().into_inner().proxies;
    let recorded = proxies.iter().find(|proxy| proxy.uuid == uuid).unwrap();
    assert_eq!(recorded.certificates.len(), 1);

    // The answer itself carries no secret.
    let patch = BASE64.decode(response["patch"].as_str().unwrap().as_bytes()).unwrap();
    assert!(!String::from_utf8_lossy(&patch).contains("PRIVATE KEY"));

    // Asked once more about the same Pod, the injector makes nothing new; about a copy of another one it
    // does.
    let again = served.review(admission("shop", &injected)).await;
    assert_eq!((&again["allowed"], &again["patch"]), (&json!(true), &Value::Null));
    let mut copy = injected.clone();
    let other = "6d0e1a52-7c2b-4c57-9b2b-0b3f6f1f1a01";
    copy["metadata"]["labels"]["osm-proxy-uuid"] = json!(other);
    let copied = patched(&copy, &served.review(admission("shop", &copy)).await);
    assert_ne!(copied["metadata"]["labels"]["osm-proxy-uuid"], other);
    assert_eq!(served.api.made(&Method::POST, "/shop/secrets").len(), 2);
    served.stop().await;
}

#[tokio::test]
async fn what_gets_no_sidecar_has_no_side_effect() {
    let served = Served::start().await;
    let with = |change: fn(&mut Value)| {
        let mut request = admission("shop", &pod());
        change(&mut request);
        request
    };
    for (sentence, request, allowed, patch) in [
        ("a dry run", with(|request| request["dryRun"] = json!(true)), true, true),
        ("another namespace", with(|request| request["namespace"] = json!("elsewhere")), true, false),
        ("a name that is none", with(|request| request["namespace"] = json!("a/b")), true, false),
        ("an update", with(|request| request["operation"] = json!("UPDATE")), true, false),
        ("a subresource", with(|request| request["subResource"] = json!("binding")), true, false),
        ("another kind", with(|request| request["kind"]["kind"] = json!("Service")), true, false),
        ("the machine's network", with(|r| r["object"]["spec"]["hostNetwork"] = json!(true)), true, false),
        ("no containers", with(|request| request["object"] = json!({"spec": []})), false, false),
        ("no object", with(|request| request["object"] = Value::Null), false, false),
        ("a bad account", with(|r| r["object"]["spec"]["serviceAccountName"] = json!("A_")), false, false),
    ] {
        let response = served.review(request).await;
        assert_eq!(response["allowed"], allowed, "{sentence}: {response}");
        assert_eq!(response["patch"].is_string(), patch, "{sentence}: {response}");
    }
    assert!(served.api.made(&Method::POST, "/shop/secrets").is_empty());
    let late = served.review(admission("late", &pod())).await;
    assert_eq!(patched(&pod(), &late)["spec"]["initContainers"][1]["name"], "envoy", "the API knew it first");
    served.stop().await;
}

#[tokio::test]
async fn a_secret_that_cannot_be_written_refuses_the_pod_and_says_why() {
    let served = Served::start().await;
    served.review(admission("elsewhere", &pod())).await;
    served.api.fail_next_secret(403);
    let response = served.review(admission("shop", &pod())).await;
    assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(503)));
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.contains("Secret shop/smc-bootstrap-"), "{message}");
    assert_eq!(served.review(admission("shop", &pod())).await["allowed"], true);
    let text = served.metrics.text();
    for line in ["injections_total{result=\"failed\"} ", "injections_total{result=\"injected\"} 1"] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    served.stop().await;
}

#[tokio::test]
async fn malformed_reviews_and_strangers_harm_only_themselves() {
    let served = Served::start().await;
    let deep = format!("{{\"request\": {}", "[".repeat(100_000));
    for body in
        ["", "{", "null", "[]", "{}", "{\"request\": 1}", "{\"request\": {\"uid\": 7}}", "\u{0}", &deep]
    {
        let (status, _) = served.post("/mutate", body.to_owned()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body:.60}");
    }
    // A whole request arrives with the last message of the handshake.
    for size in [10_000, 20_000, 60_000, 200_000, 2_000_000] {
        let mut pod = pod();
        pod["metadata"]["annotations"] = json!({"large": "x".repeat(size)});
        assert_eq!(served.review(admission("shop", &pod)).await["allowed"], true, "{size}");
    }
    let large = format!("{{\"request\": \"{}\"}}", "x".repeat(9 << 20));
    let request = Request::post("/mutate").header("host", "x").body(Full::new(Bytes::from(large))).unwrap();
    // The server answers before it has read all, and then closes the connection, which may lose the answer.
    if let Ok((status, _)) = served.send(request).await {
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }
    let get = Request::get("/mutate").header("host", "x").body(Full::default()).unwrap();
    assert_eq!(served.send(get).await.unwrap().0, StatusCode::METHOD_NOT_ALLOWED);
    let get = Request::get("/nothing").header("host", "x").body(Full::default()).unwrap();
    assert_eq!(served.send(get).await.unwrap().0, StatusCode::NOT_FOUND);

    let mut plain = TcpStream::connect(served.address).await.unwrap();
    plain.write_all(b"POST /mutate HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // A TLS alert at most, or a reset.
    let _ = plain.read_to_end(&mut answer).await;
    assert!(answer.len() < 16, "{answer:?}");
    let mut silent = Vec::new();
    for _ in 0..300 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        silent.push(socket.connect(served.address).await.unwrap());
    }
    assert_eq!(served.review(admission("shop", &pod())).await["allowed"], true);
    drop(silent);
    served.stop().await;
}
