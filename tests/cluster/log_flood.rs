//! Tests how much a replica logs while strangers and a hostile proxy send what makes it, or a library, log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use rustls::time_provider::DefaultTimeProvider;
use serde_json::json;
use smc_testkit::ads::{Credentials, DeltaStream, nack, subscribe};
use smc_xds::resource::ResourceType;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::api_server::ApiServer;
use crate::raw_flood::{Port, Says, Sent, flood, frames, no_handshakes, requests, unfinished_body};
use crate::replicas::{PODS, Random, Replicas, eventually};
use crate::webhooks::{NAME, Webhooks, new_pod, review};

/// How long each port is flooded.
const FLOOD: Duration = Duration::from_secs(5);

/// The most that a flood may write: what two modules may log at once.
const LIMIT: u64 = 512 << 10;

/// The libraries log as much as they like: what SMC leaves out by default is a list, which is never complete.
const FLAGS: [&str; 2] = ["--log-level", "info,h2=info,kube_client=info"];

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
                sent.bytes.fetch_add(reason.len() as u64, Ordering::Relaxed);
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
        sent.bytes.fetch_add(1 << 10, Ordering::Relaxed);
    }
}

/// What was sent in a flood, and what was logged of it.
type Report = Vec<(&'static str, u64, u64)>;

/// Waits while these flood a replica, and ends them. What is no flood is logged all the same.
async fn measure(
    replicas: &Replicas,
    report: &mut Report,
    what: &'static str,
    mut senders: JoinSet<()>,
    sent: &Sent,
) {
    let before = replicas.log_bytes(0);
    sleep(FLOOD).await;
    let (sent, logged) = (sent.bytes.load(Ordering::Relaxed), replicas.log_bytes(0) - before);
    let pod = 1 + report.len() as u64;
    let issued = eventually("a certificate", async || replicas.bootstrap(0, pod).await).await;
    assert!(replicas.log_text(0).contains(&issued.serial), "{what}: the issue of a certificate is logged");
    senders.shutdown().await;
    report.push((what, sent, logged));
}

fn check(report: &Report) {
    eprintln!("flood, bytes sent, bytes logged within {FLOOD:?}:");
    for (what, sent, logged) in report {
        eprintln!("{what:30} {sent:>12} {logged:>12}");
    }
    assert!(report.iter().all(|(_, sent, _)| *sent > 1 << 14), "a flood did not reach its port");
    assert!(report.iter().all(|(_, _, logged)| *logged < LIMIT), "more than {LIMIT} bytes");
}

/// A port that peers reach from the address of this machine, with TLS if there is a certificate for it.
fn port(address: SocketAddr, own: Option<&Credentials>) -> Port {
    let tls = |own: &Credentials| (Arc::new(own.tls(Arc::new(DefaultTimeProvider))), own.server_name.clone());
    Port { address, tls: own.map(tls), from: [127, 0, 0, 1].into(), away: Duration::ZERO }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_peer_decides_how_much_is_logged() {
    let replicas = Replicas::start_with_flags(1, Random::seed() & 0xffff, &FLAGS).await;
    let issued = eventually("a certificate", async || replicas.bootstrap(0, 0).await).await;
    assert!(replicas.is_served(0, &issued.bootstrap).await, "claimed");
    let own = Credentials::read(&issued.bootstrap.to_string()).unwrap();
    let xds = replicas.xds_address(0);
    let mut report = Report::new();
    for (what, address, own, floods) in [
        ("probes", replicas.probes(0), None, frames()),
        ("xDS, HTTP/2", replicas.xds(0), Some(&own), frames()),
        ("xDS, no TLS", replicas.xds(0), None, no_handshakes()),
        ("Raft, no TLS", replicas.raft_listener(0), None, no_handshakes()),
        ("metrics", replicas.metrics(0), None, [frames(), no_handshakes()].concat()),
    ] {
        let sent = Sent::default();
        let senders = flood(&port(address, own), floods, &sent);
        measure(&replicas, &mut report, what, senders, &sent).await;
    }
    let (sent, mut senders) = (Sent::default(), JoinSet::new());
    senders.spawn(reject(xds.clone(), own.clone(), sent.clone()));
    measure(&replicas, &mut report, "xDS, rejections", senders, &sent).await;
    let (sent, mut senders) = (Sent::default(), JoinSet::new());
    for _ in 0..3 {
        senders.spawn(reconnect(xds.clone(), own.clone(), sent.clone()));
    }
    measure(&replicas, &mut report, "xDS, connections", senders, &sent).await;
    check(&report);
    let left_out = async || replicas.log_text(0).contains("log lines left out module=\"h2::").then_some(());
    eventually("a summary of what is left out", left_out).await;
    replicas.passed.store(true, Ordering::Relaxed);
}

/// Any peer may ask there, and each answer could be a line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_peer_of_the_webhooks_decides_how_much_is_logged() {
    let directory = tempfile::tempdir().unwrap();
    let api = ApiServer::start(PODS, directory.path()).await;
    let replicas = Replicas::start_in_cluster(Random::seed() & 0xffff, &api, &FLAGS).await;
    let webhooks = Webhooks::trusted(&replicas, &api, None).await;
    let tls = Some((webhooks.tls(), NAME.to_owned()));
    let from = port(replicas.webhooks(0), None);
    let refused = json!({"metadata": {"name": "x".repeat(100_000)}, "spec": {"serviceAccountName": "A_"}});
    let (refused, no_split) = (new_pod("shop", &refused), json!({"kind": "TrafficSplit"}));
    let reviews: Vec<Says> = [
        ("refused pods", "/mutate", refused.to_string()),
        ("refused objects", "/validate", review(&no_split).to_string()),
        ("no reviews", "/mutate", "{}".to_owned()),
        ("no conversions", "/convert", "[".repeat(1 << 12)),
        ("no route", "/nothing", "x".repeat(1 << 12)),
    ]
    .into_iter()
    .map(|(name, path, body)| requests(name, path, &body))
    .chain(["/mutate", "/validate", "/convert"].map(|path| unfinished_body(path, 64 << 10)))
    .collect();
    let mut report = Report::new();
    for (what, tls, floods) in [
        ("webhooks, HTTP/2", tls.clone(), frames()),
        ("webhooks, reviews", tls, reviews),
        ("webhooks, no TLS", None, no_handshakes()),
    ] {
        let sent = Sent::default();
        let senders = flood(&Port { tls, ..from.clone() }, floods, &sent);
        measure(&replicas, &mut report, what, senders, &sent).await;
    }
    check(&report);
    replicas.passed.store(true, Ordering::Relaxed);
}
