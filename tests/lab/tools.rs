//! Owns small programs to run in Pods: a server that reports requests, and clients that report
//! responses. Unlike `curl` and `nc` they exist on every machine, and print JSON.

mod echo;
mod fetch;
mod grpc;
mod tcp;
mod tls;

pub use echo::{EchoArgs, echo};
pub use fetch::{FetchArgs, fetch};
pub use tcp::{TcpArgs, tcp};
pub use tls::{TlsArgs, tls};

use std::io;
use std::time::Duration;

use tokio::net::{TcpStream, ToSocketAddrs, lookup_host};

/// Connects. A name without an address fails with [`io::ErrorKind::NotFound`].
async fn connect(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let unresolved = |error: io::Error| io::Error::new(io::ErrorKind::NotFound, error);
    let addresses: Vec<_> = lookup_host(address).await.map_err(unresolved)?.collect();
    TcpStream::connect(&*addresses).await
}

/// The error of a client whose time limit has passed.
fn timeout() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "timeout")
}

/// Parses `250ms`, `5s` or `2m`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 =
        number.parse().map_err(|_| format!("`{text}` is no duration such as 250ms, 5s or 2m"))?;
    let millis = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1000),
        "m" => number.checked_mul(60_000),
        _ => None,
    };
    millis
        .map(Duration::from_millis)
        .ok_or_else(|| format!("`{text}` is no duration such as 250ms, 5s or 2m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("2m"), Ok(Duration::from_mins(2)));
        for text in ["", "5", "s", "-1s", "1h", "99999999999999999999s", "18446744073709551615m"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
