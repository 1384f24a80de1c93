//! Tests how much a replica logs while strangers and a hostile proxy send what makes it, or a library, log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use rustls::pki_types::ServerName;
use rustls::time_provider::DefaultTimeProvider;
use smc_testkit::ads::{Credentials, DeltaStream, nack, subscribe};
use smc_xds::resource::ResourceType;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, sink, split};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::replicas::{Random, Replicas, eventually};

/// How long each port is flooded.
const FLOOD: Duration = Duration::from_secs(5);

/// The most that a flood may write: what two modules may log at once.
const LIMIT: u64 = 512 << 10;

/// The libraries log as much as they like: what SMC leaves out by default is a list, which is never complete.
const FLAGS: [&str; 2] = ["--log-level", "info,h2=info,kube_client=info"];

/// The bytes that were sent.
type Sent = Arc<AtomicU64>;

/// A frame of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// What a peer says: first, and then for as long as it is read. Without the latter it connects again.
#[derive(Clone)]
struct Says {
    opening: Vec<u8>,
    again: Vec<u8>,
}

/// What HTTP/2 allows, and what it does not, after what opens a connection.
fn frames() -> Vec<Says> {
    let opening = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, &[])].concat();
    let floods = [
        ("PING that acknowledges none", frame(6, 1, 0, &[7; 8])),
        ("PING", frame(6, 0, 0, &[7; 8])),
        ("SETTINGS", frame(4, 0, 0, &[])),
        ("acknowledgement of SETTINGS", frame(4, 1, 0, &[])),
        ("PRIORITY", frame(2, 0, 1, &[0, 0, 0, 3, 1])),
        ("unknown type", frame(0xfe, 0, 0, &[7; 8])),
        ("RST_STREAM of no stream", frame(3, 0, 1, &[0; 4])),
        ("WINDOW_UPDATE by nothing", frame(8, 0, 0, &[0; 4])),
        ("HEADERS that are none", frame(1, 4, 1, &[0xff; 64])),
    ];
    let says = |(_, frame): (_, Vec<u8>)| Says { opening: opening.clone(), again: frame.repeat(1_000) };
    floods.into_iter().map(says).collect()
}

/// What is no TLS, and a ClientHello that stops in its middle.
fn no_handshakes() -> Vec<Says> {
    let hello = [[0x16, 3, 1, 1, 0, 1, 0, 0, 0xfc, 3, 3].as_slice(), &[7; 100]].concat();
    let once = |opening| Says { opening, again: Vec::new() };
    [vec![7; 1 << 12], b"GET / HTTP/1.1\r\nhost: here\r\n\r\n".to_vec(), hello].map(once).to_vec()
}

/// Says it on one connection.
async fn say(stream: impl AsyncRead + AsyncWrite, says: &Says, sent: &Sent) {
    let ((mut read, mut write), mut unread) = (split(stream), sink());
    let saying = async {
        let mut next = &says.opening;
        while !next.is_empty() && write.write_all(next).await.is_ok() {
            sent.fetch_add(next.len() as u64, Ordering::Relaxed);
            next = &says.again;
        }
    };
    tokio::select! {
        () = saying => {}
        // The other side ended it.
        _ = tokio::io::copy(&mut read, &mut unread) => {}
    }
}

/// Floods a port in all ways at once, with TLS if there is a certificate for it.
fn flood_with(port: SocketAddr, own: Option<&Credentials>, floods: Vec<Says>, sent: &Sent) -> JoinSet<()> {
    let mut senders = JoinSet::new();
    for says in floods {
        let (own, sent) = (own.cloned(), Arc::clone(sent));
        senders.spawn(async move {
            loop {
                let Ok(socket) = TcpStream::connect(port).await else { continue };
                if let Some(own) = &own {
                    let tls = TlsConnector::from(Arc::new(own.tls(Arc::new(DefaultTimeProvider))));
                    let name = ServerName::try_from(own.server_name.clone()).unwrap();
                    if let Ok(stream) = tls.connect(name, socket).await {
                        say(stream, &says, &sent).await;
                    }
                } else {
                    say(socket, &says, &sent).await;
                }
            }
        });
    }
    senders
}

