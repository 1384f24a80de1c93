//! A model of an Envoy: it connects as its bootstrap says, asks for its clusters and its certificate, and acknowledges
//! whatever it is sent.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{Secret, secret};
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use smc_mesh::pki::encode_hex;
use smc_mesh::resource::ResourceType;
use smc_mesh::translate::names::SERVICE_CERTIFICATE;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};
use turmoil::net::TcpStream;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::clock::SimulatedClock;
use crate::trace::Trace;

/// How long it waits before it turns to the next replica.
const BACK_OFF: Duration = Duration::from_millis(25);

/// Where a bootstrap says how to authenticate.
const TLS: &str = "/static_resources/clusters/0/transport_socket/typed_config";

/// What an Envoy was told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// The replica that serves it now.
    pub by: Option<String>,
    /// The serial number of its service certificate, hexadecimal.
    pub certificate: Option<String>,
    /// How many streams have ended.
    pub ended: u64,
}

/// One Envoy. Clones are the same one.
#[derive(Clone)]
pub struct Envoy {
    name: String,
    bootstrap: watch::Sender<Option<String>>,
    told: watch::Sender<Told>,
    trace: Trace,
}

impl Envoy {
    /// An Envoy that waits for its bootstrap.
    pub fn new(name: impl Into<String>, trace: Trace) -> Self {
        let (bootstrap, told) = (watch::Sender::new(None), watch::Sender::new(Told::default()));
        Self { name: name.into(), bootstrap, told, trace }
    }

    /// The name of its host, and in the trace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives it its bootstrap.
    pub fn boot(&self, bootstrap: String) {
        self.bootstrap.send_replace(Some(bootstrap));
    }

    /// What it was told until now.
    pub fn told(&self) -> Told {
        self.told.borrow().clone()
    }

    /// The software of its host: turns to one replica after the other, and stays with the one that serves it.
    pub async fn run(self) -> turmoil::Result {
        let mut given = self.bootstrap.subscribe();
        let text = given.wait_for(Option::is_some).await?.clone().unwrap_or_default();
        let bootstrap = Bootstrap::read(&text).ok_or("not a bootstrap")?;
        for address in bootstrap.controllers.iter().cycle() {
            let end = match self.stream(&bootstrap, address).await {
                Ok(()) => "the stream ended".to_owned(),
                // Not the text: what the library says may differ from run to run.
                Err(error) => match error.downcast_ref::<tonic::Status>() {
                    Some(status) => format!("the stream ended: {:?}", status.code()),
                    None => "not connected".to_owned(),
                },
            };
            self.trace.note(&self.name, format!("{address}: {end}"));
            self.told.send_modify(|told| {
                told.ended += u64::from(told.by.take().is_some());
            });
            sleep(BACK_OFF).await;
        }
        Ok(())
    }

    async fn stream(&self, bootstrap: &Bootstrap, address: &str) -> Result<(), Box<dyn Error>> {
        let channel = bootstrap.connect(address).await?;
        let (requests, receiver) = mpsc::channel(16);
        for (kind, name) in [(ResourceType::Cluster, None), (ResourceType::Secret, Some(SERVICE_CERTIFICATE))]
        {
            requests.send(bootstrap.subscribe(kind, name)).await?;
        }
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let responses = client.delta_aggregated_resources(ReceiverStream::new(receiver)).await?;
        let mut responses = responses.into_inner();
        while let Some(response) = responses.message().await? {
            self.take(address, &response)?;
            let acknowledged = DeltaDiscoveryRequest {
                type_url: response.type_url,
                response_nonce: response.nonce,
                ..DeltaDiscoveryRequest::default()
            };
            requests.send(acknowledged).await?;
        }
        Ok(())
    }

