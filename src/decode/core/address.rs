//! IP addresses of objects.

use std::net::IpAddr;

use smc_api::address::read_address;
use smc_types::object_ref::ObjectRef;
use smc_types::problem::Problem;
use smc_types::text::truncated;

/// Addresses of one object that are read. The API allows two; a few more are reported one by one.
const MAX_LISTED: usize = 16;

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
