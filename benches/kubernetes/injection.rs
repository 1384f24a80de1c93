//! Sidecars for new Pods: how many a second, and how long each takes.
//!
//! Reviews go to the webhooks' port as an API server sends them: over TLS, on one HTTP/2 connection. Each
//! answered review has a committed certificate and a Secret in the API behind it. Some Pods are created
//! through the API server, which asks the webhook by itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, ObjectMeta, PostParams};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use smc_benches::controller::PATIENCE;
use smc_benches::{Result, percentile_ms};
use smc_sidecar::injection::{MANAGED_BY_LABEL, MANAGED_BY_VALUE};
use smc_test_kubernetes::{Cluster, Programs, create, create_all, injector_webhook};
use smc_testkit::held_port::HeldPort;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_rustls::TlsConnector;

use crate::api;

/// The namespaces of the pods. A replica bounds the sidecars of each whose pods have not appeared.
const NAMESPACES: usize = 20;

/// The most reviews that are sent: a replica makes no more than 20,000 sidecars whose pods do not appear.
const MAX_REVIEWS: u64 = 18_000;

/// Reviews at once while the highest rate is measured.
const TOGETHER: usize = 64;

/// Pods that are created through the API server at once.
const CREATED_TOGETHER: usize = 8;

/// How many, and for how long.
pub(crate) struct Load {
    /// Reviews a second whose latency is measured.
    pub(crate) rate: u32,
    /// How long each of both loads lasts.
    pub(crate) seconds: u64,
    /// Pods that are created through the API server.
    pub(crate) pods: usize,
}

/// Measures one controller.
pub(crate) async fn measure(programs: &Programs, load: &Load) -> Result<Value> {
    let cluster = api::api_server(programs).await?;
    let client = cluster.client().await.map_err(|error| error.chain())?;
    let mut namespaces = vec![namespace("plain", None)];
    namespaces.extend((0..NAMESPACES).map(|n| namespace(&format!("b{n}"), Some("smc"))));
    create_all(&client, namespaces).await.map_err(|error| error.chain())?;
    let ports = [HeldPort::loopback(), HeldPort::loopback()];
    let [webhooks, metrics] = ports.each_ref().map(|port| port.address);
    cluster.apply(&injector_webhook(webhooks)).await.map_err(|e| e.chain())?;
    let directory = tempfile::tempdir()?;
    let flags = [
        format!("--metrics-listen={metrics}"),
        format!("--webhook-listen={webhooks}"),
        format!("--webhook-address={webhooks}"),
        "--init-image=smc:1".to_owned(),
        "--envoy-image=envoy:1".to_owned(),
    ];
    let controller = api::controller(&cluster.kubeconfig(), directory.path(), &flags)?;
    api::ready(metrics).await?;
    let trust = trust(&client).await?;
    let sender = connect(webhooks, &trust).await?;
    review(sender.clone(), webhooks, 0).await?;
    let secret = a_secret(&client).await?;
    let alone = at_rate(load, |number| create_again(client.clone(), secret.clone(), number)).await?;
    let before = controller.cpu()?;
    let paced = at_rate(load, |number| review(sender.clone(), webhooks, number)).await?;
    let cpu = controller.cpu()?.saturating_sub(before);
    let highest = at_most(&sender, webhooks, load).await?;
    let injected = created(&cluster, &client, "b0", load.pods).await?;
    let plain = created(&cluster, &client, "plain", load.pods).await?;
    let report = json!({
        "injections_per_s": highest,
        "injection_offered_per_s": load.rate,
        "injection_p50_ms": percentile_ms(&paced, 50),
        "injection_p99_ms": percentile_ms(&paced, 99),
        "injection_late": late(&paced),
        "secret_alone_p50_ms": percentile_ms(&alone, 50),
        "secret_alone_p99_ms": percentile_ms(&alone, 99),
        "secret_alone_late": late(&alone),
        "injection_cpu_us": cpu.as_micros() / paced.len().max(1) as u128,
        "pod_created_injected_p50_ms": percentile_ms(&injected, 50),
        "pod_created_injected_p99_ms": percentile_ms(&injected, 99),
        "pod_created_plain_p50_ms": percentile_ms(&plain, 50),
        "pod_created_plain_p99_ms": percentile_ms(&plain, 99),
        "injection_rss_mib": controller.memory_kib("VmRSS")? / 1024,
    });
    controller.kill().await?;
    cluster.stop().await.map_err(|error| error.chain())?;
    Ok(report)
}

/// A load of a fixed rate, whatever the answers take. A latency begins when its request was due, so that a
/// stall counts for all that it holds up.
async fn at_rate<F>(load: &Load, request: impl Fn(u64) -> F) -> Result<Vec<Duration>>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let count = (u64::from(load.rate) * load.seconds).min(MAX_REVIEWS / 2);
    let mut ticks = interval(Duration::from_secs(1) / load.rate.max(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut running = JoinSet::new();
    for number in 0..count {
        let due = ticks.tick().await;
        let request = request(number);
        running.spawn(async move { request.await.map(|()| due.elapsed()) });
    }
    let mut taken = Vec::new();
    while let Some(done) = running.join_next().await {
        taken.push(done??);
    }
    Ok(taken)
}

/// How many took longer than the goal of the 99th percentile.
fn late(taken: &[Duration]) -> usize {
    taken.iter().filter(|taken| **taken > Duration::from_millis(50)).count()
}

/// The Secret of a sidecar, as the controller makes it.
async fn a_secret(client: &Client) -> Result<DynamicObject> {
    let made = ListParams::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGED_BY_VALUE}"));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &api::resource("", "v1", "Secret"));
    let mut secret = api.list(&made).await?.items.into_iter().next().ok_or("no Secret of a sidecar")?;
    secret.metadata = ObjectMeta::default();
    Ok(secret)
}

