//! A model of an Envoy: it connects in the order of its bootstrap, resumes with what it holds, and ACKs every
//! response.
//!
//! Owns the choice of the next replica, and what a proxy sees: what it holds, what it was sent although it
//! held it, and what it was sent although it had got something newer.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{Secret, secret};
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use smc_testkit::ads::{Credentials, DeltaStream, ack};
use smc_testkit::subscriptions::{Followed, Subscriptions};
use smc_xds::names::SERVICE_CERTIFICATE;
use smc_xds::resource::ResourceType;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};
use turmoil::net::TcpStream;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::clock::SimulatedClock;
use crate::replica::{Replica, host};
use crate::trace::Trace;

/// How long it waits before it connects again, at first; twice as long after each failure.
const BACK_OFF: Duration = Duration::from_millis(25);

/// The longest pause.
const LONGEST_BACK_OFF: Duration = Duration::from_millis(400);

/// How long a replica is passed over that could not be reached, or that broke a stream off.
const EJECTED: Duration = Duration::from_secs(1);

/// By type and name, the version of a resource.
pub type Versions = BTreeMap<(String, String), String>;

/// What an Envoy has received.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Received {
    /// The replica that serves it now.
    pub replica: Option<String>,
    /// The replicas in the order of its bootstrap.
    pub order: Vec<String>,
    /// The serial number of its service certificate, hexadecimal.
    pub certificate: Option<String>,
    /// How many streams have ended.
    pub ended: u64,
    /// What it holds.
    pub held: Versions,
    /// What it was sent although it held the same.
    pub resent: Vec<String>,
    /// What it was sent although it held, or had held, something newer.
    pub outdated: Vec<String>,
    /// The contents that it held before what it holds.
    past: BTreeSet<(String, String, String)>,
    subscriptions: Subscriptions,
}

impl Received {
    /// Takes a response in.
    fn take(&mut self, kind: &str, response: &DeltaDiscoveryResponse) {
        for resource in &response.resources {
            let (key, version) = ((kind.to_owned(), resource.name.clone()), resource.version.clone());
            let shown = format!("{kind} {} {version}", resource.name);
            let old = self.held.insert(key.clone(), version.clone());
            if old.as_deref().map(content) == Some(content(&version)) {
                self.resent.push(shown);
            } else if self.past.contains(&(key.0.clone(), key.1.clone(), content(&version).to_owned())) {
                self.outdated.push(shown);
            }
            self.past.extend(old.map(|old| (key.0, key.1, content(&old).to_owned())));
        }
        for name in &response.removed_resources {
            let key = (kind.to_owned(), name.clone());
            let old = self.held.remove(&key);
            self.past.extend(old.map(|old| (key.0, key.1, content(&old).to_owned())));
        }
    }

    /// What it holds, whatever replica sent it.
    pub fn contents(&self) -> Versions {
        self.held.iter().map(|(key, version)| (key.clone(), content(version).to_owned())).collect()
    }

    /// What it states to hold of a type, when it resumes.
    fn holds(&self, kind: &str) -> impl Iterator<Item = (String, String)> {
        let of_kind = self.held.iter().filter(move |((held, _), _)| held == kind);
        of_kind.map(|((_, name), version)| (name.clone(), version.clone()))
    }
}

/// One Envoy. Clones are the same one.
#[derive(Clone)]
pub struct Envoy {
    name: String,
    bootstrap: watch::Sender<Option<String>>,
    received: watch::Sender<Received>,
    trace: Trace,
}

impl Envoy {
    /// An Envoy that waits for its bootstrap.
    pub fn new(name: impl Into<String>, trace: Trace) -> Self {
        // No resource refers to the certificate before the mesh has a service.
        let subscriptions = Subscriptions::to(ResourceType::Secret, SERVICE_CERTIFICATE);
        let received = watch::Sender::new(Received { subscriptions, ..Received::default() });
        Self { name: name.into(), bootstrap: watch::Sender::new(None), received, trace }
    }

    /// From now on, what it held before is not outdated.
    pub fn forgive(&self) {
        self.received.send_modify(|received| received.past.clear());
    }

    /// The name of its host, which the trace uses too.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives it its bootstrap.
    pub fn boot(&self, bootstrap: String) {
        self.bootstrap.send_replace(Some(bootstrap));
    }

    /// What it has received so far.
    pub fn received(&self) -> Received {
        self.received.borrow().clone()
    }

    /// What it was sent and should not have been: what it held, or something older.
    pub fn wronged(&self) -> Option<String> {
        let received = self.received.borrow();
        let resent =
            received.resent.first().map(|what| format!("{} is sent what it holds: {what}", self.name));
        resent.or_else(|| received.outdated.first().map(|what| format!("{} goes back to {what}", self.name)))
    }

    /// Whether a replica serves it.
    pub fn is_served(&self) -> bool {
        self.received.borrow().replica.is_some()
    }

    /// Whether this replica serves it.
    pub fn is_served_by(&self, replica: &Replica) -> bool {
        let received = self.received.borrow();
        let serving = received.replica.as_ref().and_then(|address| address.split_once(':'));
        serving.is_some_and(|(serving, _)| serving == host(replica.id()))
    }

    /// Whether it holds a cluster whose name contains `name`.
    pub fn holds_cluster(&self, name: &str) -> bool {
        self.received.borrow().held.keys().any(|(kind, held)| kind == "Cluster" && held.contains(name))
    }

