//! The separate services, a stream for each type, in State of the World.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::service::cluster::v3::cluster_discovery_service_client::ClusterDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::envoy::service::endpoint::v3::endpoint_discovery_service_client::EndpointDiscoveryServiceClient;
use envoy_types::pb::envoy::service::extension::v3::extension_config_discovery_service_client::ExtensionConfigDiscoveryServiceClient;
use envoy_types::pb::envoy::service::listener::v3::listener_discovery_service_client::ListenerDiscoveryServiceClient;
use envoy_types::pb::envoy::service::route::v3::route_discovery_service_client::RouteDiscoveryServiceClient;
use envoy_types::pb::envoy::service::secret::v3::secret_discovery_service_client::SecretDiscoveryServiceClient;
use prost::Message;
use smc_proto::admin::v1 as pb;
use smc_testkit::ads::Credentials;
use smc_xds::resource::ResourceType;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::replica::{PATIENCE, Replica};
use super::{BUYER, STORE};

/// A stream for one type.
struct Stream {
    kind: ResourceType,
    names: Vec<String>,
    requests: mpsc::Sender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
}

impl Stream {
    async fn open(channel: &Channel, own: &Credentials, kind: ResourceType, names: &[&str]) -> Self {
        let (requests, receiver) = mpsc::channel(16);
        let (channel, sent) = (channel.clone(), ReceiverStream::new(receiver));
        let opened = match kind {
            ResourceType::Cluster => ClusterDiscoveryServiceClient::new(channel).stream_clusters(sent).await,
            ResourceType::Endpoint => {
                EndpointDiscoveryServiceClient::new(channel).stream_endpoints(sent).await
            }
            ResourceType::ExtensionConfig => {
                ExtensionConfigDiscoveryServiceClient::new(channel).stream_extension_configs(sent).await
            }
            ResourceType::Listener => {
                ListenerDiscoveryServiceClient::new(channel).stream_listeners(sent).await
            }
            ResourceType::Route => RouteDiscoveryServiceClient::new(channel).stream_routes(sent).await,
            ResourceType::Secret => SecretDiscoveryServiceClient::new(channel).stream_secrets(sent).await,
        };
        let responses = opened.unwrap().into_inner();
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let stream = Self { kind, names, requests, responses };
        stream.request(DiscoveryRequest { node: Some(own.node()), ..DiscoveryRequest::default() }).await;
        stream
    }

    async fn request(&self, request: DiscoveryRequest) {
        let (type_url, resource_names) = (self.kind.url().to_owned(), self.names.clone());
        let request = DiscoveryRequest { type_url, resource_names, ..request };
        // An ended stream returns its status when it is read.
        let _ = self.requests.send(request).await;
    }

    async fn next(&mut self) -> Result<Option<DiscoveryResponse>, Status> {
        tokio::time::timeout(PATIENCE, self.responses.message()).await.expect("an answer in time")
    }

    /// The next response, acknowledged.
    async fn receive(&mut self) -> DiscoveryResponse {
        let response = self.next().await.unwrap().expect("an open stream");
        assert_eq!(response.type_url, self.kind.url());
        let (response_nonce, version_info) = (response.nonce.clone(), response.version_info.clone());
        self.request(DiscoveryRequest { response_nonce, version_info, ..DiscoveryRequest::default() }).await;
        response
    }
}

fn clusters(response: &DiscoveryResponse) -> BTreeMap<String, Cluster> {
    let clusters = response.resources.iter().map(|any| Cluster::decode(&*any.value).unwrap());
    clusters.map(|cluster| (cluster.name.clone(), cluster)).collect()
}

fn endpoints(response: &DiscoveryResponse) -> usize {
    let [any] = &response.resources[..] else { panic!("{response:?}") };
    let assignment = ClusterLoadAssignment::decode(&*any.value).unwrap();
    assignment.endpoints.iter().map(|locality| locality.lb_endpoints.len()).sum()
}

