//! The resolvers of a workload, which it asks over UDP and TCP past its proxy.
//!
//! Owns how they are read from `resolv.conf`. A resolver that answers with more than a packet holds is asked
//! again over TCP (RFC 7766): a mesh that cuts that off breaks names.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// The resolvers that glibc asks; musl and the kubelet have the same limit.
const MAX_RESOLVERS: usize = 3;

/// The port of DNS.
pub(super) const DNS_PORT: u16 = 53;

/// The addresses on the `nameserver` lines of a `resolv.conf`, of which resolvers take the first three. A
/// loopback address is none, since nothing that is local is intercepted.
pub fn resolvers(resolv_conf: &str) -> BTreeSet<IpAddr> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let named = words.next() == Some("nameserver");
        // The zone of a link-local address is no part of what a rule matches.
        let address = words.next()?.split('%').next()?;
        named.then(|| address.parse::<IpAddr>().ok()).flatten()
    };
    let named = resolv_conf.lines().filter_map(address).take(MAX_RESOLVERS);
    named.filter(|address| !address.is_loopback() && !address.is_unspecified()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_nameservers_are_read_and_nothing_else() {
        for (text, expected) in [
            ("", &[][..]),
            ("nameserver 10.96.0.10\nsearch a.svc\noptions ndots:5\n", &["10.96.0.10"]),
            ("  nameserver\t10.0.0.2 # a comment\r\nnameserver fd00::a\n", &["10.0.0.2", "fd00::a"]),
            ("nameserver fe80::1%eth0", &["fe80::1"]),
            ("# nameserver 10.0.0.1\n;nameserver 10.0.0.1\nnameservers 10.0.0.1\nnameserver\n", &[]),
            ("nameserver ns.example\nnameserver 10.0.0.0/8\nnameserver 10.1\n", &[]),
            // A stub of systemd-resolved, and what means this host.
            ("nameserver 127.0.0.53\nnameserver ::1\nnameserver 0.0.0.0\n", &[]),
            (
                "nameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.3\nnameserver 10.0.0.4\n",
                &["10.0.0.1", "10.0.0.2", "10.0.0.3"],
            ),
        ] {
            let expected: BTreeSet<IpAddr> =
                expected.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(resolvers(text), expected, "{text:?}");
        }
    }
}