    fn take(&self, address: &str, response: &DeltaDiscoveryResponse) -> Result<(), Box<dyn Error>> {
        let names: Vec<_> = response.resources.iter().map(|resource| resource.name.as_str()).collect();
        let kind = response.type_url.rsplit('.').next().unwrap_or_default();
        self.trace.note(&self.name, format!("{address}: {kind} {}", names.join(", ")));
        let certificate = match response.resources.iter().find(|found| found.name == SERVICE_CERTIFICATE) {
            Some(resource) => Some(serial(&resource.resource.as_ref().ok_or("an empty resource")?.value)?),
            None => None,
        };
        if let Some(serial) = &certificate {
            self.trace.note(&self.name, format!("{address}: certificate {serial}"));
        }
        self.told.send_modify(|told| {
            told.by = Some(address.to_owned());
            told.certificate = certificate.or(told.certificate.take());
        });
        Ok(())
    }
}

/// The serial number of the certificate in an encoded secret.
fn serial(secret: &[u8]) -> Result<String, Box<dyn Error>> {
    use prost::Message;
    let Some(secret::Type::TlsCertificate(certificate)) = Secret::decode(secret)?.r#type else {
        return Err("not a certificate".into());
    };
    let pem = match certificate.certificate_chain.and_then(|chain| chain.specifier) {
        Some(Specifier::InlineString(text)) => text.into_bytes(),
        Some(Specifier::InlineBytes(bytes)) => bytes,
        _ => return Err("a certificate that is elsewhere".into()),
    };
    let leaf = CertificateDer::from_pem_slice(&pem)?;
    let (_, leaf) = X509Certificate::from_der(&leaf)?;
    Ok(encode_hex(leaf.raw_serial()))
}

/// What a bootstrap says.
struct Bootstrap {
    node: String,
    /// `HOST:PORT`, the preferred first.
    controllers: Vec<String>,
    sni: String,
    tls: Arc<ClientConfig>,
}

impl Bootstrap {
    fn read(text: &str) -> Option<Self> {
        let json: Value = serde_json::from_str(text).ok()?;
        let text = |pointer: &str| Some(json.pointer(pointer)?.as_str()?.to_owned());
        let common = |what: &str| text(&format!("{TLS}/common_tls_context/{what}/inline_string"));
        let endpoints = json.pointer("/static_resources/clusters/0/load_assignment/endpoints")?.as_array()?;
        let address = |endpoint: &Value| {
            let socket = endpoint.pointer("/lb_endpoints/0/endpoint/address/socket_address")?;
            Some(format!("{}:{}", socket["address"].as_str()?, socket["port_value"].as_u64()?))
        };
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(common("validation_context/trusted_ca")?.as_bytes()) {
            roots.add(root.ok()?).ok()?;
        }
        let chain = common("tls_certificates/0/certificate_chain")?;
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>().ok()?;
        let key = common("tls_certificates/0/private_key")?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).ok()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = ClientConfig::builder_with_details(provider, Arc::new(SimulatedClock))
            .with_safe_default_protocol_versions()
            .ok()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .ok()?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Some(Self {
            node: text("/node/id")?,
            controllers: endpoints.iter().map(address).collect::<Option<_>>()?,
            sni: text(&format!("{TLS}/sni"))?,
            tls: Arc::new(tls),
        })
    }

    async fn connect(&self, address: &str) -> Result<Channel, Box<dyn Error>> {
        let (name, tls) = (ServerName::try_from(self.sni.clone())?, Arc::clone(&self.tls));
        let address = address.to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let (name, tls, address) = (name.clone(), Arc::clone(&tls), address.clone());
            async move {
                let socket = TcpStream::connect(address).await?;
                TlsConnector::from(tls).connect(name, socket).await.map(TokioIo::new)
            }
        });
        // As the bootstrap says: Envoy finds a half-open connection by these.
        let endpoint = Endpoint::from_static("http://smc-controller")
            .connect_timeout(Duration::from_secs(1))
            .http2_keep_alive_interval(Duration::from_secs(5))
            .keep_alive_timeout(Duration::from_secs(2))
            .keep_alive_while_idle(true);
        Ok(endpoint.connect_with_connector(connector).await?)
    }

    fn subscribe(&self, kind: ResourceType, name: Option<&str>) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            node: Some(Node { id: self.node.clone(), ..Node::default() }),
            type_url: kind.url().to_owned(),
            resource_names_subscribe: name.map(str::to_owned).into_iter().collect(),
            ..DeltaDiscoveryRequest::default()
        }
    }
}
