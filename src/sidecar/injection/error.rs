//! Why a Pod cannot have a sidecar.

use smc_types::ids::InvalidName;
use thiserror::Error;

use crate::interception::{InterceptionError, PROXY_UID};

/// Why a Pod is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InjectionError {
    /// The name of its account is none that Kubernetes takes.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// It is no Pod with containers.
    #[error("it is not a Pod with a container of its own in spec.containers")]
    NotAPod,
    /// Its author uses a name that the sidecar needs.
    #[error("the name {name} is that of a {what} of the sidecar; give yours another name")]
    NameTaken {
        /// Container or volume.
        what: &'static str,
        /// The name.
        name: &'static str,
    },
    /// A container runs as the user whose traffic is not intercepted.
    #[error(
        "{field} is {PROXY_UID}, the user of the sidecar: the traffic of this user would bypass the mesh"
    )]
    ProxyUser {
        /// The field.
        field: String,
    },
    /// Its probes have more targets than the sidecar can be started with.
    #[error(
        "the probes and hooks of its containers have at least {targets} targets, more than the sidecar can be \
         started with: what it has to know of them is one argument of a process, of {bytes} bytes at most. \
         Use fewer, or except their ports with the annotation {annotation}"
    )]
    Probes {
        /// How many were counted.
        targets: usize,
        /// The longest argument.
        bytes: usize,
        /// The annotation that leaves ports out of interception.
        annotation: &'static str,
    },
    /// An annotation has a value that means nothing.
    #[error("the annotation {annotation} has {text:?}: {reason}")]
    Annotation {
        /// The annotation.
        annotation: &'static str,
        /// The part of it.
        text: String,
        /// What it should be.
        reason: String,
    },
    /// The lists, of the annotations and of MeshConfig together, would bypass the sidecar.
    #[error("the exclusions from interception are not usable")]
    Interception(#[from] InterceptionError),
}
