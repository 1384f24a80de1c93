//! The flags of `smc controller` for a pod of a StatefulSet.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use smc_host::tasks::Tasks;
use smc_issuing::seal::KeyEncryption;
use smc_kubernetes::stateful_set::{
    ApiError, Departing, FoundingObject, GroupRecord, MAX_REPLICAS, MemberRemoval, OwnObjects, OwnPod,
    Placement, PlacementError, Ports,
};
use smc_types::ids::MeshNamespace;

/// The port for other replicas, where only the pod's name is given.
pub(super) const RAFT_PORT: u16 = 15129;

/// The headless Service of an installation.
pub(super) const HEADLESS_SERVICE: &str = "smc-controller-headless";

/// The flags of a replica that is a pod of a StatefulSet.
#[derive(Debug, Args)]
pub(super) struct StatefulSetArgs {
    /// This pod's name in its StatefulSet, NAME-ORDINAL; the replica's id and all addresses follow from it
    ///
    /// Replica 0 founds the group, the others join it; a replica that is scaled away leaves it. The key-
    /// encryption key may be readable for a group of the pod, as a mounted Secret is.
    #[arg(
        long,
        value_name = "POD",
        requires = "headless_service",
        conflicts_with_all = ["replica_id", "raft_listen", "raft_address", "initial_members", "xds_replicas",
            "xds_address", "create_kek"]
    )]
    pod_name: Option<String>,
    /// This pod's UID: a process that is left of a former pod takes no place of the present one's in the
    /// group, and ends
    #[arg(long, value_name = "UID", requires = "pod_name")]
    pod_uid: Option<String>,
    /// The headless Service that gives the pods of the StatefulSet their names
    #[arg(long, value_name = "SERVICE", requires = "pod_name")]
    headless_service: Option<String>,
    /// Sidecars connect to a Service for each of --max-replicas, which has the name of the pod
    ///
    /// The address of such a Service outlives the pod. Without them, a sidecar may try the address of a
    /// former pod for as long as the DNS keeps it.
    #[arg(long, requires = "pod_name")]
    replica_services: bool,
    /// The most replicas that the StatefulSet may ever be scaled to; bootstraps name all of them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=MAX_REPLICAS))]
    max_replicas: u64,
}

/// This replica as a pod of its StatefulSet.
pub(super) struct InStatefulSet {
    /// Its place.
    pub(super) placement: Placement,
    /// The address to listen on for other replicas.
    pub(super) raft_listen: SocketAddr,
    /// Its way to the API.
    objects: OwnObjects,
    /// Its UID, if it is known.
    uid: Option<String>,
}

/// Why the flags give no place.
#[derive(Debug, thiserror::Error)]
pub(super) enum StatefulSetError {
    #[error(transparent)]
    Placement(#[from] PlacementError),
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl StatefulSetArgs {
    /// The place of this pod, or `None` if it is none of a StatefulSet.
    pub(super) fn place(
        self,
        namespace: &MeshNamespace,
        xds: SocketAddr,
    ) -> Result<Option<InStatefulSet>, StatefulSetError> {
        let (Some(pod), Some(service)) = (self.pod_name, self.headless_service) else { return Ok(None) };
        let ports = Ports { xds: xds.port(), raft: RAFT_PORT };
        let own = self.replica_services;
        let placement = Placement::derive(&pod, &service, own, namespace, self.max_replicas, ports)?;
        let objects = OwnObjects::in_cluster(namespace.clone())?;
        let raft_listen = SocketAddr::new(xds.ip(), RAFT_PORT);
        Ok(Some(InStatefulSet { placement, raft_listen, objects, uid: self.pod_uid }))
    }
}

impl InStatefulSet {
    /// The record of the founding, for this replica.
    pub(super) fn founding(&self, keys: &dyn KeyEncryption) -> FoundingObject {
        FoundingObject { pod: self.own_pod(), replica: self.placement.replica, key: keys.id().to_owned() }
    }

    /// The pod that this process is of.
    pub(super) fn own_pod(&self) -> OwnPod {
        OwnPod { objects: self.objects.clone(), name: self.placement.pod(), uid: self.uid.clone() }
    }

    /// The record of the group.
    pub(super) fn record(&self, group: &Arc<smc_raft::Group>) -> GroupRecord {
        GroupRecord { objects: self.objects.clone(), group: Arc::clone(group) }
    }

    /// Starts the watch over the size of the group.
    pub(super) fn keep(&self, group: &Arc<smc_raft::Group>, tasks: &mut Tasks) {
        let (objects, set) = (self.objects.clone(), self.placement.set.clone());
        let keeper = MemberRemoval { objects, set, group: Arc::clone(group) };
        tasks.spawn("group size", |stopping| keeper.run(stopping));
    }

    /// What its end needs.
    pub(super) fn departing(&self, data_dir: &Path) -> Departing {
        Departing {
            objects: self.objects.clone(),
            set: self.placement.set.clone(),
            replica: self.placement.replica,
            data_dir: data_dir.to_owned(),
        }
    }
}
