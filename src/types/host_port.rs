//! Network addresses as operators write them: `HOST:PORT`, and `N=HOST:PORT` for a replica.
//!
//! Owns their one strict reading. Both are addresses to connect to, so port 0 and the unspecified address are
//! refused. An IPv6 address needs brackets, without which address and port are ambiguous.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ids::{ReplicaId, check_subdomain};
use crate::text::truncated;

/// An address to connect to: `NAME:PORT`, `IPV4:PORT` or `[IPV6]:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPort {
    /// A host name or an IP address.
    pub host: Host,
    /// 1 to 65535.
    pub port: u16,
}

/// A host, by name or by IP address. Prints an IPv6 address without brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A DNS name, which the client resolves each time it connects.
    Name(String),
    /// An IP address.
    Ip(IpAddr),
}

/// A text that is not a [`HostPort`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid address {text:?}: {reason}")]
pub struct InvalidHostPort {
    text: String,
    reason: &'static str,
}

impl FromStr for HostPort {
    type Err = InvalidHostPort;

    fn from_str(text: &str) -> Result<Self, InvalidHostPort> {
        let invalid = |reason| InvalidHostPort { text: truncated(text, 80), reason };
        let (host, port) = text.rsplit_once(':').ok_or_else(|| invalid("is not HOST:PORT"))?;
        // `u16::from_str` accepts a sign.
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = Some(port).filter(|_| digits).and_then(|port| port.parse().ok()).filter(|&port| port != 0);
        let port = port.ok_or_else(|| invalid("the port must be 1 to 65535"))?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = match (bracketed, host.parse()) {
            (Some(inner), _) => match inner.parse() {
                Ok(IpAddr::V6(ip)) => Host::Ip(IpAddr::V6(ip)),
                _ => return Err(invalid("is not an IPv6 address")),
            },
            (None, Ok(IpAddr::V4(ip))) => Host::Ip(IpAddr::V4(ip)),
            (None, Ok(IpAddr::V6(_))) => return Err(invalid("an IPv6 address needs brackets")),
            (None, Err(_)) => {
                check_subdomain("host", host).map_err(|error| invalid(error.reason))?;
                Host::Name(host.to_owned())
            }
        };
        if matches!(host, Host::Ip(ip) if ip.is_unspecified()) {
            return Err(invalid("the unspecified address cannot be connected to"));
        }
        Ok(Self { host, port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(ip) => fmt::Display::fmt(ip, f),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

impl TryFrom<String> for HostPort {
    type Error = InvalidHostPort;

    fn try_from(text: String) -> Result<Self, InvalidHostPort> {
        text.parse()
    }
}

impl From<HostPort> for String {
    fn from(address: HostPort) -> Self {
        address.to_string()
    }
}

/// Where a replica is reached: `N=HOST:PORT`, with the replica's id for `N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaAddress {
    /// The replica.
    pub replica: ReplicaId,
    /// Its address.
    pub address: HostPort,
}

/// A text that is not a [`ReplicaAddress`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidReplicaAddress {
    /// There is no `=`, or no number before it.
    #[error("{0:?} is not of the form N=HOST:PORT")]
    Form(String),
    /// The part after the `=` is not an address.
    #[error(transparent)]
    Address(#[from] InvalidHostPort),
}

impl FromStr for ReplicaAddress {
    type Err = InvalidReplicaAddress;

    fn from_str(text: &str) -> Result<Self, InvalidReplicaAddress> {
        let form = || InvalidReplicaAddress::Form(truncated(text, 80));
        let (replica, address) = text.split_once('=').ok_or_else(form)?;
        if !replica.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(form());
        }
        Ok(Self { replica: replica.parse().map_err(|_| form())?, address: address.parse()? })
    }
}

impl fmt::Display for ReplicaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.replica, self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_can_be_connected_to_prints_as_it_was_written() {
        for text in [
            "controller.smc-system.svc:15128",
            "localhost:5",
            "127.0.0.1:1",
            "[::1]:65535",
            "[fd00::1]:15128",
            "smc-0:15129",
        ] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
            let numbered = format!("7={text}");
            assert_eq!(numbered.parse::<ReplicaAddress>().unwrap().to_string(), numbered);
        }
    }

    #[test]
    fn every_other_address_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "is not HOST:PORT"),
            ("host", "is not HOST:PORT"),
            ("host:", "the port must be"),
            ("host:0", "the port must be"),
            ("host:65536", "the port must be"),
            ("host:-1", "the port must be"),
            ("host:+5", "the port must be"),
            ("host:5 ", "the port must be"),
            ("host:http", "the port must be"),
            (":5", "must have 1 to 253 characters"),
            ("a b:5", "may hold only"),
            ("Host:5", "may hold only"),
            ("host.:5", "empty label"),
            ("-host:5", "must begin and end"),
            ("http://host:5", "may hold only"),
            ("::1:5", "needs brackets"),
            ("fd00::1:5", "needs brackets"),
            ("[127.0.0.1]:5", "is not an IPv6 address"),
            ("[host]:5", "is not an IPv6 address"),
            ("[]:5", "is not an IPv6 address"),
            ("[::1]", "the port must be"),
            ("[::1:5", "may hold only"),
            ("0.0.0.0:5", "unspecified"),
            ("[::]:5", "unspecified"),
        ] {
            let error = text.parse::<HostPort>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_replica_address_needs_the_id_of_a_replica() {
        for text in ["", "a:1", "=a:1", "x=a:1", "-1=a:1", "+1=a:1", "0x1=a:1", "18446744073709551616=a:1"] {
            let error = text.parse::<ReplicaAddress>().unwrap_err().to_string();
            assert!(error.contains("is not of the form N=HOST:PORT"), "{text:?}: {error}");
        }
        for text in ["0=a:0", "0=", "0=0.0.0.0:1", "0=:::1"] {
            let error = text.parse::<ReplicaAddress>().unwrap_err().to_string();
            assert!(error.starts_with("invalid address"), "{text:?}: {error}");
        }
    }
}
