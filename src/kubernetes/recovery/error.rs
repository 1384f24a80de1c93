//! Why a group cannot be put back.

use std::time::Duration;

use smc_types::ids::MeshNamespace;
use thiserror::Error;

/// Why there is no new group.
#[derive(Debug, Error)]
pub enum RecoveryError {
    /// A request failed. A retry may help.
    #[error("cannot {action}")]
    Api {
        /// The operation and its object.
        action: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// A step did not end in time. A retry may help: what was done is not done twice.
    #[error("{what} within {} s; run the command again once the reason is gone", limit.as_secs())]
    Late {
        /// What did not happen.
        what: String,
        /// The limit.
        limit: Duration,
    },
    /// There is nothing to recover in this namespace.
    #[error(
        "the namespace {0} has no StatefulSet smc-controller: install SMC there first, and then run this again"
    )]
    NotInstalled(MeshNamespace),
    /// The controllers have no volumes.
    #[error("the controllers have no volumes (persistence is off), so nothing can be put there")]
    NoVolumes,
    /// Nothing says which of several groups counts.
    #[error(
        "the volumes are of the groups {0}, and nothing says which of them counts: nothing was changed. Delete the volume \
         claims of the others (the ConfigMap smc-group names the last one that had a leader), and run this again"
    )]
    Several(String),
    /// No volume holds a ledger.
    #[error("no volume of the controllers holds a ledger: restore a backup")]
    NothingLeft,
    /// Nothing has to be recovered.
    #[error(
        "the volumes of a majority of the group {group} are there ({volumes}): nothing was changed, and the controllers \
         start again. If they get no leader, their logs say why"
    )]
    Majority {
        /// The group.
        group: String,
        /// The volumes.
        volumes: String,
        /// How many controllers there have to be, so that all its members run.
        least: u64,
    },
    /// The pod that works on a volume failed.
    #[error("{pod} failed: {said}; to do without its volume, delete that one's claim, and run this again")]
    Pod {
        /// The pod.
        pod: String,
        /// Its last lines, or what it waits for in vain.
        said: String,
    },
    /// What a pod printed is not what this program understands.
    #[error(
        "the volume of controller {ordinal} is not that of controller {ordinal}, or the controllers' image is of \
         another version than this program; nothing was changed. It says: {said}"
    )]
    Unreadable {
        /// The controller.
        ordinal: u64,
        /// What was printed.
        said: String,
    },
}
