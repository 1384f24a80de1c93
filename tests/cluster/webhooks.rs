//! Tests the webhooks of a replica: what strangers at their port cost the API server and the replica, and who
//! may ask at all.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::api_server::ApiServer;
use crate::raw_flood::{Port, Sent, flood, no_handshakes, silence, unfinished_body};
use crate::replicas::{PODS, Random, Replicas};

/// The name by which API servers verify the webhooks.
pub(crate) const NAME: &str = "smc-webhook.smc-system.svc";

/// The address that the API server has.
const API_SERVER: [u8; 4] = [127, 201, 0, 1];

/// How long strangers are there in each of their ways.
const ATTACK: Duration = Duration::from_secs(8);

/// Addresses of strangers, and the sockets of each: more in all than there are places.
const STRANGERS: u8 = 40;
const SOCKETS: usize = 8;

/// How long a stranger whose connection was closed stays away: hundreds of new connections a second in all.
const AWAY: Duration = Duration::from_millis(400);

/// How long a review may take that writes nothing. It is milliseconds on a quiet machine.
const REVIEW: Duration = Duration::from_secs(2);

/// How long an API server waits for a review.
const PATIENCE: Duration = Duration::from_secs(10);

/// What arrives of a body that does not end, in bytes: in all more than there is room for.
const BODY: usize = 512 << 10;

/// The resident memory that strangers may cost, in KiB: the rooms of reviews and of conversions, some 100 for
/// each of the connections that have a place, and what the allocator holds. Measured: 190 to 210 MiB.
const MEMORY: u64 = (64 + 128 + 128) << 10;

/// A question about an object.
pub(crate) fn review(object: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5", "operation": "CREATE", "namespace": "shop", "object": object}})
}

/// A question about a new Pod.
pub(crate) fn new_pod(namespace: &str, pod: &Value) -> Value {
    let mut review = review(pod);
    review["request"]["kind"] = json!({"group": "", "version": "v1", "kind": "Pod"});
    review["request"]["namespace"] = json!(namespace);
    review
}

/// A certificate with its key, and the CA that issued it as PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    authority: String,
    certificate: String,
    key: String,
}

impl Identity {
    /// One of a CA of its own.
    #[expect(clippy::disallowed_methods, reason = "a key of this test's own, which decides nothing")]
    fn new() -> Self {
        let (key, own) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let mut params = CertificateParams::new(vec!["api-server".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&own, &issuer).unwrap().pem();
        Self { authority, certificate, key: own.serialize_pem() }
    }
}

/// The webhooks, as an API server reaches them.
pub(crate) struct Webhooks {
    address: SocketAddr,
    roots: RootCertStore,
    identity: Option<Identity>,
    /// The connection over which all is asked, as an API server does.
    connection: Option<SendRequest<Full<Bytes>>>,
    /// How many connections were made.
    connections: usize,
}

impl Webhooks {
    /// Those of the first replica, once the leader has written which roots to trust.
    pub(crate) async fn trusted(replicas: &Replicas, api: &ApiServer, identity: Option<Identity>) -> Self {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(&api.trusted().await) {
            roots.add(root.unwrap()).unwrap();
        }
        Self { address: replicas.webhooks(0), roots, identity, connection: None, connections: 0 }
    }

    /// The configuration of a client.
    pub(crate) fn tls(&self) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(self.roots.clone());
        Arc::new(match &self.identity {
            None => config.with_no_client_auth(),
            Some(own) => {
                let chain = vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        })
    }

    async fn connect(&mut self) -> Result<SendRequest<Full<Bytes>>, String> {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(IpAddr::from(API_SERVER), 0)).unwrap();
        let socket = socket.connect(self.address).await.map_err(|error| error.to_string())?;
        socket.set_nodelay(true).unwrap();
        let name = ServerName::try_from(NAME).unwrap();
        let stream = TlsConnector::from(self.tls()).connect(name, socket).await;
        let stream = TokioIo::new(stream.map_err(|error| error.to_string())?);
        let (sender, connection) =
            handshake(TokioExecutor::new(), stream).await.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        self.connections += 1;
        Ok(sender)
    }

    /// The answer to a review. A connection that has ended is replaced first, as an API server does.
    async fn ask(&mut self, path: &str, review: &Value) -> Result<Value, String> {
        let mut sender = match self.connection.take().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let request = Request::post(format!("https://{NAME}{path}"));
        let request = request.body(Full::new(Bytes::from(review.to_string()))).unwrap();
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        if status != http::StatusCode::OK {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&body)));
        }
        self.connection = Some(sender);
        serde_json::from_slice(&body).map_err(|error| error.to_string())
    }
}

/// A Pod that gets a sidecar: its certificate is committed to the ledger, which waits for the disk.
fn injected() -> Value {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "buyer-"},
        "spec": {"serviceAccountName": "buyer", "containers": [{"name": "app", "image": "app"}]}});
    new_pod("shop", &pod)
}

