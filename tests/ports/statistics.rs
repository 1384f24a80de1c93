//! The port of statistics.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use envoy_types::pb::envoy::config::bootstrap::v3::runtime_layer::LayerSpecifier;
use envoy_types::pb::envoy::config::bootstrap::v3::{Bootstrap, LayeredRuntime, RuntimeLayer, bootstrap};
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::{ConfigSource, PathConfigSource, config_source};
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::google::protobuf::{Any, Struct, Value as Number, value};
use prost::Message;
use serde_json::json;
use smc_sidecar::bootstrap::connection_limit_key;
use smc_sidecar::statistics::{CALLS_PATH, called};
use smc_testkit::eventually::{Patience, eventually};
use smc_testkit::mesh::{meshes, view};
use smc_xds::names;
use smc_xds::resource::ResourceType;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::sidecar::{PROBES, START, Sidecar, at, kubelets};

/// The ports of statistics, and of a listener that updates change.
const STATISTICS: u16 = 15010;
const UPDATED: u16 = 15099;

/// What a sidecar of a mesh has, besides: 300 clusters.
const CLUSTERS: usize = 300;

/// The bound in the bootstraps of the former version, which live as long as their pods.
const FORMER_CONNECTIONS: f64 = 64.0;

/// The listener that SMC serves, the cluster behind it, and listeners from a file.
fn with_statistics(address: Ipv4Addr, admin: u16, directory: &Path) -> Bootstrap {
    let mesh = meshes::all().remove(0);
    let view = view(&mesh.compile("ROOT", "CHAIN", "KEY"), "shop/a").unwrap();
    let decode = |kind, name| Any::decode(&*view.get(kind, name).unwrap().any()).unwrap().value;
    let mut listener =
        Listener::decode(&*decode(ResourceType::Listener, names::PROMETHEUS_LISTENER)).unwrap();
    listener.address = Some(at(address, STATISTICS));
    let mut cluster = Cluster::decode(&*decode(ResourceType::Cluster, names::ADMIN_CLUSTER)).unwrap();
    let endpoints = &mut cluster.load_assignment.as_mut().unwrap().endpoints[0].lb_endpoints[0];
    let Some(HostIdentifier::Endpoint(endpoint)) = &mut endpoints.host_identifier else {
        panic!("no endpoint")
    };
    endpoint.address = Some(at(Ipv4Addr::LOCALHOST, admin));
    let others = (0..CLUSTERS).map(|number| {
        let name = format!("shop/service-{number:03}|8080");
        let mut other = cluster.clone();
        other.load_assignment.as_mut().unwrap().cluster_name.clone_from(&name);
        Cluster { name, ..other }
    });
    let clusters = std::iter::once(cluster.clone()).chain(others).collect();
    update(directory, address, 0);
    let number = Number { kind: Some(value::Kind::NumberValue(FORMER_CONNECTIONS)) };
    let fields = [(connection_limit_key(names::PROMETHEUS_LISTENER), number)].into_iter().collect();
    let layer = RuntimeLayer {
        name: "smc".to_owned(),
        layer_specifier: Some(LayerSpecifier::StaticLayer(Struct { fields })),
    };
    let file = PathConfigSource {
        path: directory.join("listeners.json").to_str().unwrap().to_owned(),
        ..PathConfigSource::default()
    };
    Bootstrap {
        node: Some(envoy_types::pb::envoy::config::core::v3::Node {
            id: "a".to_owned(),
            cluster: "a".to_owned(),
            ..Default::default()
        }),
        static_resources: Some(bootstrap::StaticResources {
            listeners: vec![listener],
            clusters,
            ..bootstrap::StaticResources::default()
        }),
        dynamic_resources: Some(bootstrap::DynamicResources {
            lds_config: Some(ConfigSource {
                config_source_specifier: Some(config_source::ConfigSourceSpecifier::PathConfigSource(file)),
                ..ConfigSource::default()
            }),
            ..bootstrap::DynamicResources::default()
        }),
        layered_runtime: Some(LayeredRuntime { layers: vec![layer] }),
        ..Bootstrap::default()
    }
}

/// Updates the listener from the file: it answers with this status.
fn update(directory: &Path, address: Ipv4Addr, version: u32) {
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "updated",
        "route_config": {"name": "r", "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "direct_response": {"status": 200 + version}},
        ]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config":
            {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
    });
    let listeners = json!({"version_info": version.to_string(), "resources": [{
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": "updated",
        "address": {"socket_address": {"address": address.to_string(), "port_value": UPDATED}},
        "filter_chains": [{"filters": [
            {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager},
        ]}],
    }]});
    // Envoy looks when a file is moved to the place.
    std::fs::write(directory.join("next.json"), listeners.to_string()).unwrap();
    std::fs::rename(directory.join("next.json"), directory.join("listeners.json")).unwrap();
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

