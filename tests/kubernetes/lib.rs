//! Owns the cluster in a box: a real Kubernetes on this machine, for tests and for people.
//!
//! etcd, the API server and the controller manager are real, and so are, unless only the API is
//! wanted, the scheduler, a kubelet with containerd and runc, kube-proxy and CoreDNS. There is no
//! container engine: images are made of local files.
//!
//! # Processes
//!
//! ```text
//! Cluster, `smc-cluster up` ── lifeline ──► keeper ── lifeline ──► pid 1 (own namespaces)
//!        │                                  │ locks, cgroups,        ├──► etcd, kube-apiserver, …
//!        │                                  │ port on the host       ├──► containerd, kubelet, …
//!        │                                  └────────────────────────┤
//!        └────────────────── control.sock ───────────────────────────┘
//! ```
//!
//! All components are in one pid namespace, so the kernel ends them with its first process. That
//! process ends when its lifeline closes, however the owner died; the keeper then removes the
//! cgroups and the directory. If the keeper is killed as well, the next cluster removes them.
//! Outside the namespaces a cluster changes only its directory and its cgroups.
//!
//! [`Cluster`] is the interface for tests; `smc-cluster` is the same on the command line.

mod admin;
mod archive;
mod audit;
mod cgroups;
mod cluster;
mod command;
mod components;
mod config;
mod control;
mod create;
mod dns;
mod error;
mod etcd;
mod forward;
mod handle;
mod images;
mod join;
mod keeper;
mod kubeconfig;
mod machine;
mod mesh;
mod node_files;
mod options;
mod pid1;
mod pki;
mod programs;
mod state_dir;
mod storage;
mod view;
mod webhook;

pub use admin::Admin;
pub use cluster::Cluster;
pub use command::Output;
pub use create::{create, create_all};
pub use error::ClusterError;
pub use etcd::EtcdCopy;
pub use handle::ClusterHandle;
pub use images::Image;
pub use join::join;
pub use keeper::keep;
pub use mesh::{BOOKSTORE_IMAGE, ENVOY_IMAGE, MESH_NAMESPACE, MeshOptions, SMC_IMAGE, bookstore, in_cluster};
pub use options::ClusterOptions;
pub use pid1::run as run_pid1;
pub use programs::{Programs, beside};
pub use state_dir::{StateDir, running_clusters};
pub use webhook::injector_webhook;
