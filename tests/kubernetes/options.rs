//! Owns the options of a cluster.

use crate::{Image, Programs};

/// The options of a cluster. [`ClusterOptions::new`] and [`ClusterOptions::api_only`] have the
/// defaults.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The cluster's name, unique per user while it runs; generated if absent.
    pub name: Option<String>,
    /// The programs of Kubernetes.
    pub programs: Programs,
    /// Run a node, with containers, virtual IPs and DNS. Needs root.
    pub node: bool,
    /// Run the controller manager, which makes accounts and endpoints and ends namespaces. A node needs it.
    pub controller_manager: bool,
    /// Images that the node has.
    pub images: Vec<Image>,
    /// Additional flags of the API server.
    pub api_server_flags: Vec<String>,
    /// Users whose requests the API server records, for [`crate::ClusterHandle::audit`].
    pub audited: Vec<String>,
    /// Keep the cluster's directory, with all logs, at the end.
    pub keep: bool,
}

impl ClusterOptions {
    /// A cluster with a node.
    pub fn new(programs: Programs, images: Vec<Image>) -> Self {
        Self {
            name: None,
            programs,
            node: true,
            controller_manager: true,
            images,
            api_server_flags: Vec::new(),
            audited: Vec::new(),
            keep: false,
        }
    }

    /// etcd, the API server and the controller manager alone. Any number of these runs at once, and
    /// none needs root where the kernel has unprivileged user namespaces. The API server is on the
    /// host's network, so it reaches webhooks that a test serves there.
    pub fn api_only(programs: Programs) -> Self {
        Self { node: false, ..Self::new(programs, Vec::new()) }
    }
}
