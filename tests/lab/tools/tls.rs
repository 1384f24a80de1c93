//! Owns `smc-lab tls`: a TLS client that trusts every server, to learn how the server judges the
//! client's certificate.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use smc_types::duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::Instant;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::TcpResult;

/// Limit of the reply that goes into the report, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Flags of `smc-lab tls`.
#[derive(Args, Clone, Debug)]
pub struct TlsArgs {
    /// HOST:PORT
    address: String,
    /// The server name to send (SNI).
    #[arg(long, default_value = "localhost")]
    server_name: String,
    /// A PEM file with the client's certificate chain; by default the client has no certificate.
    #[arg(long, requires = "key", value_name = "FILE")]
    cert: Option<PathBuf>,
    /// A PEM file with the certificate's private key.
    #[arg(long, requires = "cert", value_name = "FILE")]
    key: Option<PathBuf>,
    /// Send this text; `\r` and `\n` in it are escapes.
    #[arg(long, default_value = "", value_name = "TEXT")]
    send: String,
    /// Begin so many handshakes with their first message, and send nothing more. The reply says how many the
    /// server closed within the time limit, and when: `{"closed":2,"first_millis":5,"last_millis":9}`.
    #[arg(long, value_name = "NUMBER", conflicts_with = "send")]
    half: Option<u16>,
    /// Time limit of the whole exchange.
    #[arg(long, default_value = "5s", value_parser = duration::parse)]
    timeout: Duration,
}

/// Connects with the certificate, sends, and reads one reply. A failure is part of the result. In
/// TLS 1.3 the client learns of a refused certificate only when it reads.
pub async fn tls(args: &TlsArgs) -> TcpResult {
    let mut result = TcpResult::default();
    if let Some(count) = args.half {
        match half_made(args, count).await {
            Ok(reply) => (result.connected, result.reply) = (true, Some(reply)),
            Err(error) => result.fail(&error),
        }
        return result;
    }
    let outcome = tokio::time::timeout(args.timeout, converse(args, &mut result)).await;
    if let Err(error) = outcome.unwrap_or_else(|_| Err(super::timeout())) {
        result.fail(&error);
    }
    result
}

async fn converse(args: &TlsArgs, result: &mut TcpResult) -> io::Result<()> {
    let name = ServerName::try_from(args.server_name.clone()).map_err(io::Error::other)?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config(args).map_err(io::Error::other)?));
    let stream = super::connect(&args.address).await?;
    result.connected = true;
    let mut stream = connector.connect(name, stream).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    result.server_serial = shown.and_then(serial);
    let text = args.send.replace("\\r", "\r").replace("\\n", "\n");
    stream.write_all(text.as_bytes()).await?;
    let mut answer = vec![0; MAX_ANSWER_BYTES];
    let length = stream.read(&mut answer).await?;
    if length == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
    }
    result.reply = Some(String::from_utf8_lossy(&answer[..length]).into_owned());
    Ok(())
}

/// Begins handshakes, and reports how many the server closed.
async fn half_made(args: &TlsArgs, count: u16) -> io::Result<String> {
    let name = ServerName::try_from(args.server_name.clone()).map_err(io::Error::other)?;
    let config = Arc::new(config(args).map_err(io::Error::other)?);
    let mut connections = JoinSet::new();
    let began = Instant::now();
    for _ in 0..count {
        let mut hello = Vec::new();
        let mut handshake =
            ClientConnection::new(Arc::clone(&config), name.clone()).map_err(io::Error::other)?;
        handshake.write_tls(&mut hello)?;
        let mut stream = super::connect(&args.address).await?;
        stream.write_all(&hello).await?;
        connections.spawn(async move {
            // Reads the server's messages, without an answer, until the server closes or resets.
            let mut ignored = [0; 4096];
            while stream.read(&mut ignored).await.is_ok_and(|length| length > 0) {}
            began.elapsed()
        });
    }
    let mut closed = Vec::new();
    let all = async {
        while let Some(ended) = connections.join_next().await {
            closed.extend(ended.map(|after| after.as_millis()));
        }
    };
    // Those that are still open are not counted.
    let _ = tokio::time::timeout(args.timeout, all).await;
    let (first, last) = (closed.first().copied().unwrap_or(0), closed.last().copied().unwrap_or(0));
    Ok(format!(r#"{{"closed":{},"first_millis":{first},"last_millis":{last}}}"#, closed.len()))
}

/// A certificate's serial number; `None` if it cannot be parsed.
fn serial(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(format!("{:x}", certificate.serial))
}

fn config(args: &TlsArgs) -> Result<ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(provider)));
    Ok(match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => {
            let chain = CertificateDer::pem_file_iter(cert)?.collect::<Result<Vec<_>, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key)?)?
        }
        _ => builder.with_no_client_auth(),
    })
}

/// Accepts every server certificate: this client tests how the server judges the client.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
