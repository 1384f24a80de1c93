//! The tests in a real Kubernetes: most in one cluster that they share, each in namespaces of its
//! own; those that break a cluster in another one, one after the other.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot go on fails, and shows what it measured"
)]

mod api_only;
mod bookstore;
mod charts;
mod contour;
mod controller;
mod documents;
mod egress;
mod everywhere;
mod faults;
mod fields;
mod gateway;
mod injection;
mod key_encryption_key;
mod living;
mod machines;
mod mesh;
mod node;
mod objects;
mod osm;
mod program;
mod programmed;
mod recovery;
mod reinstall;
mod rejection;
mod restarts;
mod rights;
mod scale;
mod shared;
mod sidecars;
mod source;
mod stage;
mod thief;
mod traffic;
mod two_meshes;
mod walk;
