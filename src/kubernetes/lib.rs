//! SMC in a Kubernetes cluster.
//!
//! Owns all that speaks with an API server: the client and its time limits ([`client`]), the narrow door
//! through which objects are read ([`api`]), so that a test or a simulation can stand in for an API server,
//! the source of the mesh ([`KubernetesSource`]), the [`webhook`]s, the status of objects, their
//! definitions ([`crds`]), a replica as a pod of a StatefulSet ([`stateful_set`]), a group that is put back
//! ([`recovery`]), the installation ([`install`]), and questions to
//! sidecars ([`sidecar_request`], [`sidecar_calls`]). [`replica`]
//! starts what a replica does beside serving proxies.

pub mod api;
mod api_resource;
pub mod client;
pub mod crds;
pub mod custom_objects;
mod event;
pub mod gateway_secret;
pub mod install;
pub mod kubeconfig;
pub mod names;
pub mod recovery;
pub mod replica;
mod secret_requests;
mod shallow;
pub mod sidecar_calls;
pub mod sidecar_request;
mod source;
pub mod stateful_set;
mod status;
pub mod webhook;

pub use source::KubernetesSource;
