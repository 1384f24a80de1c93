//! The service mesh controller's thin shell: Kubernetes objects, certificates, streams, the operating system.
//!
//! Owns I/O, and carries out what `smc-mesh` decides. Refuses interesting branches: those belong there.

pub mod init;
//! Service Mesh Controller: the shell around the pure core in `smc-mesh`.

pub mod sources;
//! The shell of SMC: everything that does I/O, around the pure core in `smc-mesh`.

pub mod ca;
pub mod env;
