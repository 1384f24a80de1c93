//! Service Mesh Controller: the shell around the pure core in `smc-mesh`.

pub mod sources;
