//! A whole replica over real sockets, with well-behaved and with hostile clients.

mod client;
mod connections;
mod hostile;
mod latest;
mod replica;
mod separate;
mod several;
mod sidecars;
mod slow;
mod starting;
mod trust;
mod valve;
mod webhooks;

use std::collections::BTreeMap;
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use smc_proto::admin::v1 as pb;
use smc_testkit::ads::{Credentials, ack, nack, subscribe};
use smc_testkit::eventually::{Patience, eventually};
use smc_xds::resource::ResourceType;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

use client::Client;
use replica::{Limits, PATIENCE, Replica};

const BUYER: &str = "shop/buyer";
const STORE: &str = "shop/store";

#[tokio::test]
async fn a_proxy_is_served_and_after_a_restart_it_is_sent_nothing_again() {
    let mut replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let (mut client, first) = Client::served(&replica, &buyer, ResourceType::Cluster).await;
    assert!(!first.resources.is_empty());
    client.send(ack(&first)).await;

    replica.restart().await;
    assert!(client.try_receive().await.unwrap().is_none(), "the stream ends with OK");

    let mut client = Client::connect(&replica, &buyer).await;
    let mut resume = subscribe(&buyer, ResourceType::Cluster, &[]);
    resume.initial_resource_versions =
        first.resources.iter().map(|r| (r.name.clone(), r.version.clone())).collect();
    client.send(resume).await;
    let again = client.receive().await;
    assert!(again.resources.is_empty() && again.removed_resources.is_empty(), "{again:?}");
    replica.stop().await;
}

#[tokio::test]
async fn a_released_proxy_loses_its_stream_and_is_refused() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let (mut client, _) = Client::served(&replica, &buyer, ResourceType::Cluster).await;
    replica.release(BUYER).await;
    assert_eq!(client.ended().await, Code::PermissionDenied);
    let refusal = Client::refused(&replica, &buyer).await;
    assert_eq!(refusal, Code::PermissionDenied, "before it has asked for anything");
    replica.stop().await;
}

#[tokio::test]
async fn a_proxy_that_calls_itself_by_another_name_is_refused() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let store = replica.bootstrap(STORE).await;
    let mut client = Client::connect(&replica, &buyer).await;
    client.send(subscribe(&store, ResourceType::Cluster, &[])).await;
    assert_eq!(client.ended().await, Code::PermissionDenied);
    replica.stop().await;
}

#[tokio::test]
async fn garbage_and_strangers_end_their_own_connection_and_no_other() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let (mut client, first) = Client::served(&replica, &buyer, ResourceType::Cluster).await;
    client.send(ack(&first)).await;

    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4096], &[0x16, 3, 1, 255, 255, 1]] {
        let mut socket = TcpStream::connect(replica.xds).await.unwrap();
        socket.write_all(garbage).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut rest = Vec::new();
        // The server may send a TLS alert before it closes or resets the connection.
        let _ = socket.read_to_end(&mut rest).await;
        assert!(rest.len() < 16, "{rest:?}");
    }
    let stranger = Replica::start().await;
    let mut forged = stranger.bootstrap(BUYER).await;
    forged.roots.clone_from(&buyer.roots);
    assert!(Client::try_connect(replica.xds, &forged).await.is_err(), "a certificate of another authority");
    let mut anonymous = buyer.clone();
    anonymous.certificate = None;
    assert!(Client::try_connect(replica.xds, &anonymous).await.is_err(), "no certificate");
    assert!(replica.metrics.text().contains("smc_handshake_failures_total 5"), "{}", replica.metrics.text());

    replica.declare_another_service();
    let next = client.receive().await;
    assert_eq!(next.resources.len(), 1);
    stranger.stop().await;
    replica.stop().await;
}

#[tokio::test]
async fn an_unknown_type_is_not_answered_and_the_rest_goes_on() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let mut client = Client::connect(&replica, &buyer).await;
    let unknown = "type.googleapis.com/envoy.service.runtime.v3.Runtime".to_owned();
    client
        .send(DeltaDiscoveryRequest { type_url: unknown, ..subscribe(&buyer, ResourceType::Cluster, &[]) })
        .await;
    client.send(subscribe(&buyer, ResourceType::Listener, &[])).await;
    assert_eq!(client.receive().await.type_url, ResourceType::Listener.url());
    replica.stop().await;
}

#[tokio::test]
async fn a_newer_stream_of_a_proxy_ends_the_older() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let (mut older, _) = Client::served(&replica, &buyer, ResourceType::Cluster).await;
    let _newer = Client::served(&replica, &buyer, ResourceType::Cluster).await;
    assert_eq!(older.ended().await, Code::Aborted);
    replica.stop().await;
}

#[tokio::test]
async fn a_proxy_whose_pod_is_gone_is_told_to_come_back_later() {
    let replica = Replica::start().await;
    let store = replica.bootstrap(STORE).await;
    let (mut client, _) = Client::served(&replica, &store, ResourceType::Cluster).await;
    replica.remove_the_store();
    assert_eq!(client.ended().await, Code::Unavailable);
    replica.stop().await;
}

