//! Owns the lab: it runs any mesh directory of ordinary Kubernetes YAML on one machine.
//!
//! The lab takes the part of the kubelet, kube-proxy and the injector. A Pod becomes a network
//! namespace with its own address, `smc init` programs interception in it, a real Envoy starts from
//! the real bootstrap, then the containers' commands run as processes. Service names and virtual IPs
//! answer. The controller is the real `smc controller`.
//!
//! The lab is not a container runtime: it has no images and no cgroups, and every Pod sees the
//! machine's files.
//!
//! # Processes
//!
//! ```text
//! Lab, `smc-lab up` ── lifeline pipe ──► pid 1 ──► supervisor ──► controller
//!         │                             (pid, mount,    │
//!         │                              net namespaces)├──► pause, Envoy, containers (a netns per Pod)
//!         └─────────── control.sock ────────────────────┴──► bridge, kube-proxy rules
//! ```
//!
//! All processes are in one pid namespace, so the kernel ends them with its first process. That
//! process ends when its lifeline closes, however the owner died. Outside the namespaces the lab
//! changes only its state directory.
//!
//! [`Lab`] is the interface for tests and the demo; `smc-lab` is the same on the command line.

mod addresses;
mod background;
mod client;
mod config;
mod container;
mod control;
mod control_client;
mod controller;
mod controllers;
mod cut_off;
mod enter;
mod error;
mod handle;
mod hosts;
mod http;
mod kube_proxy;
mod lab_pod;
mod log_file;
mod machine;
mod mesh_files;
mod netns;
mod network;
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
mod settled;
mod state_dir;
mod supervisor;
pub mod tools;
mod virtual_ips;
mod workload;

pub use background::{Calls, TcpConnection};
pub use client::Lab;
pub use config::{ENVOY, Variant};
pub use enter::{EnterArgs, PauseArgs, enter, pause};
pub use error::LabError;
pub use handle::LabHandle;
pub use options::{LabOptions, beside};
pub use pid1::run as run_pid1;
pub use reports::{ExecOutput, Failure, FetchResult, HttpReply, PodInfo, TcpResult};
pub use sandbox::Privilege;
pub use state_dir::{StateDir, running_labs};
pub use supervisor::run as run_supervisor;
