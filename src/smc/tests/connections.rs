//! The limits of connections: which stay open, how many, and for how long.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{Secret, secret};
use prost::Message;
use smc_server::xds::open_stream::{OpenStream, StopReason};
use smc_testkit::ads::{ack, subscribe};
use smc_xds::resource::ResourceType;
use tonic::Code;

use super::client::{Client, closed, tls};
use super::replica::{Limits, Replica};
use super::{BUYER, STORE};

#[tokio::test]
async fn a_connection_without_a_stream_is_closed_and_one_with_a_stream_stays() {
    // Longer than it takes to connect, also on a busy machine.
    let idle = Duration::from_secs(3);
    let replica = Replica::start_with(Limits { idle, ..Limits::default() }).await;
    let (buyer, store) = (replica.bootstrap(BUYER).await, replica.bootstrap(STORE).await);
    let (mut client, first) = Client::served(&replica, &store, ResourceType::Cluster).await;
    client.send(ack(&first)).await;
    let silent = tls(&replica, &buyer).await;
    let without = buyer.connect(replica.xds).await.unwrap();
    replica.counts(&["smc_connections 3"]).await;
    closed(silent).await;
    replica.counts(&["smc_connections 1"]).await;
    drop(without);
    replica.declare_another_service();
    assert!(!client.receive().await.resources.is_empty());
    replica.stop().await;
}

#[tokio::test]
async fn a_release_closes_the_connections_of_that_proxy_and_of_no_other() {
    let replica = Replica::start().await;
    let (buyer, store) = (replica.bootstrap(BUYER).await, replica.bootstrap(STORE).await);
    let (mut client, first) = Client::served(&replica, &store, ResourceType::Cluster).await;
    client.send(ack(&first)).await;
    let (mut released, _) = Client::served(&replica, &buyer, ResourceType::Cluster).await;
    let silent = tls(&replica, &buyer).await;
    replica.counts(&["smc_connections 3"]).await;
    replica.release(BUYER).await;
    assert_eq!(released.ended().await, Code::PermissionDenied);
    closed(silent).await;
    replica.counts(&["smc_connections 1"]).await;
    closed(tls(&replica, &buyer).await).await;
    replica.declare_another_service();
    assert!(!client.receive().await.resources.is_empty());
    replica.stop().await;
}

/// Envoy keeps its connection when a stream ends, and would open the next stream there.
#[tokio::test]
async fn a_proxy_that_moves_ends_its_stream_with_ok_and_loses_its_connection() {
    let replica = Replica::start().await;
    let (buyer, store) = (replica.bootstrap(BUYER).await, replica.bootstrap(STORE).await);
    let (mut stays, first) = Client::served(&replica, &store, ResourceType::Cluster).await;
    stays.send(ack(&first)).await;
    let (mut moved, _) = Client::served(&replica, &buyer, ResourceType::Cluster).await;
    replica.counts(&["smc_connections 2"]).await;
    let is_buyer = |stream: &OpenStream| stream.admission.workload.to_string() == BUYER;
    assert_eq!(replica.proxies.end(is_buyer, StopReason::Moved), 1);
    assert!(moved.try_receive().await.unwrap().is_none(), "the stream ends with OK");
    replica.counts(&["smc_connections 1"]).await;
    replica.declare_another_service();
    assert!(!stays.receive().await.resources.is_empty());
    replica.stop().await;
}

/// Envoy goes on to the next replica when it is refused a connection, and stays when only a stream is.
#[tokio::test]
async fn a_replica_that_takes_no_proxies_closes_its_port_and_keeps_its_streams() {
    let replica = Replica::start().await;
    let (buyer, store) = (replica.bootstrap(BUYER).await, replica.bootstrap(STORE).await);
    let (mut stays, first) = Client::served(&replica, &store, ResourceType::Cluster).await;
    stays.send(ack(&first)).await;
    let idle = tls(&replica, &buyer).await;
    replica.proxies.accept_new(false);
    while tokio::net::TcpStream::connect(replica.xds).await.is_ok() {
        tokio::task::yield_now().await;
    }
    replica.declare_another_service();
    let next = stays.receive().await;
    assert!(!next.resources.is_empty(), "an open stream goes on");
    stays.send(ack(&next)).await;
    drop(idle);

    replica.proxies.accept_new(true);
    while tokio::net::TcpStream::connect(replica.xds).await.is_err() {
        tokio::task::yield_now().await;
    }
    let (back, first) = Client::served(&replica, &buyer, ResourceType::Cluster).await;
    back.send(ack(&first)).await;
    replica.stop().await;
}

#[tokio::test]
async fn connections_are_bounded_and_the_oldest_without_a_stream_makes_room() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let (mut client, first) = Client::served(&replica, &buyer, ResourceType::Cluster).await;
    client.send(ack(&first)).await;
    let mut silent = Vec::new();
    for _ in 0..9 {
        silent.push(tls(&replica, &buyer).await);
    }
    for oldest in silent.drain(..2) {
        closed(oldest).await;
    }
    replica.counts(&["smc_connections 8"]).await;
    replica.declare_another_service();
    assert_eq!(client.receive().await.resources.len(), 1, "the stream stays");
    replica.stop().await;
}

/// Every workload has a service certificate, and its root is the one that the handshake trusts.
#[tokio::test]
async fn a_service_certificate_is_refused_by_name_and_keeps_no_connection() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let mut client = Client::connect(&replica, &buyer).await;
    let mut request = subscribe(&buyer, ResourceType::Secret, &[]);
    request.resource_names_subscribe = vec!["service-cert".to_owned()];
    client.send(request).await;
    let any = client.receive().await.resources.remove(0).resource.unwrap();
    let Some(secret::Type::TlsCertificate(certificate)) = Secret::decode(&*any.value).unwrap().r#type else {
        panic!("not a certificate")
    };
    let text = |source: Option<envoy_types::pb::envoy::config::core::v3::DataSource>| match source {
        Some(source) => match source.specifier.unwrap() {
            Specifier::InlineString(text) => text,
            Specifier::InlineBytes(bytes) => String::from_utf8(bytes).unwrap(),
            other => panic!("{other:?}"),
        },
        None => panic!("nothing"),
    };
    let mut workload = buyer.clone();
    workload.certificate = Some((text(certificate.certificate_chain), text(certificate.private_key)));
    assert_eq!(Client::refused(&replica, &workload).await, Code::PermissionDenied);
    closed(tls(&replica, &workload).await).await;
    replica.counts(&["smc_connections 1", "smc_refusals_total{reason=\"other_kind\"} 2"]).await;
    replica.stop().await;
}

#[tokio::test]
async fn a_proxy_that_is_ahead_of_its_pod_is_served_once_the_pod_is_known() {
    let replica = Replica::start().await;
    let store = replica.bootstrap(STORE).await;
    let (mut client, _) = Client::served(&replica, &store, ResourceType::Cluster).await;
    replica.remove_the_store();
    assert_eq!(client.ended().await, Code::Unavailable);
    let mut client = Client::connect(&replica, &store).await;
    client.send(subscribe(&store, ResourceType::Cluster, &[])).await;
    replica.declare_the_store();
    assert!(!client.receive().await.resources.is_empty());
    replica.stop().await;
}
