//! A port that a test holds for a program of its own, or where no program may answer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port that the kernel gives to no socket that asks for any port, as long as this lives.
///
/// Its socket is bound and does not listen. So a connection to the address is refused, until a program
/// listens there that names the port and allows the reuse of addresses, as Rust, Go and Envoy do. A port
/// that is let go is another test's at once: a bookstore once took the port of the warehouse that was to
/// be away, and was asked itself.
pub struct HeldPort {
    /// The address of the port.
    pub address: SocketAddr,
    _socket: TcpSocket,
}

impl HeldPort {
    /// Takes a port of the loopback address.
    pub fn loopback() -> Self {
        Self::of(Ipv4Addr::LOCALHOST.into())
    }

    /// Takes a port of an address of this host.
    pub fn of(ip: IpAddr) -> Self {
        let socket = if ip.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(SocketAddr::new(ip, 0)).unwrap();
        Self { address: socket.local_addr().unwrap(), _socket: socket }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_held_port_refuses_until_a_program_listens_that_names_it() {
        let held = HeldPort::loopback();
        let refused = TcpStream::connect(held.address).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let listener = TcpListener::bind(held.address).await.unwrap();
        TcpStream::connect(held.address).await.unwrap();
        listener.accept().await.unwrap();
    }
}
