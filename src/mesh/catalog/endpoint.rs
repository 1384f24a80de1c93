//! Where traffic of a service goes.

use std::net::IpAddr;

use smc_types::ids::{ServiceAccountId, WorkloadId};

/// One address that traffic for a service port can be sent to, with the identity that answers there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Its address.
    pub ip: IpAddr,
    /// The port in the pod.
    pub port: u16,
    /// The workload behind it.
    pub workload: WorkloadId,
    /// The identity that answers there.
    pub service_account: ServiceAccountId,
}
