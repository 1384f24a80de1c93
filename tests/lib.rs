//! Everything that needs the real thing: the lab, which runs a mesh of network namespaces on one machine, the
//! bookstore applications, the demo, and what the end-to-end tests share.

pub mod bookstore;
pub mod demo;
pub mod lab;