/// Asks for the statistics from this address, which is one of this machine, and reads the whole answer.
async fn read(sidecar: &Sidecar, from: Ipv4Addr, path: &str) -> std::io::Result<String> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let mut stream = socket.connect((sidecar.address, STATISTICS).into()).await?;
    stream.write_all(get(path).as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The longest that a probe of readiness took, and that an update took, of some.
async fn slowest(sidecar: &Sidecar, first: u32) -> (Duration, Duration) {
    let (mut ready, mut updated) = (Duration::ZERO, Duration::ZERO);
    for version in first..first + 8 {
        let begun = Instant::now();
        let envoy = &sidecar.pod["spec"]["initContainers"][1];
        let request = kubelets(sidecar.address, &envoy["readinessProbe"]["httpGet"]);
        assert_eq!(sidecar.ask(PROBES, &request).await, "200");
        ready = ready.max(begun.elapsed());
        let begun = Instant::now();
        update(sidecar.directory.path(), sidecar.address, version);
        let wanted = (200 + version).to_string();
        let patience = Patience { limit: Duration::from_mins(1), pause: Duration::from_millis(5) };
        eventually(patience, "the update", async || sidecar.ask(UPDATED, &get("/")).await == wanted).await;
        updated = updated.max(begun.elapsed());
        sleep(Duration::from_millis(200)).await;
    }
    (ready, updated)
}

/// What readers may cost is compared with what one answer costs, in the same run.
#[tokio::test(flavor = "multi_thread")]
async fn thirty_readers_of_statistics_delay_neither_readiness_nor_an_update() {
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let sidecar = Arc::new(Sidecar::start(&pod, with_statistics).await);
    let path = names::STATISTICS_PATH;
    let begun = Instant::now();
    let text = read(&sidecar, sidecar.address, path).await.unwrap();
    let one = begun.elapsed();
    assert!(text.starts_with("HTTP/1.1 200") && text.len() > 1 << 20, "{}", text.len());
    let quiet = slowest(&sidecar, 1).await;

    let mut readers = JoinSet::new();
    let rendered = Arc::new(AtomicUsize::new(0));
    for number in 0..30 {
        let (sidecar, rendered) = (Arc::clone(&sidecar), Arc::clone(&rendered));
        // Three strangers.
        let from = Ipv4Addr::new(127, 0, 1, 1 + number % 3);
        readers.spawn(async move {
            loop {
                let answer = read(&sidecar, from, path).await.unwrap_or_default();
                rendered.fetch_add(usize::from(answer.starts_with("HTTP/1.1 200")), Ordering::Relaxed);
                sleep(Duration::from_millis(5)).await;
            }
        });
    }
    sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    let busy = slowest(&sidecar, 20).await;
    // Prometheus, from an address of its own.
    let scraped = read(&sidecar, Ipv4Addr::new(127, 0, 2, 1), path).await.unwrap();
    let (took, rendered) = (begun.elapsed(), rendered.load(Ordering::Relaxed));
    readers.shutdown().await;
    eprintln!(
        "one answer {one:?}; (ready, update): quiet {quiet:?}, busy {busy:?}; {rendered} answers, {took:?}"
    );
    assert!(scraped.starts_with("HTTP/1.1 200"), "{}", &scraped[..scraped.len().min(80)]);
    // Two answers at a time, and the machine is shared with thirty readers.
    let allowance = one * 4 + Duration::from_millis(250);
    assert!(busy.0 <= quiet.0 + allowance, "readiness: {busy:?}, {quiet:?}, {one:?}");
    assert!(busy.1 <= quiet.1 + allowance, "an update: {busy:?}, {quiet:?}, {one:?}");
    // Eight and one a second.
    assert!(rendered <= 10 + usize::try_from(took.as_secs()).unwrap() * 2, "{rendered} in {took:?}");
}

#[tokio::test]
async fn the_statistics_answer_what_prometheus_and_smc_ask_and_nothing_else() {
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a",
        "readinessProbe": {"httpGet": {"port": 8080, "path": "/a"}}}]}});
    let sidecar = Sidecar::start(&pod, with_statistics).await;
    let mut last = 0;
    let mut from = || {
        last += 1;
        Ipv4Addr::new(127, 0, 3, last)
    };
    let everything = read(&sidecar, from(), names::STATISTICS_PATH).await.unwrap();
    assert!(everything.starts_with("HTTP/1.1 200"), "{}", &everything[..80]);
    let token = sidecar.paths().pop_first().unwrap();
    let token = token.trim_start_matches('/').split('/').next().unwrap();
    assert!(token.len() == 32 && !everything.contains(token), "the statistics tell the paths of probes");
    let counted = read(&sidecar, from(), "/stats/prometheus?usedonly").await.unwrap();
    assert!(counted.starts_with("HTTP/1.1 200") && counted.len() < everything.len());
    let calls = read(&sidecar, from(), CALLS_PATH).await.unwrap();
    assert_eq!(called(&calls).unwrap().len(), 0);
    for path in [
        "/stats/prometheus?filter=(a%2B)%2B",
        "/stats/prometheus?usedonly&filter=.*",
        "/stats/prometheus?text_readouts",
        "/stats/prometheus?usedonly&",
        "/stats",
    ] {
        // The bound of all addresses has a second for each.
        sleep(Duration::from_secs(1)).await;
        let answer = read(&sidecar, from(), path).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {}", &answer[..answer.len().min(80)]);
    }
}

/// Each takes a place of the bootstrap's bound, and has it for a second.
#[tokio::test(flavor = "multi_thread")]
async fn silent_readers_do_not_keep_their_places() {
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let sidecar = Sidecar::start(&pod, with_statistics).await;
    for said in
        ["", "GET /stats/prom", "GET /stats/prometheus HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"]
    {
        let mut silent = Vec::new();
        for _ in 0..100 {
            let Ok(mut stream) = TcpStream::connect((sidecar.address, STATISTICS)).await else { continue };
            let _ = stream.write_all(said.as_bytes()).await;
            silent.push(stream);
        }
        eventually(START, "a reader from another address is answered", async || {
            let answer = read(&sidecar, Ipv4Addr::new(127, 0, 4, 1), CALLS_PATH).await;
            let answer = answer.unwrap_or_else(|error| error.to_string());
            if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(answer) }
        })
        .await;
        drop(silent);
    }
}