/// The questions of an API server, in turn, each of which is allowed. They write nothing: a dry run takes
/// all steps but the last one, so that the pace of the disk decides nothing.
fn question(number: usize) -> (&'static str, Value) {
    let target = json!({"apiVersion": "access.smi-spec.io/v1alpha3", "kind": "TrafficTarget",
        "metadata": {"name": "all", "namespace": "shop"},
        "spec": {"destination": {"kind": "ServiceAccount", "name": "buyer", "namespace": "shop"},
            "sources": [{"kind": "ServiceAccount", "name": "buyer", "namespace": "shop"}],
            "rules": [{"kind": "TCPRoute", "name": "none"}]}});
    let mut pod = injected();
    pod["request"]["dryRun"] = json!(true);
    if number.is_multiple_of(2) { ("/mutate", pod) } else { ("/validate", review(&target)) }
}

/// Asks until the time is over, and then for a sidecar. Every review is answered in its usual time, and the
/// sidecar is made as long as an API server waits.
async fn asks(webhooks: &mut Webhooks, until: Instant, what: &str) -> Vec<Duration> {
    let mut allowed = async |(path, review): (&str, Value), within: Duration| {
        let answer = timeout(within, webhooks.ask(path, &review)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {within:?}")));
        let answer = answer.unwrap_or_else(|error| panic!("{what}: {path}: {error}"));
        assert_eq!(answer["response"]["allowed"], true, "{what}: {answer}");
    };
    let mut took = Vec::new();
    while Instant::now() < until {
        let asked = Instant::now();
        allowed(question(took.len()), REVIEW).await;
        took.push(asked.elapsed());
        sleep(Duration::from_millis(40)).await;
    }
    allowed(("/mutate", injected()), PATIENCE).await;
    took.sort();
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_strangers_delay_no_review_and_cost_little_memory() {
    let directory = TempDir::new().unwrap();
    let api = ApiServer::start(PODS, directory.path()).await;
    let replicas = Replicas::start_in_cluster(Random::seed() & 0xffff, &api, &[]).await;
    let mut webhooks = Webhooks::trusted(&replicas, &api, None).await;
    let quiet = asks(&mut webhooks, Instant::now() + Duration::from_secs(2), "quiet").await;
    let before = replicas.memory(0);
    let tls = Some((webhooks.tls(), NAME.to_owned()));
    let [_, _, half_a_hello] = <[_; 3]>::try_from(no_handshakes()).ok().unwrap();
    let mut report = vec![("quiet", quiet, before)];
    for (what, says, tls) in [
        ("silent sockets", vec![silence()], None),
        ("handshakes that stop", vec![half_a_hello], None),
        ("silence after the handshake", vec![silence()], tls.clone()),
        ("unfinished bodies", ["/mutate", "/convert"].map(|path| unfinished_body(path, BODY)).to_vec(), tls),
    ] {
        let (sent, mut strangers) = (Sent::default(), JoinSet::new());
        for stranger in 0..STRANGERS {
            let from = IpAddr::from([127, 77, 1 + stranger, 1]);
            let port = Port { address: replicas.webhooks(0), tls: tls.clone(), from, away: AWAY };
            let floods = says.iter().cloned().cycle().take(SOCKETS).collect();
            let mut flood = flood(&port, floods, &sent);
            strangers.spawn(async move { while flood.join_next().await.is_some() {} });
        }
        let until = Instant::now() + ATTACK;
        let took = asks(&mut webhooks, until, what).await;
        report.push((what, took, replicas.memory(0)));
        let connections = sent.connections.load(Ordering::Relaxed);
        assert!(connections > u64::from(STRANGERS) * SOCKETS as u64, "{what}: {connections} connections");
        strangers.shutdown().await;
    }
    for (what, took, memory) in &report {
        let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
        eprintln!("{what:30} {} reviews, median {median:?}, longest {longest:?}; {memory} KiB", took.len());
    }
    let most = report.iter().map(|(_, _, memory)| *memory).max().unwrap();
    assert!(most - before <= MEMORY, "{} KiB more than {before}", most - before);
    assert_eq!(webhooks.connections, 1, "the API server kept its connection");
    replicas.passed.store(true, Ordering::Relaxed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_clients_of_the_named_ca_may_ask_the_webhooks() {
    let directory = TempDir::new().unwrap();
    let api = ApiServer::start(PODS, directory.path()).await;
    let (own, another) = (Identity::new(), Identity::new());
    let file = directory.path().join("clients.pem");
    std::fs::write(&file, &own.authority).unwrap();
    let flags = ["--webhook-client-ca", path(&file)];
    let replicas = Replicas::start_in_cluster(Random::seed() & 0xffff, &api, &flags).await;
    for (sentence, identity, may) in [
        ("the CA that is named", Some(own), true),
        ("no certificate", None, false),
        ("another CA of the same name", Some(another), false),
    ] {
        let mut webhooks = Webhooks::trusted(&replicas, &api, identity).await;
        for number in 0..2 {
            let (path, review) = question(number);
            let answer = timeout(PATIENCE, webhooks.ask(path, &review)).await.expect("an answer");
            assert_eq!(answer.is_ok(), may, "{sentence}: {answer:?}");
        }
    }
    let text = replicas.log_text(0);
    assert!(text.contains("handshakes at the webhooks' port failed"), "{text}");
    replicas.passed.store(true, Ordering::Relaxed);
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}
