//! The life of proxy certificates after they are issued: claimed by the first connection, released in
//! the end.
//!
//! Owns the waiting and the repetition around the rules of [`smc_authority::rules`], which decide. Does
//! not know sockets and streams: [`crate::xds`] uses this module, never the reverse.

pub(crate) mod admission;
pub(crate) mod orphan_releaser;
pub(crate) mod release_watcher;
