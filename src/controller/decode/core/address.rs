//! IP addresses of objects.

use std::net::IpAddr;

use smc_types::object_ref::ObjectRef;
use smc_types::problem::Problem;
use smc_types::text::truncated;

/// Addresses of one object that are read. The API allows two; a few more are reported one by one.
const MAX_LISTED: usize = 16;

/// Reads an address that traffic can be sent to. Refuses spellings that Kubernetes and Envoy read differently
/// (leading zeros, IPv4 mapped into IPv6), and unspecified and multicast addresses.
pub(super) fn read_address(text: &str) -> Result<IpAddr, &'static str> {
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

/// Reads a list with at most one address of each family, such as `clusterIPs` and `podIPs`. The first of a
/// family is used; the others are reported at `field[index]`.
pub(super) fn one_per_family<'a>(
    subject: &ObjectRef,
    field: &str,
    texts: impl Iterator<Item = &'a str>,
    problems: &mut Vec<Problem>,
) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for (index, text) in texts.take(MAX_LISTED).enumerate() {
        let refusal = match read_address(text) {
            Ok(address) if addresses.iter().any(|other| other.is_ipv4() == address.is_ipv4()) => {
                "is a second address of its family"
            }
            Ok(address) => {
                addresses.push(address);
                continue;
            }
            Err(refusal) => refusal,
        };
        // Untrusted text of any length.
        let shown = truncated(text, 60);
        problems.push(Problem::error(
            subject,
            format!("{field}[{index}]"),
            format!("{shown:?} {refusal}; left out"),
        ));
    }
    addresses
}

#[cfg(test)]
mod tests {
    use smc_types::object_ref::Kind;

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
        }
        for good in ["10.0.0.1", "127.0.0.2", "fd00::1", "FD00::1", "::1"] {
            assert!(read_address(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn the_first_address_of_each_family_is_used() {
        let mut problems = Vec::new();
        let pod = ObjectRef::Namespaced(Kind::Pod, "a/b".parse().unwrap());
        let texts = ["fd00::1", "nonsense", "10.0.0.1", "10.0.0.2", "fd00::2"];
        let addresses = one_per_family(&pod, "status.podIPs", texts.into_iter(), &mut problems);
        assert_eq!(addresses, ["fd00::1".parse::<IpAddr>().unwrap(), "10.0.0.1".parse().unwrap()]);
        let fields: Vec<&str> = problems.iter().map(|p| p.field.as_str()).collect();
        assert_eq!(fields, ["status.podIPs[1]", "status.podIPs[3]", "status.podIPs[4]"]);
    }
}
