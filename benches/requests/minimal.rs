//! Owns the floor: two Envoys in pods outside of the mesh, with mTLS between them and nothing else. They have
//! no policy, no log, no metrics of requests, no limits.

use std::net::IpAddr;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use smc_benches::Result;
use smc_lab::{ENVOY, LabHandle};
use tokio::task::JoinSet;

use crate::pair::Pair;

/// The name in the server's certificate.
const SERVER: &str = "web.minimal";

/// Where the caller's Envoy listens: to HTTP that the Envoys and the application speak in HTTP/1.1, that the
/// Envoys alone speak in HTTP/2, and that all do, and to TCP.
pub(crate) const HTTP1: u16 = 15101;
pub(crate) const HTTP1_OVER_2: u16 = 15102;
pub(crate) const HTTP2: u16 = 15103;
pub(crate) const TCP: u16 = 15104;

/// Where the server's listens, with TLS.
const SERVER_HTTP: u16 = 15201;
const SERVER_HTTP2: u16 = 15202;
const SERVER_TCP: u16 = 15203;

/// The ports of the application.
const APPLICATION_HTTP: u16 = 8080;
const APPLICATION_TCP: u16 = 7000;

/// Starts both. They end with the lab, or with the set.
pub(crate) async fn start(lab: &LabHandle, ends: &mut JoinSet<String>) -> Result<Pair> {
    let identities = Identities::new()?;
    let server = lab.pod_ip("minimal/web").await?;
    let configs = [
        ("minimal/web", "minimal-web", server_config(&identities.server)),
        ("minimal/caller", "minimal-caller", caller_config(&identities.caller, server)),
    ];
    for (pod, node, config) in configs {
        let (lab, config) = (lab.clone(), config.to_string());
        ends.spawn(async move {
            let argv = [
                ENVOY,
                "--config-yaml",
                &config,
                "--service-node",
                node,
                "--service-cluster",
                node,
                "--log-level",
                "error",
                "--disable-hot-restart",
                "--concurrency",
                "1",
            ];
            let ended = lab.exec(pod, &argv).await;
            format!("{node} ended: {ended:?}")
        });
    }
    let mut answer = None;
    for _ in 0..100 {
        if let Some(ended) = ends.try_join_next() {
            return Err(ended?.into());
        }
        let got = lab.get("minimal/caller", &format!("http://127.0.0.1:{HTTP1}/ok")).await?;
        if got.status == Some(200) {
            return Pair::find("minimal-caller", "minimal-web");
        }
        answer = Some(got);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    Err(format!("the minimal Envoys do not answer: {answer:?}").into())
}

struct Identities {
    caller: Value,
    server: Value,
}

impl Identities {
    /// Two certificates of one CA, as the TLS settings that both ends have in common.
    #[expect(clippy::disallowed_methods, reason = "keys of the bench's own Envoys")]
    fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        // A leaf of the same name would be taken for its own issuer.
        params.distinguished_name.push(DnType::CommonName, "root");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let root = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        let identity = |name: &str| -> Result<Value> {
            let key = KeyPair::generate()?;
            let leaf = CertificateParams::new(vec![name.to_owned()])?.signed_by(&key, &issuer)?;
            Ok(json!({
                "tls_certificates": [{
                    "certificate_chain": {"inline_string": leaf.pem()},
                    "private_key": {"inline_string": key.serialize_pem()},
                }],
                "validation_context": {
                    "trusted_ca": {"inline_string": root},
                },
            }))
        };
        Ok(Self { caller: identity("caller.minimal")?, server: identity(SERVER)? })
    }
}

fn server_config(identity: &Value) -> Value {
    let tls = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": identity,
            "require_client_certificate": true,
        },
    });
    let local = IpAddr::from([127, 0, 0, 1]);
    json!({"static_resources": {
        "listeners": [
            listener(SERVER_HTTP, &http("http1"), Some(&tls)),
            listener(SERVER_HTTP2, &http("http2"), Some(&tls)),
            listener(SERVER_TCP, &tcp("tcp"), Some(&tls)),
        ],
        "clusters": [
            cluster("http1", (local, APPLICATION_HTTP), false, None),
            cluster("http2", (local, APPLICATION_HTTP), true, None),
            cluster("tcp", (local, APPLICATION_TCP), false, None),
        ],
    }})
}

fn caller_config(identity: &Value, server: IpAddr) -> Value {
    let tls = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": identity,
            "sni": SERVER,
        },
    });
    json!({"static_resources": {
        "listeners": [
            listener(HTTP1, &http("http1"), None),
            listener(HTTP1_OVER_2, &http("http1over2"), None),
            listener(HTTP2, &http("http2"), None),
            listener(TCP, &tcp("tcp"), None),
        ],
        "clusters": [
            cluster("http1", (server, SERVER_HTTP), false, Some(&tls)),
            cluster("http1over2", (server, SERVER_HTTP), true, Some(&tls)),
            cluster("http2", (server, SERVER_HTTP2), true, Some(&tls)),
            cluster("tcp", (server, SERVER_TCP), false, Some(&tls)),
        ],
    }})
}

fn listener(port: u16, filter: &Value, tls: Option<&Value>) -> Value {
    let mut chain = json!({"filters": [filter]});
    if let Some(tls) = tls {
        chain["transport_socket"] = tls.clone();
    }
    json!({
        "name": format!("port-{port}"),
        "address": {"socket_address": {"address": "0.0.0.0", "port_value": port}},
        "filter_chains": [chain],
    })
}

fn http(cluster: &str) -> Value {
    json!({
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "http",
            "route_config": {"virtual_hosts": [{
                "name": "all",
                "domains": ["*"],
                "routes": [{"match": {"prefix": "/"}, "route": {"cluster": cluster}}],
            }]},
            "http_filters": [{
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
            }],
        },
    })
}

fn tcp(cluster: &str) -> Value {
    json!({
        "name": "envoy.filters.network.tcp_proxy",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
            "stat_prefix": "tcp",
            "cluster": cluster,
        },
    })
}

fn cluster(name: &str, (address, port): (IpAddr, u16), http2: bool, tls: Option<&Value>) -> Value {
    let protocol = if http2 { "http2_protocol_options" } else { "http_protocol_options" };
    let endpoint = json!({"address": {"socket_address": {"address": address, "port_value": port}}});
    let mut cluster = json!({
        "name": name,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {protocol: {}},
            },
        },
    });
    if let Some(tls) = tls {
        cluster["transport_socket"] = tls.clone();
    }
    cluster
}
