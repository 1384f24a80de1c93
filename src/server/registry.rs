//! The life of certificates after they are issued: a proxy's is claimed by the first connection and
//! released in the end, a service account's is forgotten when no workload has it any more.
//!
//! Owns the waiting and the repetition around the rules of [`smc_authority::rules`], which decide. Does
//! not know sockets and streams: [`crate::xds`] uses this module, never the reverse.

pub(crate) mod admission;
pub(crate) mod identity_forgetter;
pub(crate) mod orphan_releaser;
pub(crate) mod release_watcher;
