//! Clients of a replica: a delta ADS stream, and a bare TLS connection.

use std::net::SocketAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use rustls::pki_types::ServerName;
use rustls::time_provider::DefaultTimeProvider;
use smc_testkit::ads::{Credentials, DeltaStream, subscribe};
use smc_xds::resource::ResourceType;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::{Code, Status};

use super::replica::{PATIENCE, Replica};

/// A delta ADS stream.
pub(super) struct Client(DeltaStream);

impl Client {
    /// Opens a stream. A refusal shows at the latest with the stream's headers.
    pub(super) async fn try_connect(
        address: SocketAddr,
        credentials: &Credentials,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        Ok(Self(DeltaStream::open(credentials.connect(address).await?, []).await?))
    }

    pub(super) async fn connect(replica: &Replica, credentials: &Credentials) -> Self {
        Self::try_connect(replica.xds, credentials).await.unwrap()
    }

    /// Opens a stream, subscribes to a type, and receives the first response.
    pub(super) async fn served(
        replica: &Replica,
        credentials: &Credentials,
        kind: ResourceType,
    ) -> (Self, DeltaDiscoveryResponse) {
        let mut client = Self::connect(replica, credentials).await;
        client.send(subscribe(credentials, kind, &[])).await;
        let first = client.receive().await;
        (client, first)
    }

    /// Opens a stream that is refused, and returns the status.
    pub(super) async fn refused(replica: &Replica, credentials: &Credentials) -> Code {
        match Self::try_connect(replica.xds, credentials).await {
            Ok(mut client) => client.ended().await,
            Err(error) => error.downcast::<Status>().expect("a refusal by the server").code(),
        }
    }

    pub(super) async fn send(&self, request: DeltaDiscoveryRequest) {
        self.0.send(request).await.unwrap();
    }

    /// The next response, without a time limit; `None` at the end of the stream.
    pub(super) async fn try_receive(&mut self) -> Result<Option<DeltaDiscoveryResponse>, Status> {
        self.0.next().await
    }

    pub(super) async fn receive(&mut self) -> DeltaDiscoveryResponse {
        let received = tokio::time::timeout(PATIENCE, self.0.next()).await;
        received.expect("a response in time").unwrap().expect("an open stream")
    }

    /// Reads to the stream's end, and returns its status.
    pub(super) async fn ended(&mut self) -> Code {
        let end = async {
            loop {
                match self.0.next().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return Code::Ok,
                    Err(status) => return status.code(),
                }
            }
        };
        tokio::time::timeout(PATIENCE, end).await.expect("an end in time")
    }
}

/// A TLS connection on which nothing has been sent yet.
pub(super) async fn tls(replica: &Replica, credentials: &Credentials) -> TlsStream<TcpStream> {
    let config = credentials.tls(Arc::new(DefaultTimeProvider));
    let socket = TcpStream::connect(replica.xds).await.unwrap();
    let name = ServerName::try_from(credentials.server_name.clone()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap()
}

/// Waits until the peer has closed or reset a connection.
pub(super) async fn closed(mut connection: TlsStream<TcpStream>) {
    let mut rest = Vec::new();
    let end = connection.read_to_end(&mut rest);
    let _ = tokio::time::timeout(PATIENCE, end).await.expect("the connection is closed in time");
}
