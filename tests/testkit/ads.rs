//! A client of the aggregated discovery service, configured by a bootstrap.
//!
//! Owns what every such client does: it reads the bootstrap, connects over mTLS, opens a delta stream, and
//! builds the requests. The caller decides what to subscribe to and what to acknowledge.

use std::fmt::Display;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use envoy_types::pb::google;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use smc_xds::resource::ResourceType;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status, Streaming};

use crate::subscriptions;

/// The cluster of the controllers in a bootstrap.
const CLUSTER: &str = "/static_resources/clusters/0";

/// Requests that may wait to be sent.
const QUEUED_REQUESTS: usize = 64;

/// The largest response, in bytes.
const MAX_RESPONSE_BYTES: usize = 32 << 20;

/// What a bootstrap gives a proxy.
#[derive(Clone)]
pub struct Credentials {
    /// The id of its node.
    pub node: String,
    /// The controllers as `HOST:PORT`, the preferred one first.
    pub controllers: Vec<String>,
    /// The name that the certificate of a controller must prove.
    pub server_name: String,
    /// The certificate chain and the private key, as PEM; `None` for a client that does not authenticate.
    pub certificate: Option<(String, String)>,
    /// The trusted roots, as PEM.
    pub roots: String,
}

impl Credentials {
    /// Reads a bootstrap; `None` if it is not one.
    pub fn read(bootstrap: &str) -> Option<Self> {
        let json: Value = serde_json::from_str(bootstrap).ok()?;
        let text = |pointer: &str| Some(json.pointer(pointer)?.as_str()?.to_owned());
        let tls = format!("{CLUSTER}/transport_socket/typed_config");
        let inline = |field: &str| text(&format!("{tls}/common_tls_context/{field}/inline_string"));
        let address = |endpoint: &Value| {
            let socket = endpoint.pointer("/lb_endpoints/0/endpoint/address/socket_address")?;
            Some(format!("{}:{}", socket["address"].as_str()?, socket["port_value"].as_u64()?))
        };
        let endpoints = json.pointer(&format!("{CLUSTER}/load_assignment/endpoints"))?.as_array()?;
        Some(Self {
            node: text("/node/id")?,
            controllers: endpoints.iter().map(address).collect::<Option<_>>()?,
            server_name: text(&format!("{tls}/sni"))?,
            certificate: Some((
                inline("tls_certificates/0/certificate_chain")?,
                inline("tls_certificates/0/private_key")?,
            )),
            roots: inline("validation_context/trusted_ca")?,
        })
    }

    /// The node of its requests.
    pub fn node(&self) -> Node {
        Node { id: self.node.clone(), ..Node::default() }
    }

    /// The TLS configuration of a client that verifies certificates at the time of `clock`.
    pub fn tls(&self, clock: Arc<dyn TimeProvider>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(self.roots.as_bytes()) {
            roots.add(root.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_details(provider, clock)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &self.certificate {
            Some((chain, key)) => {
                let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap).collect();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }

    /// Connects to the controller at `address` over TCP and TLS. With TLS 1.3 a client learns that its
    /// certificate was refused only when it first reads.
    pub async fn connect(&self, address: impl Display) -> Result<Channel, tonic::transport::Error> {
        self.endpoint(address)?.connect().await
    }

    /// The controller at `address`, for a connection over TCP and TLS.
    pub fn endpoint(&self, address: impl Display) -> Result<Endpoint, tonic::transport::Error> {
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&self.roots))
            .domain_name(&self.server_name);
        if let Some((chain, key)) = &self.certificate {
            tls = tls.identity(Identity::from_pem(chain, key));
        }
        Endpoint::from_shared(format!("https://{address}"))?.tls_config(tls)
    }
}

/// A delta stream of the aggregated discovery service. Dropping it ends the stream.
pub struct DeltaStream {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
}

impl DeltaStream {
    /// Opens a stream that begins with these requests.
    pub async fn open(
        channel: Channel,
        first: impl IntoIterator<Item = DeltaDiscoveryRequest>,
    ) -> Result<Self, Status> {
        let (requests, receiver) = mpsc::channel(QUEUED_REQUESTS);
        for request in first {
            requests.try_send(request).unwrap();
        }
        let mut ads =
            AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
        let responses = ads.delta_aggregated_resources(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(Self { requests, responses })
    }

    /// Sends a request, unless the stream has ended.
    pub async fn send(&self, request: DeltaDiscoveryRequest) -> Result<(), Status> {
        let ended = |_| Status::unavailable("the stream has ended");
        self.requests.send(request).await.map_err(ended)
    }

    /// The next response; `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<DeltaDiscoveryResponse>, Status> {
        self.responses.message().await
    }
}

/// The first request of a stream: it subscribes to resources of a type. Without names it is the wildcard,
/// for a type that has one.
pub fn subscribe(credentials: &Credentials, kind: ResourceType, names: &[&str]) -> DeltaDiscoveryRequest {
    let names = names.iter().map(|&name| name.to_owned()).collect();
    DeltaDiscoveryRequest { node: Some(credentials.node()), ..subscriptions::subscribe(kind, names) }
}

/// The ACK of a response.
pub fn ack(response: &DeltaDiscoveryResponse) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: response.type_url.clone(),
        response_nonce: response.nonce.clone(),
        ..DeltaDiscoveryRequest::default()
    }
}

/// The NACK of a response.
pub fn nack(response: &DeltaDiscoveryResponse, message: &str) -> DeltaDiscoveryRequest {
    let (code, message) = (Code::InvalidArgument as i32, message.to_owned());
    let error_detail = Some(google::rpc::Status { code, message, details: Vec::new() });
    DeltaDiscoveryRequest { error_detail, ..ack(response) }
}
