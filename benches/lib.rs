//! What the benchmarks measure on: a mesh of any size, the same every time.
//!
//! Service *i* stands in namespace `n<i mod 10>`, has one port and an identity of its own. Proxies are spread over
//! the services in turn. The identity of service *i* may call the `reach` services after it, by an HTTP route.

pub mod mesh;
