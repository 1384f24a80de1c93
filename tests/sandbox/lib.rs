//! What a mesh in network namespaces and a Kubernetes on one machine share.
//!
//! Owns the [`StateDirectory`] of each on the host, and the [`lifeline`] that ends it with its owner.

pub mod lifeline;
mod state_directory;

pub use state_directory::{DirectoryError, StateDirectory, running};
