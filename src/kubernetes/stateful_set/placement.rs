//! Which replica a pod is, and where it and the others are reached.
//!
//! Owns the names: `NAME-ORDINAL` of a pod of a StatefulSet, and `POD.SERVICE.NAMESPACE.svc` of a pod behind
//! its headless Service (the Kubernetes documents on StatefulSets, "Stable Network ID"), by which replicas
//! reach each other; and `POD.NAMESPACE.svc`, a Service for each pod, by which sidecars reach it where there
//! are such Services. The address of a Service outlives the pod, so no sidecar tries that of a pod that is
//! gone.

use std::collections::BTreeMap;

use smc_types::host_port::{Host, HostPort};
use smc_types::ids::{InvalidName, MeshNamespace, ReplicaId, check_label, check_subdomain};
use smc_types::text::truncated;
use thiserror::Error;

/// The most replicas that a group may be configured for. A commit waits for a majority of them, and five
/// survive the loss of two; more only make it slower.
pub const MAX_REPLICAS: u64 = 9;

/// Why a pod has no place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlacementError {
    /// The pod is not one of a StatefulSet.
    #[error("the pod name {0:?} does not end in an ordinal, as those of a StatefulSet do")]
    NoOrdinal(String),
    /// The StatefulSet has more replicas than bootstraps name.
    #[error(
        "the ordinal {ordinal} is beyond --max-replicas {max}: give every replica a greater --max-replicas"
    )]
    Beyond {
        /// The pod's ordinal.
        ordinal: u64,
        /// The greatest number of replicas.
        max: u64,
    },
    /// A name is not one of Kubernetes.
    #[error(transparent)]
    Name(#[from] InvalidName),
}

/// The ports of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// For proxies.
    pub xds: u16,
    /// For other replicas.
    pub raft: u16,
}

/// The place of one pod among the pods of its StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The name of the StatefulSet.
    pub set: String,
    /// The pod's ordinal.
    pub replica: ReplicaId,
    /// The Raft address of every replica that there may be.
    pub raft: BTreeMap<ReplicaId, HostPort>,
    /// The address for proxies of every replica that there may be. Bootstraps name all of them, since a
    /// sidecar that runs learns of no other; it skips those that do not exist.
    pub xds: BTreeMap<ReplicaId, HostPort>,
}

impl Placement {
    /// The name of the pod.
    pub fn pod(&self) -> String {
        format!("{}-{}", self.set, self.replica)
    }

    /// Derives the place of `pod`. `max` counts all replicas that there may be, this one included.
    /// `own_services` says whether there is a Service for each of them, with the name of its pod.
    pub fn derive(
        pod: &str,
        service: &str,
        own_services: bool,
        namespace: &MeshNamespace,
        max: u64,
        ports: Ports,
    ) -> Result<Self, PlacementError> {
        let no_ordinal = || PlacementError::NoOrdinal(truncated(pod, 80));
        let (set, ordinal) = pod.rsplit_once('-').ok_or_else(no_ordinal)?;
        let canonical = ordinal == "0" || !ordinal.starts_with('0');
        let digits = ordinal.bytes().all(|byte| byte.is_ascii_digit());
        let ordinal = Some(ordinal).filter(|_| canonical && digits).and_then(|digits| digits.parse().ok());
        let ordinal: u64 = ordinal.ok_or_else(no_ordinal)?;
        check_subdomain("StatefulSet", set)?;
        check_label("headless service", service)?;
        if ordinal >= max {
            return Err(PlacementError::Beyond { ordinal, max });
        }
        let (pods, services) = (format!("{service}.{namespace}.svc"), format!("{namespace}.svc"));
        let addresses = |domain: &str, port| {
            let name = |id| Host::Name(format!("{set}-{id}.{domain}"));
            (0..max).map(|id| (ReplicaId(id), HostPort { host: name(id), port })).collect()
        };
        Ok(Self {
            set: set.to_owned(),
            replica: ReplicaId(ordinal),
            raft: addresses(&pods, ports.raft),
            xds: addresses(if own_services { &services } else { &pods }, ports.xds),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn derive(pod: &str, max: u64) -> Result<Placement, PlacementError> {
        derive_with(pod, true, max)
    }

    fn derive_with(pod: &str, own_services: bool, max: u64) -> Result<Placement, PlacementError> {
        let namespace = MeshNamespace::new("smc-system").unwrap();
        let ports = Ports { xds: 15128, raft: 15129 };
        Placement::derive(pod, "smc-controller-headless", own_services, &namespace, max, ports)
    }

    #[test]
    fn a_pod_is_the_replica_of_its_ordinal_and_knows_all_others() {
        let placement = derive("smc-controller-2", 3).unwrap();
        assert_eq!((placement.set.as_str(), placement.replica), ("smc-controller", ReplicaId(2)));
        let xds = |placement: &Placement| placement.xds.values().map(ToString::to_string).collect::<Vec<_>>();
        let service = |id| format!("smc-controller-{id}.smc-system.svc:15128");
        assert_eq!(xds(&placement), [0, 1, 2].map(service));
        let without = derive_with("smc-controller-2", false, 3).unwrap();
        let pod = |id| format!("smc-controller-{id}.smc-controller-headless.smc-system.svc:15128");
        assert_eq!(xds(&without), [0, 1, 2].map(pod));
        let raft = "smc-controller-1.smc-controller-headless.smc-system.svc:15129";
        assert_eq!(placement.raft[&ReplicaId(1)].to_string(), raft);
    }

    #[test]
    fn what_is_no_pod_of_a_stateful_set_is_refused() {
        for pod in [
            "smc",
            "smc-",
            "smc-x",
            "smc-01",
            "smc-00",
            "smc-+1",
            "smc--1-",
            "",
            "-",
            "smc-99999999999999999999",
        ] {
            assert!(matches!(derive(pod, 3), Err(PlacementError::NoOrdinal(_))), "{pod:?}");
        }
        assert!(matches!(derive("-0", 3), Err(PlacementError::Name(_))));
        assert!(matches!(derive("SMC-0", 3), Err(PlacementError::Name(_))));
    }

    #[test]
    fn an_ordinal_that_bootstraps_do_not_name_is_refused_with_the_way_out() {
        let error = derive("smc-controller-5", 5).unwrap_err();
        assert_eq!(error, PlacementError::Beyond { ordinal: 5, max: 5 });
        assert!(error.to_string().contains("--max-replicas"), "{error}");
    }
}
