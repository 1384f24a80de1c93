//! Everything that needs the real thing: the lab, which runs a mesh of network namespaces on one machine, and what
//! the demo and the end-to-end tests share.

pub mod lab;
