//! The replicated state: the ledger, the sessions of proposers, the membership.
//!
//! Owns how an applied entry changes it, and the wake-up of the callers that wait for that entry. Stands on
//! `storage`; the network and proposing stand above.

pub(crate) mod machine;
pub(crate) mod sessions;
pub(crate) mod shared;
pub(crate) mod waiters;
