//! Reads IP networks in CIDR notation, as strictly as iptables prints them.
//!
//! Owns the reading. [`IpNet`] is the value: its own parser refuses a bare address and keeps host bits.

use std::net::IpAddr;

pub use ipnet::IpNet;

/// A text that is not an IP network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// The part before the slash is not an IP address.
    #[error("`{0}` is not an IP network: the address can't be read")]
    Address(String),
    /// The part after the slash is not a prefix length of that family.
    #[error("`{text}` is not an IP network: the prefix length must be a number from 0 to {max}")]
    PrefixLength {
        /// The text as given.
        text: String,
        /// 32 for IPv4, 128 for IPv6.
        max: u8,
    },
}

/// Reads a network such as `10.0.0.0/8` or `fd00::/8`, or a bare address, which is the network of
/// that one host. Host bits are cleared, so that equal networks compare equal.
pub fn parse_cidr(text: &str) -> Result<IpNet, CidrError> {
    let (address, prefix_len) = match text.split_once('/') {
        Some((address, prefix_len)) => (address, Some(prefix_len)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| CidrError::Address(text.to_owned()))?;
    let host = IpNet::from(address);
    let network = match prefix_len {
        None => Some(host),
        // `u8::from_str` accepts "+8", which iptables does not.
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().and_then(|prefix_len| IpNet::new(address, prefix_len).ok())
        }
        Some(_) => None,
    };
    let network = network.map(|network| network.trunc());
    network.ok_or_else(|| CidrError::PrefixLength { text: text.to_owned(), max: host.max_prefix_len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_reduced_to_their_network_address() {
        for (text, canonical) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("1.2.3.4/0", "0.0.0.0/0"),
            ("fd00:10:244::7/64", "fd00:10:244::/64"),
            ("::1", "::1/128"),
            ("fd00::1/0", "::/0"),
        ] {
            assert_eq!(parse_cidr(text).map(|cidr| cidr.to_string()), Ok(canonical.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_iptables_would_read_differently_is_refused() {
        for text in [
            "",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "10.0.0.0/256",
            "10.0/8",
            "010.0.0.0/8",
            "a.b.c.d/8",
            "10.0.0.0/8/8",
            "10.0.0.0/255.0.0.0",
            " 10.0.0.0/8",
            "10.0.0.0/8\n-A X",
        ] {
            assert!(parse_cidr(text).is_err(), "{text:?}");
        }
    }
}