/// Creates such a Secret once more: what an injection takes in the API server alone.
async fn create_again(client: Client, mut secret: DynamicObject, number: u64) -> Result<()> {
    secret.metadata.name = Some(format!("alone-{number}"));
    let namespace = format!("b{}", number % NAMESPACES as u64);
    let api: Api<DynamicObject> =
        Api::namespaced_with(client, &namespace, &api::resource("", "v1", "Secret"));
    api.create(&PostParams::default(), &secret).await?;
    Ok(())
}

/// Reviews a second, with a fixed number at once.
async fn at_most(sender: &SendRequest<Full<Bytes>>, address: SocketAddr, load: &Load) -> Result<f64> {
    let start = Instant::now();
    let end = start + Duration::from_secs(load.seconds);
    let mut running = JoinSet::new();
    for lane in 0..TOGETHER {
        let sender = sender.clone();
        running.spawn(async move {
            let mut count = 0_u64;
            while Instant::now() < end && count < MAX_REVIEWS / 2 / TOGETHER as u64 {
                review(sender.clone(), address, lane as u64 + count).await?;
                count += 1;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(count)
        });
    }
    let mut count = 0;
    while let Some(done) = running.join_next().await {
        count += done??;
    }
    #[expect(clippy::cast_precision_loss, reason = "some thousand are exact")]
    let rate = count as f64 / start.elapsed().as_secs_f64();
    Ok(rate)
}

/// Creates pods through the API server, a few at once. Returns what each creation took.
async fn created(cluster: &Cluster, client: &Client, namespace: &str, pods: usize) -> Result<Vec<Duration>> {
    // The controller manager makes it a moment after the namespace.
    let account = ["get", "serviceaccount", "default", "-n", namespace];
    let there = cluster.wait("the service account", PATIENCE, || async {
        let got = cluster.kubectl(&account).await.map_err(|error| error.chain())?;
        if got.success() { Ok(()) } else { Err(got.stderr) }
    });
    there.await.map_err(|error| error.chain())?;
    let mut running = JoinSet::new();
    let (mut taken, mut begun) = (Vec::new(), 0);
    loop {
        while running.len() < CREATED_TOGETHER && begun < pods {
            let mut pod = pod();
            pod["metadata"] = json!({"name": format!("created-{begun}"), "namespace": namespace});
            let client = client.clone();
            running.spawn(async move {
                let start = Instant::now();
                create(client, pod).await.map(|()| start.elapsed())
            });
            begun += 1;
        }
        match running.join_next().await {
            Some(done) => taken.push(done??),
            None => return Ok(taken),
        }
    }
}

fn namespace(name: &str, mesh: Option<&str>) -> Value {
    let labels = mesh.map_or(json!({}), |mesh| json!({"openservicemesh.io/monitored-by": mesh}));
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// A Pod as a Deployment makes it.
fn pod() -> Value {
    let resources = json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}});
    let probe = json!({"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10});
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "store-5d4f8c7b9-", "labels": {"app": "store"}},
        "spec": {"serviceAccountName": "default", "containers": [{"name": "app", "image": "store:1",
            "ports": [{"name": "http", "containerPort": 8080}], "resources": resources,
            "env": [{"name": "GREETING", "value": "hello"}],
            "readinessProbe": probe, "livenessProbe": probe}]}})
}

/// The roots that the leader has the API server trust.
async fn trust(client: &Client) -> Result<Arc<ClientConfig>> {
    let resource = api::resource("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let deadline = Instant::now() + PATIENCE;
    let bundle = loop {
        let configured = api.get("smc-injector-smc").await?;
        match configured.data["webhooks"][0]["clientConfig"]["caBundle"].as_str() {
            Some(bundle) if !bundle.is_empty() => break BASE64.decode(bundle.as_bytes())?,
            _ if Instant::now() > deadline => return Err("the API server is given no roots".into()),
            _ => sleep(Duration::from_millis(50)).await,
        }
    };
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(&bundle) {
        roots.add(root?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

async fn connect(address: SocketAddr, trust: &Arc<ClientConfig>) -> Result<SendRequest<Full<Bytes>>> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let name = ServerName::from(address.ip());
    let stream = TlsConnector::from(Arc::clone(trust)).connect(name, socket).await?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    // It ends with the last sender.
    tokio::spawn(connection);
    Ok(sender)
}

/// Sends one review; anything but an added sidecar is an error.
async fn review(mut sender: SendRequest<Full<Bytes>>, address: SocketAddr, number: u64) -> Result<()> {
    let namespace = format!("b{}", number % NAMESPACES as u64);
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": format!("{number}"), "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "operation": "CREATE",
        "namespace": namespace, "userInfo": {"username": "a"}, "dryRun": false, "object": pod()}});
    let body = Full::new(Bytes::from(review.to_string()));
    let request = Request::post(format!("https://{address}/mutate"))
        .header("content-type", "application/json")
        .body(body)?;
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    let answer = response.into_body().collect().await?.to_bytes();
    let answer: Value = serde_json::from_slice(&answer)?;
    let patch = answer["response"]["patch"].as_str().unwrap_or_default();
    if answer["response"]["allowed"] == true && !BASE64.decode(patch.as_bytes())?.is_empty() {
        Ok(())
    } else {
        Err(format!("no sidecar was added: {answer}").into())
    }
}
