//! How a replica that runs learns that it must not go on: its group was replaced, or its place was taken.
//!
//! Owns both ends. A person who restores a backup, or recovers the last replica of a group, makes a new
//! group in place of the former. Members of the former that are left, as on disks that were not emptied,
//! would go on to issue certificates beside it. And of two processes with one id the group knows the one
//! that joined last: the other would hold sidecars that it cannot admit.

use std::time::Duration;

use smc_types::ids::ReplicaId;
use thiserror::Error;
use tokio::time::sleep;

use super::Group;
use crate::foreign_disk::REPLACED;
use crate::storage::group_id::GroupId;

/// The pause between two questions to the leader while messages for another disk come.
const PAUSE: Duration = Duration::from_secs(1);

/// Why a replica ends although nothing of it failed. A retry does not help: a person has to choose.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Replaced {
    /// There is a newer group.
    #[error(
        "{} {newer} in place of {mine}, which this replica belongs to: empty its data directory (the ledger in it), and \
         it joins the newer group; if the newer group is the mistake, stop that one",
        REPLACED
    )]
    Group {
        /// The group of this replica.
        mine: GroupId,
        /// The one in its place.
        newer: GroupId,
    },
    /// Another process is this replica now.
    #[error(
        "another process joined the group as replica {0}, with another disk: stop one of the two, and start this one \
         with an empty data directory if it is to stay"
    )]
    Replica(ReplicaId),
}

impl Group {
    /// Returns when this replica must not go on. Never returns otherwise. Cancel-safe.
    pub async fn replaced(&self) -> Replaced {
        tokio::select! {
            newer = self.replaced_by() => newer,
            other = self.place_taken() => other,
        }
    }

    async fn replaced_by(&self) -> Replaced {
        let mut replaced_by = self.identity.doubts().replaced_by.subscribe();
        let newer = replaced_by.wait_for(Option::is_some).await.ok().and_then(|newer| *newer);
        match (self.identity.group(), newer) {
            (Some(mine), Some(newer)) => Replaced::Group { mine, newer },
            // The sender lives as long as this replica, and notes nothing where there is no group.
            _ => std::future::pending().await,
        }
    }

    /// A message for another disk may be a late one, so the leader has the last word.
    async fn place_taken(&self) -> Replaced {
        loop {
            self.identity.doubts().other_disk.notified().await;
            if self.identity.group().is_some() && self.is_removed().await {
                return Replaced::Replica(self.identity.replica);
            }
            sleep(PAUSE).await;
        }
    }
}
