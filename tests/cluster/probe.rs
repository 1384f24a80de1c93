//! What the kubelet asks a replica: the status of a path at its metrics port.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// The limit of a probe. Kubernetes' default is a second; the machine is busy.
const PROBE: Duration = Duration::from_secs(5);

/// The status of a path, asked for on a new connection. The kubelet has an address of its own.
pub(crate) async fn probe(address: SocketAddr, path: &str) -> Option<String> {
    let asked = async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.200.0.1:0".parse().unwrap()).unwrap();
        let mut socket: TcpStream = socket.connect(address).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: kubelet\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.ok()?;
        answer.lines().next().map(str::to_owned)
    };
    timeout(PROBE, asked).await.ok().flatten()
}
