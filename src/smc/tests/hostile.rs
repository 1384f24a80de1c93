//! Hostile clients: each loses its own stream or connection, and harms no other client.

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use envoy_types::pb::google::protobuf::UInt32Value;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use rustls::time_provider::DefaultTimeProvider;
use smc_testkit::ads::{Credentials, DeltaStream, ack, subscribe};
use smc_xds::resource::ResourceType;
use smc_xds::session::MAX_NAMES;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use super::client::{Client, closed, tls};
use super::replica::{Limits, Replica};
use super::valve::Valve;
use super::{BUYER, STORE};

/// A request for endpoints that do not exist, of about `kib` KiB.
fn unknown(own: &Credentials, kib: usize) -> DeltaDiscoveryRequest {
    let resource_names_subscribe = (0..kib).map(|i| format!("{i:01020}")).collect();
    DeltaDiscoveryRequest { resource_names_subscribe, ..subscribe(own, ResourceType::Endpoint, &[]) }
}

/// A well-behaved client: subscribes to clusters, and receives a service that is declared afterwards.
struct Honest(Client);

impl Honest {
    async fn connect(replica: &Replica) -> Self {
        let store = replica.bootstrap(STORE).await;
        let (client, first) = Client::served(replica, &store, ResourceType::Cluster).await;
        client.send(ack(&first)).await;
        Self(client)
    }

    async fn is_served(&mut self, replica: &Replica) {
        replica.declare_another_service();
        let response = self.0.receive().await;
        assert!(!response.resources.is_empty());
        self.0.send(ack(&response)).await;
    }
}

#[tokio::test]
async fn a_flood_of_requests_is_read_slowly_and_the_others_are_served() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let mut honest = Honest::connect(&replica).await;
    let client = Client::connect(&replica, &buyer).await;
    let request = unknown(&buyer, 60);
    let start = Instant::now();
    let mut sent = 0;
    let flood = async {
        loop {
            client.send(request.clone()).await;
            sent += 1;
        }
    };
    let others = async {
        honest.is_served(&replica).await;
        tokio::time::sleep_until(start + Duration::from_secs(2)).await;
    };
    tokio::select! {
        () = flood => {}
        () = others => {}
    }
    // Full, the bucket holds 5 s; a request of 60 KiB costs 10 ms and 10 ms for every 64 KiB, thus 19 ms.
    // Whatever lies between the client and the server, its queues and HTTP/2's window, holds less than 100.
    let earned = (Duration::from_secs(5) + start.elapsed()).as_millis() / 19;
    assert!(sent < earned + 100, "{sent} sent, {earned} earned");
    replica.stop().await;
}

#[tokio::test]
async fn a_request_too_large_or_malformed_ends_its_stream_with_the_reason() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let mut honest = Honest::connect(&replica).await;

    let mut client = Client::connect(&replica, &buyer).await;
    client.send(unknown(&buyer, 9 << 10)).await;
    assert_eq!(client.ended().await, Code::OutOfRange);
    // Within the limit of a request, and far beyond what a proxy may ask for.
    let mut client = Client::connect(&replica, &buyer).await;
    let names = (0..=MAX_NAMES).map(|i| i.to_string()).collect();
    let many = DeltaDiscoveryRequest {
        resource_names_subscribe: names,
        ..subscribe(&buyer, ResourceType::Endpoint, &[])
    };
    client.send(many).await;
    assert_eq!(client.ended().await, Code::InvalidArgument);

    // A number where a message should be.
    let mut grpc = Grpc::new(buyer.connect(replica.xds).await.unwrap());
    grpc.ready().await.unwrap();
    let path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
    let requests = Request::new(tokio_stream::StreamExt::chain(
        tokio_stream::iter([UInt32Value { value: 7 }]),
        tokio_stream::pending(),
    ));
    let codec = ProstCodec::<UInt32Value, DeltaDiscoveryResponse>::default();
    let opened = grpc.streaming(requests, http::uri::PathAndQuery::from_static(path), codec).await;
    let status = opened.unwrap().into_inner().message().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");

    honest.is_served(&replica).await;
    Client::served(&replica, &buyer, ResourceType::Cluster).await;
    replica.stop().await;
}

