//! The schema of MeshWorkload.

use schemars::JsonSchema;

use super::{MAX_ADDRESSES, MAX_PORTS, MAX_SERVICES};

/// A machine without a pod that takes part in the mesh.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct MeshWorkloadSpec {
    /// Where callers reach the machine: one IPv4 address, one IPv6 address, or one of each.
    #[schemars(length(min = 1, max = MAX_ADDRESSES), inner(length(min = 2, max = 45)))]
    pub addresses: Vec<String>,
    /// The identity of the machine: a service account of the namespace.
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: String,
    /// The Services of the namespace that the machine is behind; no selector matches it. The first is in
    /// the name of its proxy: a change of it takes a new bootstrap.
    #[schemars(length(min = 1, max = MAX_SERVICES), inner(length(min = 1, max = 63)))]
    pub services: Vec<String>,
    /// Ports that Services may target by name.
    #[schemars(length(max = MAX_PORTS))]
    pub ports: Option<Vec<MachinePort>>,
    /// Whether the machine gets no calls for now. It may call.
    pub drained: Option<bool>,
}

/// A named port.
#[derive(Debug, JsonSchema)]
pub struct MachinePort {
    /// Its name, once in the machine.
    #[schemars(length(min = 1, max = 15))]
    pub name: String,
    /// The port.
    #[schemars(range(min = 1, max = 65535))]
    pub number: u16,
    /// Its transport, `TCP` if not stated; the mesh carries no other.
    #[schemars(length(min = 1, max = 32))]
    pub protocol: Option<String>,
}
