//! Port numbers of objects.

/// A port number that can be connected to.
pub(super) fn read_number(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|&port| port != 0)
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
}