/// A proxy that rejects what it is sent, with long reasons, and asks for types that there are not.
async fn reject(address: String, own: Credentials, sent: Sent) {
    let reason = "no\n".repeat(2_000);
    loop {
        let Ok(channel) = own.connect(&address).await else { continue };
        let unknown = DeltaDiscoveryRequest {
            node: Some(own.node()),
            type_url: format!("type.googleapis.com/{reason}"),
            ..DeltaDiscoveryRequest::default()
        };
        let first = [subscribe(&own, ResourceType::Cluster, &["none"]), unknown.clone()];
        let Ok(mut stream) = DeltaStream::open(channel, first).await else { continue };
        for number in 0_u64.. {
            let Ok(Ok(Some(response))) = timeout(FLOOD, stream.next()).await else { break };
            let again = subscribe(&own, ResourceType::Cluster, &[&format!("none-{number}")]);
            for request in [nack(&response, &reason), again, unknown.clone()] {
                if stream.send(request).await.is_err() {
                    break;
                }
                sent.fetch_add(reason.len() as u64, Ordering::Relaxed);
            }
        }
    }
}

/// A proxy that opens one connection after another, each with a stream.
async fn reconnect(address: String, own: Credentials, sent: Sent) {
    loop {
        let Ok(channel) = own.connect(&address).await else { continue };
        let first = [subscribe(&own, ResourceType::Cluster, &[])];
        if let Ok(mut stream) = DeltaStream::open(channel, first).await {
            let _ = stream.next().await;
        }
        sent.fetch_add(1 << 10, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_peer_decides_how_much_is_logged() {
    let replicas = Replicas::start_with_flags(1, Random::seed() & 0xffff, &FLAGS).await;
    let issued = eventually("a certificate", async || replicas.bootstrap(0, 0).await).await;
    assert!(replicas.is_served(0, &issued.bootstrap).await, "claimed");
    let own = Credentials::read(&issued.bootstrap.to_string()).unwrap();
    let xds = replicas.xds_address(0);
    let mut report = Vec::new();
    let mut issued_since = 0;
    let mut measure = async |what: &'static str, mut senders: JoinSet<()>, sent: &Sent| {
        let before = replicas.log_bytes(0);
        sleep(FLOOD).await;
        let (sent, logged) = (sent.load(Ordering::Relaxed), replicas.log_bytes(0) - before);
        issued_since += 1;
        let issued = eventually("a certificate", async || replicas.bootstrap(0, issued_since).await).await;
        assert!(
            replicas.log_text(0).contains(&issued.serial),
            "{what}: the issue of a certificate is logged"
        );
        senders.shutdown().await;
        report.push((what, sent, logged));
    };
    for (what, port, own, floods) in [
        ("probes", replicas.probes(0), None, frames()),
        ("xDS, HTTP/2", replicas.xds(0), Some(own.clone()), frames()),
        ("xDS, no TLS", replicas.xds(0), None, no_handshakes()),
        ("Raft, no TLS", replicas.raft_listener(0), None, no_handshakes()),
        ("metrics", replicas.metrics(0), None, [frames(), no_handshakes()].concat()),
    ] {
        let sent = Sent::default();
        let senders = flood_with(port, own.as_ref(), floods, &sent);
        measure(what, senders, &sent).await;
    }
    let sent = Sent::default();
    let mut senders = JoinSet::new();
    senders.spawn(reject(xds.clone(), own.clone(), Arc::clone(&sent)));
    measure("xDS, rejections", senders, &sent).await;
    let sent = Sent::default();
    let mut senders = JoinSet::new();
    for _ in 0..3 {
        senders.spawn(reconnect(xds.clone(), own.clone(), Arc::clone(&sent)));
    }
    measure("xDS, connections", senders, &sent).await;
    eprintln!("flood, bytes sent, bytes logged within {FLOOD:?}:");
    for (what, sent, logged) in &report {
        eprintln!("{what:30} {sent:>12} {logged:>12}");
    }
    assert!(report.iter().all(|(_, sent, _)| *sent > 1 << 14), "a flood did not reach its port");
    assert!(report.iter().all(|(_, _, logged)| *logged < LIMIT), "more than {LIMIT} bytes");
    let left_out = async || replicas.log_text(0).contains("log lines left out module=\"h2::").then_some(());
    eventually("a summary of what is left out", left_out).await;
    replicas.passed.store(true, Ordering::Relaxed);
}
