//! An IP network in CIDR notation, reduced to its network address so that equal networks compare equal.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::Family;

/// A network such as `10.0.0.0/8` or `fd00::/8`; a bare address is the network of that one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    network: IpAddr,
    prefix_len: u8,
}

/// Why a text is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// The part before the slash is no IP address.
    #[error("`{0}` is not an IP network: the address can't be read")]
    Address(String),
    /// The part after the slash is no prefix length of that family.
    #[error("`{text}` is not an IP network: the prefix length must be a number from 0 to {max}")]
    PrefixLength {
        /// The text as given.
        text: String,
        /// 32 for IPv4, 128 for IPv6.
        max: u8,
    },
}

impl Cidr {
    /// The network that `address` is in, `prefix_len` bits long; `None` if there are not that many bits.
    pub fn new(address: IpAddr, prefix_len: u8) -> Option<Self> {
        let network = match address {
            IpAddr::V4(address) => {
                let host_bits = 32_u8.checked_sub(prefix_len)?;
                let mask = u32::MAX.checked_shl(host_bits.into()).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let host_bits = 128_u8.checked_sub(prefix_len)?;
                let mask = u128::MAX.checked_shl(host_bits.into()).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        };
        Some(Self { network, prefix_len })
    }

    /// The IP family of the network.
    pub fn family(&self) -> Family {
        match self.network {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let (address, prefix_len) = match text.split_once('/') {
            Some((address, prefix_len)) => (address, Some(prefix_len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| CidrError::Address(text.to_owned()))?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let invalid = || CidrError::PrefixLength { text: text.to_owned(), max };
        let prefix_len = match prefix_len {
            // `u8::from_str` would take "+8", which iptables does not.
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| invalid())?
            }
            Some(_) => return Err(invalid()),
            None => max,
        };
        Self::new(address, prefix_len).ok_or_else(invalid)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.network, self.prefix_len)
    }
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
            assert_eq!(text.parse::<Cidr>().map(|cidr| cidr.to_string()), Ok(canonical.to_owned()), "{text}");
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
            "10.0/8",
            "a.b.c.d/8",
            "10.0.0.0/8/8",
            "10.0.0.0/255.0.0.0",
            " 10.0.0.0/8",
            "10.0.0.0/8\n-A X",
        ] {
            assert!(text.parse::<Cidr>().is_err(), "{text:?}");
        }
    }
}
