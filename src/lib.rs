//! The service mesh controller's thin shell: Kubernetes objects, certificates, streams, the operating system.
//!
//! Owns I/O, and carries out what `smc-mesh` decides. Refuses interesting branches: those belong there.

pub mod init;