    /// Whether its owner serves it: of these replicas, which are ready, the first in the order of its
    /// bootstrap.
    pub fn is_served_by_owner<'a>(&self, ready: impl IntoIterator<Item = &'a Replica>) -> bool {
        let ready: BTreeSet<String> = ready.into_iter().map(|replica| host(replica.id())).collect();
        let is_ready =
            |address: &&String| address.split_once(':').is_some_and(|(host, _)| ready.contains(host));
        let received = self.received.borrow();
        received.replica.is_some() && received.replica.as_ref() == received.order.iter().find(is_ready)
    }

    /// The software of its host: connects to the first replica in its order that it does not pass over.
    pub async fn run(self) -> turmoil::Result {
        let mut given = self.bootstrap.subscribe();
        let text = given.wait_for(Option::is_some).await?.clone().unwrap_or_default();
        let credentials = Credentials::read(&text).ok_or("not a bootstrap")?;
        self.received.send_modify(|received| received.order.clone_from(&credentials.controllers));
        let mut ejected: BTreeMap<&str, Instant> = BTreeMap::new();
        let mut pause = BACK_OFF;
        loop {
            ejected.retain(|_, until| *until > Instant::now());
            let order = credentials.controllers.iter().map(String::as_str);
            let chosen = order.clone().find(|address| !ejected.contains_key(address));
            // As Envoy does in panic: where all are ejected, none is.
            let address = chosen.or(order.clone().next()).ok_or("a bootstrap without replicas")?;
            let end = match self.stream(&credentials, address).await {
                Ok(()) => "the stream ended".to_owned(),
                // Without the message, in which the library may differ from run to run.
                Err(error) => {
                    ejected.insert(address, Instant::now() + EJECTED);
                    match error.downcast_ref::<tonic::Status>() {
                        Some(status) => format!("the stream ended: {:?}", status.code()),
                        None => "not connected".to_owned(),
                    }
                }
            };
            self.trace.note(&self.name, format!("{address}: {end}"));
            let served = self.received.borrow().replica.is_some();
            self.received.send_modify(|received| {
                received.ended += u64::from(received.replica.take().is_some());
            });
            pause = if served { BACK_OFF } else { (pause * 2).min(LONGEST_BACK_OFF) };
            sleep(pause).await;
        }
    }

    async fn stream(&self, credentials: &Credentials, address: &str) -> Result<(), Box<dyn Error>> {
        let channel = connect(credentials, address).await?;
        let first = {
            let received = self.received.borrow();
            received
                .subscriptions
                .first(credentials.node(), |kind| received.holds(kind_of(kind.url())).collect())
        };
        let mut stream = DeltaStream::open(channel, first).await?;
        while let Some(response) = stream.next().await? {
            let followed = self.note(address, &response)?;
            stream.send(ack(&response)).await?;
            for request in followed.requests() {
                stream.send(request).await?;
            }
        }
        Ok(())
    }

    /// Takes a response in, and returns the subscriptions that follow from it.
    fn note(&self, address: &str, response: &DeltaDiscoveryResponse) -> Result<Followed, Box<dyn Error>> {
        let names: Vec<_> = response.resources.iter().map(|resource| resource.name.as_str()).collect();
        let kind = kind_of(&response.type_url);
        self.trace.note(&self.name, format!("{address}: {kind} {}", names.join(", ")));
        let certificate = match response.resources.iter().find(|found| found.name == SERVICE_CERTIFICATE) {
            Some(resource) => Some(serial(&resource.resource.as_ref().ok_or("an empty resource")?.value)?),
            None => None,
        };
        if let Some(serial) = &certificate {
            self.trace.note(&self.name, format!("{address}: certificate {serial}"));
        }
        let known = ResourceType::from_url(&response.type_url).ok_or("an unknown type")?;
        let mut followed = Followed::default();
        self.received.send_modify(|received| {
            received.replica = Some(address.to_owned());
            received.certificate = certificate.or(received.certificate.take());
            received.take(kind, response);
            followed = received.subscriptions.follow(known, &response.resources, &response.removed_resources);
            for (kind, names) in &followed.unsubscribe {
                // As Envoy does, it forgets what it does not use.
                for name in names {
                    received.held.remove(&(kind_of(kind.url()).to_owned(), name.clone()));
                }
            }
        });
        Ok(followed)
    }
}

/// The part of a version that says what the content is. The rest says how far the replica had come.
fn content(version: &str) -> &str {
    version.split_once('@').map_or(version, |(content, _)| content)
}

/// The last word of a type's URL.
fn kind_of(url: &str) -> &str {
    url.rsplit('.').next().unwrap_or_default()
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
    Ok(HEXLOWER.encode(leaf.raw_serial()))
}

/// Connects to `address` as the bootstrap says.
async fn connect(credentials: &Credentials, address: &str) -> Result<Channel, Box<dyn Error>> {
    let name = ServerName::try_from(credentials.server_name.clone())?;
    let tls = TlsConnector::from(Arc::new(credentials.tls(Arc::new(SimulatedClock))));
    let address = address.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let (name, tls, address) = (name.clone(), tls.clone(), address.clone());
        async move {
            let socket = TcpStream::connect(address).await?;
            tls.connect(name, socket).await.map(TokioIo::new)
        }
    });
    // As in the bootstrap: Envoy detects a half-open connection by these.
    let endpoint = Endpoint::from_static("http://smc-controller")
        .connect_timeout(Duration::from_secs(1))
        .http2_keep_alive_interval(Duration::from_secs(5))
        .keep_alive_timeout(Duration::from_secs(2))
        .keep_alive_while_idle(true);
    Ok(endpoint.connect_with_connector(connector).await?)
}
