//! A model API server that the source of production reads over HTTP, and a judge of what the source says.
//!
//! Owns one [`world`]: a [`history`] of versions, served over HTTP in memory by a [`server`] whose order of
//! answers and whose [`faults`] follow from a seed; a source that reads it through the client of production;
//! and a [`judge`] that knows the history and shares no code with the source. A [`story`] is what happens. A
//! story that fails is made shorter by [`shrink`].
//!
//! The server behaves as the documentation of the API says
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/>), and where the documentation is silent,
//! as `kube-apiserver` 1.34 does.

pub mod clock;
pub mod connection;
pub mod faults;
pub mod history;
mod http;
pub mod judge;
pub mod objects;
pub mod random;
mod resources;
mod routes;
pub mod server;
pub mod shrink;
pub mod story;
mod tally;
mod watching;
pub mod world;
mod written;
