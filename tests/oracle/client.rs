//! Applications, or sidecars of callers: raw HTTP/1.1 and plain connections, with whatever bytes. HTTP/2
//! is in [`http2`].

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use smc_policy::{Request, Version};
use tokio::net::TcpSocket;

use crate::certificates::Identity;
use crate::http2;

/// The longest wait for Envoy. It answers within a millisecond; the rest is for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// After this time, a connection on which nothing is said waits for its client.
const SILENCE: Duration = Duration::from_secs(2);

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The status and the body.
    Response(u16, String),
    /// HTTP/2: the connection or the stream was closed, and not for other requests.
    Malformed,
    /// The connection was closed.
    Closed,
}

/// Where a sidecar listens.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    /// At a socket of Unix.
    Socket(&'a Path),
    /// At an address, to which a client connects from another one, and claims to be at a third.
    Address { address: SocketAddr, source: Ipv4Addr, claims: Ipv4Addr },
}

/// Where a connection goes.
pub(crate) struct Dial<'a> {
    pub(crate) place: Place<'a>,
    /// The address that the caller dialled, before interception.
    pub(crate) destination: String,
    pub(crate) port: u16,
    /// The certificate of the caller's sidecar; `None` for an application beside its own.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// The name of the server in the TLS handshake; `None` for a handshake without one.
    pub(crate) server_name: Option<String>,
}

/// What a client hears that says nothing itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The application answers the connection, after the mesh let it in.
    Greeting,
    /// The connection is closed.
    Nothing,
    /// Envoy waits for a request.
    Requests,
}

/// The client's end of TLS, with its certificate if it has one. It trusts any server, since this test judges
/// what servers let in.
pub(crate) fn tls(identity: Option<&Identity>) -> Arc<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(provider)));
    let Some(identity) = identity else { return Arc::new(config.with_no_client_auth()) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(identity.chain.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    Arc::new(config.with_client_auth_cert(chain.unwrap(), key).unwrap())
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Dial<'_> {
    /// A connection that was made to the destination, and intercepted: of a client within the mesh.
    pub(crate) fn intercepted(&self, patience: Duration) -> io::Result<UnixStream> {
        let Place::Socket(path) = self.place else { return Err(io::ErrorKind::Unsupported.into()) };
        let mut socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(patience))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        self.claim(&mut socket, Ipv4Addr::new(10, 255, 0, 1))?;
        Ok(socket)
    }

    /// Says where the client is, and where it means to be.
    fn claim(&self, socket: &mut impl Write, source: Ipv4Addr) -> io::Result<()> {
        write!(socket, "PROXY TCP4 {source} {} 40000 {}\r\n", self.destination, self.port)
    }

    /// As rustls takes it, which sends no address as a name.
    pub(crate) fn server_name(&self) -> ServerName<'static> {
        let none = || ServerName::from(IpAddr::from(Ipv4Addr::LOCALHOST));
        self.server_name.clone().map_or_else(none, |name| ServerName::try_from(name).unwrap())
    }

    fn connect(&self, patience: Duration) -> io::Result<Box<dyn Stream>> {
        let socket: Box<dyn Stream> = match self.place {
            Place::Socket(_) => Box::new(self.intercepted(patience)?),
            Place::Address { address, source, claims } => {
                let mut socket = connected(source, address)?;
                socket.set_read_timeout(Some(patience))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                self.claim(&mut socket, claims)?;
                Box::new(socket)
            }
        };
        let Some(config) = &self.tls else { return Ok(socket) };
        let client =
            ClientConnection::new(Arc::clone(config), self.server_name()).map_err(io::Error::other)?;
        Ok(Box::new(StreamOwned::new(client, socket)))
    }

    pub(crate) fn hears(&self) -> Heard {
        let mut first = [0; GREETING.len()];
        let read = self.connect(SILENCE).and_then(|mut stream| {
            stream.flush()?;
            match stream.read_exact(&mut first) {
                Err(error) if is_timeout(&error) => {
                    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")?;
                    stream.flush()?;
                    stream.read_exact(&mut first)
                }
                read => read,
            }
        });
        match read {
            Ok(()) if first == *GREETING => Heard::Greeting,
            Ok(()) if first == *b"HTTP/" => Heard::Requests,
            Err(error) if !is_timeout(&error) => Heard::Nothing,
            other => panic!("{other:?}: {}", first.escape_ascii()),
        }
    }

    /// All that the other end says to a client that says nothing itself, until it closes the connection;
    /// `None` if it waits for the client.
    pub(crate) fn is_told(&self) -> Option<String> {
        let mut said = Vec::new();
        match self.connect(SILENCE).and_then(|mut stream| stream.read_to_end(&mut said)) {
            Err(error) if is_timeout(&error) => None,
            _ => Some(String::from_utf8_lossy(&said).into_owned()),
        }
    }

    /// The answers to requests, in their order.
    pub(crate) fn ask(&self, requests: &[&Request]) -> Vec<Answer> {
        let runs = requests.chunk_by(|one, other| one.version == other.version);
        runs.flat_map(|run| self.ask_in_one_version(run, run[0].version)).collect()
    }

    fn ask_in_one_version(&self, requests: &[&Request], version: Version) -> Vec<Answer> {
        let mut answers: Vec<Answer> = Vec::new();
        while answers.len() < requests.len() {
            let (before, rest) = (answers.len(), &requests[answers.len()..]);
            let ended = match version {
                Version::Http10 | Version::Http1 => self.converse(rest, &mut answers),
                Version::Http2 => http2::converse(self, rest, &mut answers),
            };
            match ended {
                Err(error) if is_timeout(&error) => panic!("no answer in {PATIENCE:?}"),
                // A connection that is closed without an answer to its first request is the answer.
                Err(_) if answers.len() == before => {
                    let malformed = version == Version::Http2 && http2::answers(self);
                    answers.push(if malformed { Answer::Malformed } else { Answer::Closed });
                }
                _ => {}
            }
        }
        answers
    }

    fn converse(&self, requests: &[&Request], answers: &mut Vec<Answer>) -> io::Result<()> {
        let mut stream = io::BufReader::new(self.connect(PATIENCE)?);
        // One after the other: Envoy closes a connection on which many wait behind an answer of its own.
        for request in requests {
            stream.get_mut().write_all(&serialized(request))?;
            stream.get_mut().flush()?;
            let (status, body, last) = response(&mut stream, request.method == "HEAD")?;
            answers.push(Answer::Response(status, body));
            if last {
                break;
            }
        }
        Ok(())
    }
}

