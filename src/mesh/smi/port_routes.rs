//! `specs.smi-spec.io/v1alpha4` TCPRoute and UDPRoute: ports.

use std::collections::BTreeSet;

use crate::ids::NamespacedName;

/// TCP ports of a destination; empty means all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpRoute {
    /// Its name.
    pub id: NamespacedName,
    /// The ports at the destination pod.
    pub ports: BTreeSet<u16>,
}

/// UDP ports. The mesh does not carry UDP: it is read so that its lack of effect can be reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpRoute {
    /// Its name.
    pub id: NamespacedName,
    /// The ports at the destination pod; empty means all.
    pub ports: BTreeSet<u16>,
}
