//! What a proxy has, and clients of a replica: one that speaks delta ADS, and a bare TLS connection.

use std::net::SocketAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use envoy_types::pb::google;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use smc_mesh::resource::ResourceType;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status, Streaming};

use super::replica::{PATIENCE, Replica};

/// What a bootstrap gives a proxy.
#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) node: String,
    pub(super) certificate: Option<(String, String)>,
    pub(super) roots: String,
}

impl Credentials {
    pub(super) fn node(&self) -> Node {
        Node { id: self.node.clone(), ..Node::default() }
    }
}

/// A delta ADS stream.
pub(super) struct Client {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    pub(super) responses: Streaming<DeltaDiscoveryResponse>,
}

impl Client {
    pub(super) async fn channel(
        address: SocketAddr,
        credentials: &Credentials,
    ) -> Result<Channel, tonic::transport::Error> {
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&credentials.roots))
            .domain_name(smc_mesh::pki::CONTROLLER_IDENTITY);
        if let Some((chain, key)) = &credentials.certificate {
            tls = tls.identity(Identity::from_pem(chain, key));
        }
        let uri = format!("https://{address}");
        Endpoint::from_shared(uri).unwrap().tls_config(tls)?.connect().await
    }

    /// Opens a stream. With TLS 1.3 a client learns that its certificate was refused only when it first reads,
    /// thus at the latest with the stream's headers.
    pub(super) async fn try_connect(
        address: SocketAddr,
        credentials: &Credentials,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let channel = Self::channel(address, credentials).await?;
        let (requests, receiver) = mpsc::channel(16);
        let mut ads = AggregatedDiscoveryServiceClient::new(channel);
        let responses = ads.delta_aggregated_resources(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(Self { requests, responses })
    }

    pub(super) async fn connect(replica: &Replica, credentials: &Credentials) -> Self {
        Self::try_connect(replica.xds, credentials).await.unwrap()
    }

    /// Opens a stream, asks for a type, and takes the first answer.
    pub(super) async fn served(
        replica: &Replica,
        credentials: &Credentials,
        kind: ResourceType,
    ) -> (Self, DeltaDiscoveryResponse) {
        let mut client = Self::connect(replica, credentials).await;
        client.send(subscribe(credentials, kind)).await;
        let first = client.receive().await;
        (client, first)
    }

    /// Opens a stream that is refused, and tells how.
    pub(super) async fn refused(replica: &Replica, credentials: &Credentials) -> Code {
        match Self::try_connect(replica.xds, credentials).await {
            Ok(mut client) => client.ended().await,
            Err(error) => error.downcast::<Status>().expect("a refusal by the server").code(),
        }
    }

    pub(super) async fn send(&self, request: DeltaDiscoveryRequest) {
        self.requests.send(request).await.unwrap();
    }

    pub(super) async fn receive(&mut self) -> DeltaDiscoveryResponse {
        let received = tokio::time::timeout(PATIENCE, self.responses.message()).await;
        received.expect("an answer in time").unwrap().expect("an open stream")
    }

    /// Reads on to the stream's end, and says how it ended.
    pub(super) async fn ended(&mut self) -> Code {
        let end = async {
            loop {
                match self.responses.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return Code::Ok,
                    Err(status) => return status.code(),
                }
            }
        };
        tokio::time::timeout(PATIENCE, end).await.expect("an end in time")
    }
}

/// The first request for a type: everything, if the type has that.
pub(super) fn subscribe(credentials: &Credentials, kind: ResourceType) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: Some(credentials.node()),
        type_url: kind.url().to_owned(),
        ..DeltaDiscoveryRequest::default()
    }
}

/// The acknowledgement of a response.
pub(super) fn ack(response: &DeltaDiscoveryResponse) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: response.type_url.clone(),
        response_nonce: response.nonce.clone(),
        ..DeltaDiscoveryRequest::default()
    }
}

/// The refusal of a response.
pub(super) fn nack(response: &DeltaDiscoveryResponse, message: &str) -> DeltaDiscoveryRequest {
    let (code, message) = (Code::InvalidArgument as i32, message.to_owned());
    let error_detail = Some(google::rpc::Status { code, message, details: Vec::new() });
    DeltaDiscoveryRequest { error_detail, ..ack(response) }
}

/// A TLS connection on which nothing has been said yet.
pub(super) async fn tls(replica: &Replica, credentials: &Credentials) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(credentials.roots.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let (chain, key) = credentials.certificate.as_ref().unwrap();
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let socket = TcpStream::connect(replica.xds).await.unwrap();
    let name = ServerName::try_from(smc_mesh::pki::CONTROLLER_IDENTITY).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap()
}

/// Waits until the other side has closed a connection, in order or not.
pub(super) async fn closed(mut connection: TlsStream<TcpStream>) {
    let mut rest = Vec::new();
    let end = connection.read_to_end(&mut rest);
    let _ = tokio::time::timeout(PATIENCE, end).await.expect("the connection is closed in time");
}