/// Each cost a line in the log, and an admission: 3,745 streams a second were 1 MB/s.
#[tokio::test]
async fn a_flood_of_streams_loses_its_connection_and_the_others_are_served() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let mut honest = Honest::connect(&replica).await;
    let channel = buyer.connect(replica.xds).await.unwrap();
    let start = Instant::now();
    let (mut opened, mut refused) = (0_u128, 0);
    // The channel connects again after each loss.
    while start.elapsed() < Duration::from_secs(3) {
        match DeltaStream::open(channel.clone(), []).await {
            Ok(_) => opened += 1,
            Err(_) => refused += 1,
        }
    }
    // 83 at once, and one for each 100 ms.
    let allowed = 83 + start.elapsed().as_millis() / 100 + 1;
    assert!(opened <= allowed && opened > 40, "{opened} opened, {allowed} allowed");
    assert!(refused > 0);
    honest.is_served(&replica).await;
    // The proxy is served again once it has waited.
    tokio::time::sleep(Duration::from_secs(4)).await;
    Client::served(&replica, &buyer, ResourceType::Cluster).await;
    replica.stop().await;
}

#[tokio::test]
async fn garbage_behind_a_good_handshake_ends_its_connection() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let mut honest = Honest::connect(&replica).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for (preface, garbage) in
        [(&[][..], [b'x'; 4096]), (&preface[..], [0xff; 4096]), (&preface[..], [0; 4096])]
    {
        let mut connection = tls(&replica, &buyer).await;
        connection.write_all(preface).await.unwrap();
        // It may be closed before all of it is written.
        let _ = connection.write_all(&garbage).await;
        let _ = connection.flush().await;
        closed(connection).await;
    }
    honest.is_served(&replica).await;
    replica.counts(&["smc_connections 1"]).await;
    replica.stop().await;
}

/// The client's kernel accepts no more bytes, so neither a response nor the end of the stream gets through.
#[tokio::test]
async fn a_peer_with_a_closed_window_is_dropped_and_the_others_are_served() {
    let answer = Duration::from_secs(2);
    let replica = Replica::start_with(Limits { answer, ..Limits::default() }).await;
    let buyer = replica.bootstrap(BUYER).await;
    let mut honest = Honest::connect(&replica).await;
    let valve = Valve::to(replica.xds).await;
    let mut deaf = Client::try_connect(valve.address, &buyer).await.unwrap();
    deaf.send(subscribe(&buyer, ResourceType::Cluster, &[])).await;
    let first = deaf.receive().await;
    deaf.send(ack(&first)).await;
    valve.shut();
    // Answered with a removal of each, which is as long.
    deaf.send(unknown(&buyer, 4 << 10)).await;
    honest.is_served(&replica).await;
    replica.counts(&["smc_connections 1", "smc_xds_streams_ended_total{reason=\"stalled\"} 1"]).await;
    let mut again = Client::try_connect(replica.xds, &buyer).await.unwrap();
    again.send(subscribe(&buyer, ResourceType::Cluster, &[])).await;
    again.receive().await;
    replica.stop().await;
}

/// A handshake keeps its turn for a moment, and its connection until its time is over.
#[tokio::test]
async fn handshakes_that_stop_halfway_delay_others_for_a_moment() {
    // None of them has to leave for another one.
    let replica = Replica::start_with(Limits { connections: 256, ..Limits::default() }).await;
    let buyer = replica.bootstrap(BUYER).await;
    let config = Arc::new(buyer.tls(Arc::new(DefaultTimeProvider)));
    let mut halfway = Vec::new();
    for _ in 0..100 {
        let name = ServerName::try_from(buyer.server_name.clone()).unwrap();
        let mut hello = Vec::new();
        ClientConnection::new(Arc::clone(&config), name).unwrap().write_tls(&mut hello).unwrap();
        let mut socket = TcpStream::connect(replica.xds).await.unwrap();
        socket.write_all(&hello).await.unwrap();
        halfway.push(socket);
    }
    let start = Instant::now();
    Honest::connect(&replica).await.is_served(&replica).await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    drop(halfway);
    replica.stop().await;
}
