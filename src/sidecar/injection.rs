//! The sidecar of a pod: which pods get one, and what is added to them.
//!
//! Owns the one rule, for the catalog and for the programs that start pods, and the changes that injection
//! makes to a Pod: a function from the Pod as JSON to the Pod as JSON. Issuing the proxy's certificate and
//! writing its Secret is the webhook's task, and reading labels and annotations for the catalog the source's.

mod annotation;
mod containers;
mod decision;
mod drawn;
mod error;
mod exclusions;
mod names;
mod pod;
mod probe_config;
mod probe_headers;
mod probe_target;
mod probes;
mod resources;
mod settings;
mod sidecar;
mod statistics;
#[cfg(test)]
mod tests;

pub use decision::{Decision, MIRROR_ANNOTATION, NotInjected, decide, switch};
pub use drawn::{Drawn, ProbeToken};
pub use error::InjectionError;
pub use names::{
    BOOTSTRAP_KEY, CONTAINERS, ENVOY, INJECTION_ANNOTATION, MANAGED_BY_LABEL, MANAGED_BY_VALUE,
    METRICS_ANNOTATION, PROXY_UUID_LABEL, SECRET_PREFIX, secret_name,
};
pub use pod::{Site, drawn_for, inject, proxy_of};
pub use settings::Settings;
pub use sidecar::{Sidecar, sidecar};
