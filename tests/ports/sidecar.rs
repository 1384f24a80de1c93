//! One Envoy with the configuration that injection gives it, on a loopback address of its own.
//!
//! Owns the process, and the application behind it, which writes down what it is sent.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use envoy_types::pb::envoy::config::bootstrap::v3::{Admin, Bootstrap};
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::{
    Address, ApiVersion, ConfigSource, Node, PathConfigSource, SocketAddress, address, socket_address,
};
use prost::Message;
use serde_json::{Value, json};
use smc_model::sidecar_settings::LocalProxyMode;
use smc_sidecar::injection::{Drawn, Settings, Site, inject};
use smc_testkit::eventually::{Patience, eventually};
use smc_testkit::held_port::HeldPort;
use smc_xds::names;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// The port of rewritten probes.
pub(crate) const PROBES: u16 = 15901;

/// A busy machine may take this long to start an Envoy.
pub(crate) const START: Patience =
    Patience { limit: Duration::from_mins(1), pause: Duration::from_millis(50) };

/// A sidecar. Its process ends with it.
pub(crate) struct Sidecar {
    process: Child,
    /// Its files.
    pub(crate) directory: tempfile::TempDir,
    /// The pod's address.
    pub(crate) address: Ipv4Addr,
    /// The Pod that it belongs to.
    pub(crate) pod: Value,
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Puts together a bootstrap, given the pod's address, the port of the admin server, and the directory.
pub(crate) type Make = fn(Ipv4Addr, u16, &Path) -> Bootstrap;

impl Sidecar {
    /// Injects `pod`, and starts its Envoy with what `make` puts beside the configuration of probes. It has
    /// what a controller sends as far as readiness asks for it.
    pub(crate) async fn start(pod: &Value, make: Make) -> Self {
        let sidecar = Self::start_without_controller(pod, make).await;
        sidecar.configure().await;
        sidecar
    }