/// A connection from an address of the loopback network.
fn connected(source: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((source, 0).into())?;
        socket.connect(to).await?.into_std()
    })?;
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn serialized(request: &Request) -> Vec<u8> {
    let version = if request.version == Version::Http10 { "1.0" } else { "1.1" };
    let mut bytes = format!("{} {} HTTP/{version}\r\n", request.method, request.target).into_bytes();
    let lines = |bytes: &mut Vec<u8>, lines: &[(String, Vec<u8>)]| {
        for (name, value) in lines {
            bytes.extend_from_slice(format!("{name}: ").as_bytes());
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
    };
    lines(&mut bytes, &request.headers);
    if request.trailers.is_empty() {
        bytes.extend_from_slice(b"content-length: 0\r\n\r\n");
    } else {
        bytes.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n0\r\n");
        lines(&mut bytes, &request.trailers);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Reads one response: its status, its body, and whether it is the last one.
fn response(stream: &mut impl io::BufRead, without_body: bool) -> io::Result<(u16, String, bool)> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    let (mut length, mut last) = (0, false);
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap(),
            "connection" => last = value.trim() == "close",
            _ => {}
        }
    }
    let mut body = vec![0; if without_body { 0 } else { length }];
    stream.read_exact(&mut body)?;
    Ok((status, String::from_utf8_lossy(&body).into_owned(), last))
}

/// What applications that do not speak HTTP say first.
const GREETING: &[u8; 5] = b"hello";

/// An application that greets and closes, until it is dropped.
pub(crate) struct Application {
    socket: PathBuf,
    stopped: Arc<AtomicBool>,
}

impl Application {
    pub(crate) fn start(socket: PathBuf) -> Self {
        let listener = UnixListener::bind(&socket).unwrap();
        let stopped = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&stopped);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                if done.load(Ordering::Acquire) {
                    return;
                }
                // The client may be gone.
                let _ = stream.write_all(GREETING);
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        Self { socket, stopped }
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // Wakes it. If it is gone, there is nothing to wake.
        let _ = UnixStream::connect(&self.socket);
    }
}

#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
