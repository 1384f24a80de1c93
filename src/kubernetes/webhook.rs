//! The webhooks of a replica: what the API server asks before it stores an object.
//!
//! Owns the HTTPS server that all webhooks share ([`server`]), the injector of sidecars ([`injector`]), and
//! what goes with both: the certificate that the API server trusts ([`ca_bundle`]), and the Secrets of
//! sidecars ([`bootstrap_secret`], [`secret_gc`]). It reports pods that have none ([`missing_sidecars`]).
//! Custom resources are judged ([`validator`]) and converted ([`conversion`]). What becomes of an object is
//! decided in [`smc_sidecar::injection`] and the like; here it is carried out.
//!
//! Every replica serves the webhooks; what is kept up in the API is the Raft leader's task.

pub(crate) mod body;
pub(crate) mod bootstrap_secret;
pub(crate) mod ca_bundle;
pub mod conversion;
pub(crate) mod decoded;
pub mod injector;
pub(crate) mod missing_sidecars;
pub(crate) mod namespaces;
pub(crate) mod review;
mod room;
pub(crate) mod secret_gc;
pub(crate) mod server;
pub(crate) mod unclaimed_sidecars;
pub mod validator;

/// How long the API may take for one request of a webhook. The API server waits ten seconds for a webhook.
pub(crate) const API_LIMIT: std::time::Duration = std::time::Duration::from_secs(4);
