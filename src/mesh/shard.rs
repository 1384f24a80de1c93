//! Sharding: how the proxies of a mesh are divided among the replicas of its controller.
//!
//! Owns the order of replicas that each proxy connects by ([`ring`]). The division has no state: a
//! proxy's bootstrap holds its order, and Envoy fails over along it. Three parts belong here once
//! replicas hand proxies over to each other: the epoch of a division (the Raft log index of the
//! last membership change), the proxies that move between two epochs, and the pace at which they
//! move.

pub mod ring;
