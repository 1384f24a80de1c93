//! `mesh.smc.dev`: MeshWorkload, a machine without a pod.
//!
//! Owns the schema. [`smc_api::mesh_workload`] reads the objects; the bounds are its.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::ObjectStatus;

/// A machine without a pod that takes part in the mesh.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "mesh.smc.dev",
    version = "v1alpha1",
    kind = "MeshWorkload",
    plural = "meshworkloads",
    shortname = "mwl",
    category = "smc",
    namespaced,
    status = "ObjectStatus",
    printcolumn = r#"{"name": "Addresses", "type": "string", "jsonPath": ".spec.addresses"}"#,
    printcolumn = r#"{"name": "Services", "type": "string", "jsonPath": ".spec.services"}"#
)]
pub struct MeshWorkloadSpec {
    /// Where callers reach the machine: one IPv4 address, one IPv6 address, or one of each.
    #[schemars(length(min = 1, max = 2), inner(length(min = 2, max = 45)))]
    pub addresses: Vec<String>,
    /// The identity of the machine: a service account of the namespace.
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: String,
    /// The Services of the namespace that the machine is behind; no selector matches it. The first is in
    /// the name of its proxy: a change of it takes a new bootstrap.
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 63)))]
    pub services: Vec<String>,
    /// Ports that Services may target by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub ports: Option<Vec<MachinePort>>,
    /// Whether the machine gets no calls for now. It may call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<bool>,
}

/// A named port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachinePort {
    /// Its name, once in the machine.
    #[schemars(length(min = 1, max = 15))]
    pub name: String,
    /// The port.
    #[schemars(range(min = 1, max = 65535))]
    pub number: u16,
    /// Its transport, `TCP` if not stated; the mesh carries no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub protocol: Option<String>,
}