#[tokio::test]
async fn a_pod_with_another_service_account_needs_a_new_bootstrap() {
    let replica = Replica::start().await;
    let old = replica.bootstrap(STORE).await;
    let (mut client, _) = Client::served(&replica, &old, ResourceType::Cluster).await;
    replica.make_the_store_a_buyer();
    assert_eq!(client.ended().await, Code::Unavailable, "the open stream ends");
    let mut client = Client::connect(&replica, &old).await;
    client.send(subscribe(&old, ResourceType::Cluster, &[])).await;
    assert_eq!(client.ended().await, Code::Unavailable, "the certificate is good for the pod that was, only");
    let new = replica.bootstrap(STORE).await;
    let (_client, first) = Client::served(&replica, &new, ResourceType::Cluster).await;
    assert!(!first.resources.is_empty());
    replica.stop().await;
}

#[tokio::test]
async fn a_uuid_copied_into_another_namespace_does_no_harm() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let (mut client, first) = Client::served(&replica, &buyer, ResourceType::Cluster).await;
    client.send(ack(&first)).await;
    replica.copy_the_uuid_of(&buyer);
    let thief = replica.bootstrap("evil/thief").await;
    assert_ne!(thief.node().id, buyer.node().id);
    replica.declare_another_service();
    assert_eq!(client.receive().await.resources.len(), 1, "the stream goes on");
    for own in [&buyer, &thief] {
        Client::served(&replica, own, ResourceType::Listener).await;
    }
    replica.stop().await;
}

#[tokio::test]
async fn a_proxy_whose_pod_stays_away_is_released_and_no_other() {
    let release_grace = Duration::from_secs(2);
    let mut replica = Replica::start_with(Limits { release_grace, ..Limits::default() }).await;
    let (buyer, store) = (replica.bootstrap(BUYER).await, replica.bootstrap(STORE).await);
    // What was never used would be forgotten.
    Client::served(&replica, &store, ResourceType::Cluster).await;
    replica.remove_the_store();
    let mut admin = replica.admin().await;
    let mut states = BTreeMap::new();
    for _ in 0..100 {
        let listed = admin.list_proxies(pb::ListProxiesRequest {}).await.unwrap().into_inner();
        let state = |proxy: pb::Proxy| (proxy.uuid, proxy.certificates[0].state());
        states = listed.proxies.into_iter().map(state).collect();
        if states.values().any(|state| *state == pb::CertificateState::Released) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let state_of = |own: &Credentials| states[own.node().id.split_once('.').unwrap().0];
    assert_eq!(state_of(&store), pb::CertificateState::Released);
    assert_eq!(state_of(&buyer), pb::CertificateState::Unclaimed);
    replica.restart().await;
    assert_eq!(Client::refused(&replica, &store).await, Code::PermissionDenied, "released is released");
    replica.stop().await;
}

#[tokio::test]
async fn a_proxy_that_never_answers_is_cut() {
    let replica =
        Replica::start_with(Limits { answer: Duration::from_millis(500), ..Limits::default() }).await;
    let buyer = replica.bootstrap(BUYER).await;
    let (mut client, _) = Client::served(&replica, &buyer, ResourceType::Cluster).await;
    client.ended().await;
    let counted = "smc_xds_streams_ended_total{reason=\"stalled\"} 1";
    assert!(replica.metrics.text().contains(counted), "{}", replica.metrics.text());
    replica.stop().await;
}

#[tokio::test]
async fn a_rejected_update_is_counted_and_shown_as_a_problem() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let mut client = Client::connect(&replica, &buyer).await;
    client.send(subscribe(&buyer, ResourceType::Listener, &[])).await;
    // The server bisects a rejected response until it finds the rejected resource.
    let rejecting = async {
        while let Ok(Some(rejected)) = client.try_receive().await {
            client.send(nack(&rejected, "no\nthanks")).await;
        }
    };
    let mut admin = replica.admin().await;
    // The listener that leads to a service is reported on the service, too.
    let service = |problem: &pb::Problem| {
        let parts = [BUYER, "lds/outbound-listener", "thanks"];
        problem.object == "Service shop/store" && parts.iter().all(|part| problem.message.contains(part))
    };
    let patience = Patience { limit: PATIENCE, pause: Duration::from_millis(20) };
    let blamed = eventually(patience, "the rejected listener", async || {
        let problems = admin.list_problems(pb::ListProblemsRequest {}).await.unwrap().into_inner().problems;
        let found = problems.iter().any(service);
        if found { Ok(problems) } else { Err(format!("{problems:?}")) }
    });
    let problems = tokio::select! {
        problems = blamed => problems,
        () = rejecting => panic!("the stream ended"),
    };
    let found = problems.iter().find(|problem| problem.object == format!("Proxy {BUYER}"));
    let found = found.unwrap_or_else(|| panic!("{problems:?}"));
    assert!(found.field.starts_with("lds/") && found.message.contains("thanks"), "{found:?}");
    let errors = problems.iter().filter(|problem| problem.severity() == pb::Severity::Error).count();
    replica.counts(&[&format!("smc_problems{{severity=\"error\"}} {errors}")]).await;
    let config =
        admin.get_proxy_config(pb::GetProxyConfigRequest { workload: BUYER.to_owned() }).await.unwrap();
    let stream = config.into_inner().streams.remove(0);
    assert!(stream.stream.unwrap().rejections >= 1);
    replica.stop().await;
}
