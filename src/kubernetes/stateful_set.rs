//! A replica as a pod of a Kubernetes StatefulSet: its number, its place in the group, and its end.
//!
//! Owns what the ordinal of the pod decides. A person changes the number of replicas with `kubectl scale`,
//! and nothing else:
//!
//! - The ordinal is the replica's id, and the addresses of all replicas follow from it ([`Placement`]).
//! - Replica 0 founds the group, once for ever: an object of the API records it ([`FoundingObject`]). Every
//!   other replica, and replica 0 without its disk, joins the group of the others.
//! - A replica that is scaled away leaves the group before it ends, while it still counts towards the
//!   majority ([`Departing`]). The leader removes those that could not ([`MemberRemoval`]).
//! - The leader keeps a record of the group that outlives it ([`GroupRecord`]). A group whose disks are all
//!   older than that waits for a person ([`OlderDisks`]).
//! - A process that is left of a former pod ends ([`OwnPod`]).
//! - The key-encryption key is a Secret that is made once ([`KekSecret`]).

mod api;
mod founding;
mod group_record;
mod kek_secret;
mod member_removal;
mod older_disks;
mod own_pod;
mod placement;
mod removed_marker;
mod scale_down;
mod scaling;

pub use api::{ApiError, OwnObjects};
pub use founding::FoundingObject;
pub(crate) use founding::{KEY as FOUNDING_KEY, RECORD as FOUNDING_RECORD};
pub use group_record::GroupRecord;
pub(crate) use group_record::{GROUP_RECORD, KEYS as GROUP_KEYS};
pub(crate) use kek_secret::KEY as SECRET_KEY;
pub use kek_secret::KekSecret;
pub use member_removal::MemberRemoval;
pub use older_disks::OlderDisks;
pub(crate) use older_disks::{CONFIRMATION, POSITION};
pub use own_pod::{OwnPod, PodReplaced};
pub use placement::{MAX_REPLICAS, Placement, PlacementError, Ports};
pub use removed_marker::{has_left, stay, sweep};
pub use scale_down::Departing;
pub use scaling::Departure;
