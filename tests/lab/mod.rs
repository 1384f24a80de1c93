//! The lab: any mesh directory of ordinary Kubernetes YAML, running on one machine.
//!
//! It does what a kubelet and kube-proxy would: a Pod becomes a network namespace with an address of its own, `smc
//! init` programs interception in it, a real Envoy starts from the real bootstrap, then the containers' commands run
//! as processes. Service names and virtual IPs answer. The controller is the real `smc controller`.
//!
//! The lab is not a container runtime: there are no images, no cgroups, and every Pod sees the machine's files.
//!
//! # How it is built
//!
//! ```text
//! you ── Lab / `smc-lab up` ── lifeline pipe ──► pid 1 ──► supervisor ──► controller
//!            │                                  (own pid,      │
//!            └───────── control.sock ──────────  mount, net ───┤──► pause, Envoy, containers  (one netns per Pod)
//!                                                namespaces)   └──► bridge, kube-proxy rules
//! ```
//!
//! Everything lives in one pid namespace, so the kernel ends it all with that namespace's first process, and that
//! process ends when the other end of its lifeline closes, however the owner died. Nothing on the host is touched but
//! the lab's state directory.
//!
//! [`Lab`] is the interface for tests and the demo; the binary `smc-lab` is the same for people.

mod addresses;
mod client;
mod config;
mod container;
mod control;
mod controller;
mod controllers;
mod conversation;
mod enter;
mod error;
mod handle;
mod hosts;
mod http;
mod kube_proxy;
mod log_file;
mod mesh_files;
mod names;
mod netns;
mod network;
mod ongoing;
mod options;
mod pid1;
mod plan;
mod pod;
mod probe;
mod process;
mod publication;
mod reports;
mod sandbox;
mod server;
mod state_dir;
mod supervisor;
pub mod tools;
mod virtual_ips;

pub use client::Lab;
pub use config::Variant;
pub use enter::{EnterArgs, PauseArgs, enter, pause};
pub use error::LabError;
pub use handle::LabHandle;
pub use names::NamespacedName;
pub use ongoing::{Calls, Talk};
pub use options::LabOptions;
pub use pid1::run as run_pid1;
pub use reports::{ExecOutput, Failure, FetchResult, HttpReply, PodInfo, TcpResult};
pub use state_dir::{StateDir, names_of_labs};
pub use supervisor::run as run_supervisor;
