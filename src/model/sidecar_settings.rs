//! What MeshConfig says about the sidecars of new pods, and about interception.

use ipnet::IpNet;
use serde_json::Value;

/// Entries per exclusion or inclusion list. Every new connection walks the rules in order, so a
/// list much longer than this is a mistake rather than a policy.
pub const MAX_LIST_LEN: usize = 256;

/// What MeshConfig says about sidecars and interception. Holds for pods that are made afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SidecarSettings {
    /// `sidecar.envoyImage`.
    pub envoy_image: Option<String>,
    /// `sidecar.initContainerImage`.
    pub init_image: Option<String>,
    /// `sidecar.logLevel`: one of Envoy's log levels.
    pub log_level: Option<String>,
    /// `sidecar.resources`: a Kubernetes ResourceRequirements, an object.
    pub resources: Option<Value>,
    /// `sidecar.enablePrivilegedInitContainer`, for container runtimes in which the capabilities do not do.
    pub privileged_init: bool,
    /// `traffic.outboundPortExclusionList`.
    pub exclude_outbound_ports: Vec<u16>,
    /// `traffic.inboundPortExclusionList`.
    pub exclude_inbound_ports: Vec<u16>,
    /// `traffic.outboundIPRangeExclusionList`.
    pub exclude_outbound_cidrs: Vec<IpNet>,
    /// `traffic.outboundIPRangeInclusionList`.
    pub include_outbound_cidrs: Vec<IpNet>,
    /// `traffic.networkInterfaceExclusionList`.
    pub exclude_interfaces: Vec<String>,
}

/// Where a sidecar reaches its application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LocalProxyMode {
    /// At the loopback address.
    #[default]
    Localhost,
    /// At the pod's own address, for applications that listen on nothing else.
    PodIp,
}