    /// The same, up to where Envoy answers at the port of probes.
    pub(crate) async fn start_without_controller(pod: &Value, make: Make) -> Self {
        let settings = Settings {
            envoy_image: "envoy:1".to_owned(),
            init_image: "smc:1".to_owned(),
            pull_secrets: Vec::new(),
            local_proxy_mode: LocalProxyMode::Localhost,
            sidecar: Arc::default(),
        };
        let site = Site { drawn: Drawn::from_random([1; 16], [0xa7; 16]), metrics: false, reinvoked: false };
        let pod = inject(pod, site, &settings).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (address, admin_port) = (own_address(), HeldPort::loopback());
        let admin = admin_port.address.port();
        let arguments = pod["spec"]["initContainers"][1]["args"].as_array().unwrap();
        let named = arguments.iter().position(|argument| argument == "--config-yaml").unwrap();
        // As the kubelet replaces it; and the port of the admin server, which all on this machine would
        // share.
        let yaml = arguments[named + 1].as_str().unwrap().replace("$(POD_IP)", &address.to_string());
        let yaml =
            yaml.replace("$$", "$").replace("\"port_value\":15000", &format!("\"port_value\":{admin}"));
        let mut bootstrap = make(address, admin, directory.path());
        let clusters = directory.path().join("clusters.json");
        std::fs::write(&clusters, json!({"resources": []}).to_string()).unwrap();
        let source = PathConfigSource { path: clusters.display().to_string(), ..PathConfigSource::default() };
        let source = ConfigSource {
            resource_api_version: ApiVersion::V3.into(),
            config_source_specifier: Some(ConfigSourceSpecifier::PathConfigSource(source)),
            ..ConfigSource::default()
        };
        bootstrap.dynamic_resources.get_or_insert_default().cds_config = Some(source);
        // Envoy asks a file, too, in the name of a node.
        let named = || Node { id: "a".to_owned(), cluster: "a".to_owned(), ..Node::default() };
        bootstrap.node.get_or_insert_with(named);
        bootstrap.admin = Some(Admin { address: Some(at(Ipv4Addr::LOCALHOST, admin)), ..Admin::default() });
        let file = directory.path().join("bootstrap.pb");
        std::fs::write(&file, bootstrap.encode_to_vec()).unwrap();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let process = Command::new(envoy())
            .args(["--config-path", file.to_str().unwrap(), "--config-yaml", &yaml])
            .args(["--concurrency", "2", "--disable-hot-restart", "--log-level", "warning"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let sidecar = Self { process, directory, address, pod };
        eventually(START, "Envoy answers", async || {
            let answer = sidecar.ready().await;
            if answer == "200" || answer == "503" {
                return Ok(());
            }
            let log = std::fs::read_to_string(sidecar.directory.path().join("log")).unwrap_or_default();
            Err(format!("{answer}; {log}"))
        })
        .await;
        sidecar
    }

    /// Sends Envoy the cluster that every sidecar has, and waits until it is ready.
    pub(crate) async fn configure(&self) {
        let cluster = json!({
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "name": names::ADMIN_CLUSTER,
            "type": "STATIC",
        });
        let new = self.directory.path().join("new.json");
        std::fs::write(&new, json!({"version_info": "1", "resources": [cluster]}).to_string()).unwrap();
        // Envoy looks when a file is moved into the place.
        std::fs::rename(&new, self.directory.path().join("clusters.json")).unwrap();
        eventually(START, "Envoy is ready", async || match &*self.ready().await {
            "200" => Ok(()),
            answer => Err(answer.to_owned()),
        })
        .await;
    }

    /// The answer to the readiness probe of the sidecar itself.
    pub(crate) async fn ready(&self) -> String {
        let envoy = &self.pod["spec"]["initContainers"][1];
        self.probe(&envoy["readinessProbe"]).await
    }

    /// The answer to a probe, as the kubelet sends it and with its usual timeout: the status, or what failed.
    pub(crate) async fn probe(&self, probe: &Value) -> String {
        let request = kubelets(self.address, &probe["httpGet"]);
        match timeout(Duration::from_secs(1), self.ask(PROBES, &request)).await {
            Ok(answer) => answer,
            Err(_) => "silence".to_owned(),
        }
    }

    /// Sends `request` and reads all that comes: the status, or what failed.
    pub(crate) async fn ask(&self, port: u16, request: &str) -> String {
        match self.answer(port, request).await {
            Ok(text) => text.split_whitespace().nth(1).map_or_else(|| "closed".to_owned(), str::to_owned),
            Err(error) => error.kind().to_string(),
        }
    }

    /// The whole answer.
    pub(crate) async fn answer(&self, port: u16, request: &str) -> std::io::Result<String> {
        let answer: std::io::Result<Vec<u8>> = async {
            let mut stream = TcpStream::connect((self.address, port)).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            let read = stream.read_to_end(&mut answer).await;
            // A reset after the answer is none before it.
            if answer.is_empty() { read.map(|_| answer) } else { Ok(answer) }
        }
        .await;
        Ok(String::from_utf8_lossy(&answer?).into_owned())
    }

    /// The paths that the kubelet asks for, of all probes and hooks.
    pub(crate) fn paths(&self) -> BTreeSet<String> {
        let mut paths = BTreeSet::new();
        collect(&self.pod, &mut paths);
        paths
    }
}

/// What the kubelet sends for an `httpGet`.
pub(crate) fn kubelets(address: Ipv4Addr, get: &Value) -> String {
    let path = get["path"].as_str().unwrap();
    let headers = get["httpHeaders"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let declared = headers.map(|header| text(&header["name"]) + ": " + &text(&header["value"]) + "\r\n");
    let declared: String = declared.collect();
    format!(
        "GET {path} HTTP/1.1\r\nHost: {address}:{PROBES}\r\nUser-Agent: kube-probe/1.34\r\nAccept: */*\r\n{declared}\
         Connection: close\r\n\r\n"
    )
}

fn collect(value: &Value, paths: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(get) = fields.get("httpGet").filter(|get| get["port"] == PROBES) {
                paths.insert(get["path"].as_str().unwrap().to_owned());
            }
            fields.values().for_each(|value| collect(value, paths));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, paths)),
        _ => {}
    }
}

/// An address with a port.
pub(crate) fn at(ip: Ipv4Addr, port: u16) -> Address {
    Address {
        address: Some(address::Address::SocketAddress(SocketAddress {
            address: ip.to_string(),
            port_specifier: Some(socket_address::PortSpecifier::PortValue(port.into())),
            ..SocketAddress::default()
        })),
    }
}

/// A loopback address that no other sidecar has, since its port is fixed.
fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high.max(1), low, NEXT.fetch_add(1, Ordering::Relaxed))
}

#[expect(clippy::disallowed_methods, reason = "where make put Envoy")]
fn envoy() -> PathBuf {
    std::env::var_os("SMC_ENVOY").expect("SMC_ENVOY names the Envoy binary (make sets it)").into()
}

/// An application that answers every request, one for `/moved` with a redirect, and writes down each
/// connection that says something.
pub(crate) struct App {
    pub(crate) port: u16,
    heard: Arc<Mutex<Vec<String>>>,
    open: Arc<AtomicUsize>,
}

impl App {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let open = Arc::<AtomicUsize>::default();
        let (all, connections) = (Arc::clone(&heard), Arc::clone(&open));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (all, connections) = (Arc::clone(&all), Arc::clone(&connections));
                connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    answer(stream, all).await;
                    connections.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Self { port, heard, open }
    }

    /// What was said since the last call, once all is written down.
    pub(crate) async fn heard(&self) -> Vec<String> {
        eventually(START, "the connections end", async || self.open.load(Ordering::Relaxed) == 0).await;
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

async fn answer(mut stream: TcpStream, all: Arc<Mutex<Vec<String>>>) {
    let mut said = Vec::new();
    while !said.windows(4).any(|end| end == b"\r\n\r\n") {
        if !matches!(stream.read_buf(&mut said).await, Ok(1..)) {
            return;
        }
    }
    let head: &[u8] =
        if said.starts_with(b"GET /moved") { b"302 Found\r\nLocation: /login" } else { b"200 OK" };
    let answer = [b"HTTP/1.1 ", head, b"\r\nContent-Length: 2\r\n\r\nok"].concat();
    let _ = stream.write_all(&answer).await;
    // What may follow: a body, another request.
    let _ = timeout(Duration::from_millis(20), stream.read_to_end(&mut said)).await;
    all.lock().unwrap().push(String::from_utf8_lossy(&said).into_owned());
}
