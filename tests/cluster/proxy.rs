//! A proxy that connects with its certificate, and leaves again as soon as it is served.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use serde_json::Value;
use smc_mesh::resource::ResourceType;
use tokio::time::timeout;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// A replica that is well answers at once; one that is stopped or cut off may take longer, and it is not known what it
/// did.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to the controller at `address` as the bootstrap says, and asks for everything. Whether anything came: the
/// proxy then was admitted, and its certificate is claimed.
pub(crate) async fn is_served(address: &str, bootstrap: &Value) -> bool {
    timeout(PATIENCE, ask(address, bootstrap)).await.ok().flatten().is_some()
}

async fn ask(address: &str, bootstrap: &Value) -> Option<()> {
    let text = |pointer: &str| bootstrap.pointer(pointer)?.as_str();
    let tls = "/static_resources/clusters/0/transport_socket/typed_config";
    let common = format!("{tls}/common_tls_context");
    let chain = text(&format!("{common}/tls_certificates/0/certificate_chain/inline_string"))?;
    let key = text(&format!("{common}/tls_certificates/0/private_key/inline_string"))?;
    let roots = text(&format!("{common}/validation_context/trusted_ca/inline_string"))?;
    let config = ClientTlsConfig::new()
        .domain_name(text(&format!("{tls}/sni"))?)
        .identity(Identity::from_pem(chain, key))
        .ca_certificate(Certificate::from_pem(roots));
    let endpoint = Endpoint::from_shared(format!("https://{address}")).ok()?.tls_config(config).ok()?;
    let mut client = AggregatedDiscoveryServiceClient::new(endpoint.connect().await.ok()?);
    let node = Node { id: text("/node/id")?.to_owned(), ..Node::default() };
    let request = |kind: ResourceType, names: &[&str]| DeltaDiscoveryRequest {
        node: Some(node.clone()),
        type_url: kind.url().to_owned(),
        resource_names_subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
        ..DeltaDiscoveryRequest::default()
    };
    let requests = [request(ResourceType::Cluster, &[]), request(ResourceType::Listener, &[])];
    // The stream of requests stays open until there is an answer.
    let outgoing = tokio_stream::StreamExt::chain(tokio_stream::iter(requests), tokio_stream::pending());
    let mut responses = client.delta_aggregated_resources(outgoing).await.ok()?.into_inner();
    responses.message().await.ok()?.map(drop)
}
