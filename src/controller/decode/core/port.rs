//! Port numbers and names of objects.

use smc_types::ids::check_label;

/// A port number that can be connected to.
pub(super) fn read_number(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|&port| port != 0)
}

/// Checks the name of a container port: an IANA service name (RFC 6335 §5.1, lower case as Kubernetes
/// wants it): 1 to 15 of `a-z`, `0-9` and single inner hyphens, with at least one letter.
pub(super) fn check_container_port_name(name: &str) -> Result<(), &'static str> {
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

/// Whether a port's transport is TCP, which is the default.
pub(super) fn is_tcp(protocol: Option<&str>) -> bool {
    protocol.is_none_or(|protocol| protocol == "TCP")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_numbers_run_from_1_to_65535() {
        for (number, port) in [(1, Some(1)), (65_535, Some(65_535)), (0, None), (-1, None), (65_536, None)] {
            assert_eq!(read_number(number), port, "{number}");
        }
    }

    #[test]
    fn container_port_names_are_iana_service_names() {
        for good in ["http", "a", "http-metrics", "h2c", "0a"] {
            assert!(check_container_port_name(good).is_ok(), "{good}");
        }
        for bad in ["", "8080", "Http", "-a", "a-", "a--b", "a_b", "abcdefghijklmnop"] {
            assert!(check_container_port_name(bad).is_err(), "{bad}");
        }
    }
}
