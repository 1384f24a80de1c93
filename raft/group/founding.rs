//! The record of a founding that outlives the disks of all replicas, and of which process is a replica.
//!
//! Owns what a replica asks of it. A file beside the key-encryption key is such a record where it can be
//! written; in Kubernetes the key is mounted read-only, and an object of the API takes the file's place.

use std::error::Error;
use std::fmt::Debug;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use thiserror::Error;

/// The answer to a replica that is about to found a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The record names this replica's disk. It may found the group, also if it began to before.
    Granted,
    /// Another disk founded a group. The text says where that is recorded.
    FoundedBefore(String),
}

/// The answer to a replica that is about to take the place of a member with another disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// It may.
    Granted,
    /// Another process has this replica's id. The text says which.
    Another(String),
}

/// The record cannot be read or written.
#[derive(Debug, Error)]
#[error("cannot ask the record of the group's founding and processes")]
pub struct ClaimError(#[source] pub Box<dyn Error + Send + Sync>);

/// A durable record of which disk founded the group. It is written once.
pub trait FoundingRegister: Debug + Send + Sync {
    /// Records that the disk with this incarnation founds the group, unless a record exists. Of several
    /// disks that ask, at whatever time, one is granted the claim; it is granted it again whenever it asks.
    fn claim(&self, incarnation: u64) -> BoxFuture<'_, Result<Claim, ClaimError>>;

    /// Whether this process may take the place of a member with its id and another disk. The platform may
    /// know of a newer process with this id: a node that was thought dead comes back with the former one.
    /// Without such knowledge the place is granted, since a replica that lost its disk looks the same.
    fn may_take_place(&self) -> BoxFuture<'_, Result<Place, ClaimError>> {
        std::future::ready(Ok(Place::Granted)).boxed()
    }
}
