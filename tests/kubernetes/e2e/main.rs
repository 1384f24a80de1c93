//! The tests in a real Kubernetes: most in one cluster that they share, each in namespaces of its
//! own.

mod api_only;
mod bookstore;
mod faults;
mod injection;
mod living;
mod mesh;
mod node;
mod objects;
mod shared;
mod source;
mod stage;
mod traffic;
