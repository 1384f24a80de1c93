//! The spelling of addresses and of names of ports, in objects of every kind.

use std::net::IpAddr;

use smc_types::ids::check_label;

/// Reads an address that traffic can be sent to. Refuses spellings that Kubernetes and Envoy read differently
/// (leading zeros, IPv4 mapped into IPv6), and unspecified and multicast addresses.
pub fn read_address(text: &str) -> Result<IpAddr, &'static str> {
    let address: IpAddr = text.parse().map_err(|_| "is not an IP address")?;
    if address.is_unspecified() {
        return Err("is the unspecified address");
    }
    if address.is_multicast() {
        return Err("is a multicast address");
    }
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Err("is an IPv4 address mapped into IPv6"),
        address => Ok(address),
    }
}

/// Reads an address that one host of a network has, as seen from the others. Refuses, beside what
/// [`read_address`] refuses, addresses that mean another host for each reader: loopback and link-local
/// ones, and the broadcast address. At a link-local address of theirs (169.254.169.254) clouds hand out
/// credentials.
pub fn read_host_address(text: &str) -> Result<IpAddr, &'static str> {
    let address = read_address(text)?;
    if address.is_loopback() {
        return Err("is a loopback address, which every host has");
    }
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    match address {
        _ if link_local => Err("is a link-local address, which other hosts may have"),
        IpAddr::V4(v4) if v4.is_broadcast() => Err("is the broadcast address"),
        address => Ok(address),
    }
}

/// Checks the name of a port that a `targetPort` may name: an IANA service name (RFC 6335 §5.1, lower case as
/// Kubernetes wants it): 1 to 15 of `a-z`, `0-9` and single inner hyphens, with at least one letter.
pub fn check_port_name(name: &str) -> Result<(), &'static str> {
    if name.len() > 15 || check_label("port name", name).is_err() {
        return Err("is not 1 to 15 of a-z, 0-9 and inner hyphens");
    }
    if name.contains("--") {
        return Err("holds two hyphens in a row");
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Err("holds no letter; write a port number without quotes");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_lead_nowhere_or_read_two_ways_are_refused() {
        for bad in [
            "",
            "10.0.0",
            "010.0.0.1",
            "10.0.0.1/24",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "ff02::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(read_address(bad).is_err(), "{bad}");
            assert!(read_host_address(bad).is_err(), "{bad}");
        }
        for good in ["10.0.0.1", "127.0.0.2", "fd00::1", "FD00::1", "::1"] {
            assert!(read_address(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn an_address_that_means_another_host_for_each_reader_is_no_machines() {
        for bad in
            ["127.0.0.1", "127.9.9.9", "::1", "169.254.169.254", "fe80::1", "febf::1", "255.255.255.255"]
        {
            assert!(read_host_address(bad).is_err(), "{bad}");
        }
        for good in ["10.0.0.1", "192.0.2.7", "fd00::1", "2001:db8::1"] {
            assert!(read_host_address(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn port_names_are_iana_service_names() {
        for good in ["http", "a", "http-metrics", "h2c", "0a"] {
            assert!(check_port_name(good).is_ok(), "{good}");
        }
        for bad in ["", "8080", "Http", "-a", "a-", "a--b", "a_b", "abcdefghijklmnop"] {
            assert!(check_port_name(bad).is_err(), "{bad}");
        }
    }
}