#[tokio::test]
async fn every_type_has_a_service_of_its_own_that_follows_the_mesh() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    replica.bootstrap(STORE).await;
    let channel = buyer.connect(replica.xds).await.unwrap();

    let mut cds = Stream::open(&channel, &buyer, ResourceType::Cluster, &[]).await;
    let mut known = clusters(&cds.receive().await);
    let eds_config = known.remove("shop/store|80").unwrap().eds_cluster_config.unwrap();
    let mut eds = Stream::open(&channel, &buyer, ResourceType::Endpoint, &[&eds_config.service_name]).await;
    assert_eq!(endpoints(&eds.receive().await), 1);
    let mut lds = Stream::open(&channel, &buyer, ResourceType::Listener, &[]).await;
    let listeners = lds.receive().await;
    assert!(!listeners.resources.is_empty());
    let mut rds = Stream::open(&channel, &buyer, ResourceType::Route, &["outbound_shop/store_80"]).await;
    assert_eq!(rds.receive().await.resources.len(), 1);
    let mut sds = Stream::open(&channel, &buyer, ResourceType::Secret, &["service-cert"]).await;
    assert_eq!(sds.receive().await.resources.len(), 1);

    let listed = replica.admin().await.list_proxies(pb::ListProxiesRequest {}).await.unwrap().into_inner();
    let proxy = listed.proxies.into_iter().find(|proxy| proxy.workload == BUYER).unwrap();
    assert!(proxy.participant);
    let scopes: Vec<_> = proxy.streams.iter().map(|stream| stream.scope.as_str()).collect();
    assert_eq!(scopes, ["cds", "eds", "lds", "rds", "sds"]);

    replica.declare_another_service();
    assert!(clusters(&cds.receive().await).contains_key("shop/another|90"));
    assert_ne!(lds.receive().await.version_info, listeners.version_info);
    replica.declare_a_second_store();
    assert_eq!(endpoints(&eds.receive().await), 2);
    replica.stop().await;
}

#[tokio::test]
async fn a_service_takes_no_other_type_than_its_own_and_nothing_is_fetched() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let channel = buyer.connect(replica.xds).await.unwrap();
    let mut cds = Stream::open(&channel, &buyer, ResourceType::Cluster, &[]).await;
    cds.receive().await;
    cds.kind = ResourceType::Secret;
    cds.request(DiscoveryRequest::default()).await;
    assert_eq!(cds.next().await.unwrap_err().code(), Code::InvalidArgument);
    let request = DiscoveryRequest { node: Some(buyer.node()), ..DiscoveryRequest::default() };
    let mut lds = ListenerDiscoveryServiceClient::new(channel);
    assert_eq!(lds.fetch_listeners(request).await.unwrap_err().code(), Code::Unimplemented);
    replica.stop().await;
}

#[tokio::test]
async fn the_aggregated_service_speaks_state_of_the_world_too() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let channel = buyer.connect(replica.xds).await.unwrap();
    let (requests, receiver) = mpsc::channel(16);
    let mut ads = AggregatedDiscoveryServiceClient::new(channel);
    let opened = ads.stream_aggregated_resources(ReceiverStream::new(receiver)).await;
    let (kind, responses) = (ResourceType::Cluster, opened.unwrap().into_inner());
    let mut stream = Stream { kind, names: Vec::new(), requests, responses };
    stream.request(DiscoveryRequest { node: Some(buyer.node()), ..DiscoveryRequest::default() }).await;
    assert!(clusters(&stream.receive().await).contains_key("shop/store|80"));
    replica.stop().await;
}

/// A restarted proxy's old connection may be half-open: its streams must not shut the new ones out.
#[tokio::test]
async fn separate_streams_are_bounded_and_an_older_connections_make_room() {
    let replica = Replica::start().await;
    let buyer = replica.bootstrap(BUYER).await;
    let channel = buyer.connect(replica.xds).await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..16 {
        let mut stream = Stream::open(&channel, &buyer, ResourceType::Secret, &["service-cert"]).await;
        stream.receive().await;
        streams.push(stream);
    }
    let mut beyond = Stream::open(&channel, &buyer, ResourceType::Secret, &["service-cert"]).await;
    assert_eq!(beyond.next().await.unwrap_err().code(), Code::ResourceExhausted);
    let newer = buyer.connect(replica.xds).await.unwrap();
    let mut stream = Stream::open(&newer, &buyer, ResourceType::Cluster, &[]).await;
    stream.receive().await;
    assert_eq!(streams[0].next().await.unwrap_err().code(), Code::Aborted);
    replica.stop().await;
}
