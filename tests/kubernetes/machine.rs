//! Owns the questions to the machine before a cluster starts: privileges, packages, free ports.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use crate::command::{self, command};
use crate::{ClusterError, programs};

/// The flags with which an ordinary user may make namespaces, where the kernel lets them.
const USER_NAMESPACE: [&str; 2] = ["--user", "--map-root-user"];
/// Time limit of `unshare true`.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(20);

/// What a node needs of Debian's packages.
const PACKAGES: [(&str, &str); 6] = [
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("iptables", "iptables"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
];
/// The plugins of the package containernetworking-plugins.
const CNI: &str = "/usr/lib/cni/bridge";

/// Fails unless a cluster with a node can run: root, with the packages.
pub(crate) async fn check_node() -> Result<(), ClusterError> {
    if !nix::unistd::geteuid().is_root() {
        let problem = "you are an ordinary user".to_owned();
        return Err(ClusterError::Unprivileged { needs: "with a node needs root", problem });
    }
    for (program, package) in PACKAGES {
        programs::installed(program, package)?;
    }
    if !Path::new(CNI).is_file() {
        return Err(ClusterError::Missing {
            program: CNI.to_owned(),
            advice: "Debian package: containernetworking-plugins".to_owned(),
        });
    }
    try_unshare(&["--mount", "--pid", "--net", "--uts", "--cgroup", "--fork"]).await.map_err(|problem| {
        ClusterError::Unprivileged { needs: "with a node needs namespaces of its own", problem }
    })
}

/// Finds the flags with which this user may make namespaces.
pub(crate) async fn unshare_flags() -> Result<Vec<String>, ClusterError> {
    let mut refusals = Vec::new();
    for flags in [&[] as &[&str], &USER_NAMESPACE] {
        let all: Vec<&str> = flags.iter().copied().chain(["--mount", "--pid", "--fork"]).collect();
        match try_unshare(&all).await {
            Ok(()) => return Ok(flags.iter().map(|flag| (*flag).to_owned()).collect()),
            Err(problem) => refusals.push(problem),
        }
    }
    Err(ClusterError::Unprivileged {
        needs: "needs root, or unprivileged user namespaces",
        problem: refusals.join("; "),
    })
}

async fn try_unshare(flags: &[&str]) -> Result<(), String> {
    let mut unshare = command("unshare");
    unshare.args(flags).args(["--", "true"]);
    match command::run(unshare, "", LIMIT).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.chain()),
    }
}

/// Ports of the loopback interface that were free a moment ago, all different.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N], ClusterError> {
    let failed = || ClusterError::command::<std::io::Error>("find a free port");
    let mut ports = [0; N];
    // All are held until the last is found.
    let mut listeners = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed())?;
        *port = listener.local_addr().map_err(failed())?.port();
        listeners.push(listener);
    }
    Ok(ports)
}
