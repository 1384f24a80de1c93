//! Owns the questions to the machine before a cluster starts: privileges, packages, free ports.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use crate::command::{self, command};
use crate::config::{API_PORT, ETCD_PORTS};
use crate::{ClusterError, programs};

/// The flags with which an ordinary user may make namespaces, where the kernel lets them.
const USER_NAMESPACE: [&str; 2] = ["--user", "--map-root-user"];
/// Time limit of `unshare true`, on a machine that is busy.
const LIMIT: std::time::Duration = std::time::Duration::from_mins(1);

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

/// How many addresses are tried for a cluster. The first is nearly always free.
const ADDRESSES: u32 = 16;

/// An address of the loopback interface at which nothing listens on the ports of an API server and of etcd.
/// The name decides about it, so that clusters that start at once take different ones. What asks for any free
/// port gets none there: at an address that all have in common, a port that was free a moment ago is taken
/// now and then before its component listens.
pub(crate) fn free_host(name: &str) -> Result<Ipv4Addr, ClusterError> {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let first = hasher.finish();
    let (client, peer) = ETCD_PORTS;
    let mut refused = None;
    for attempt in 0..u64::from(ADDRESSES) {
        let [.., net, high, low] = first.wrapping_add(attempt).to_be_bytes();
        // The others are those of the replicas in other tests.
        let host = Ipv4Addr::new(127, 251 + net % 4, high, 1 + low % 254);
        match [API_PORT, client, peer]
            .into_iter()
            .try_for_each(|port| TcpListener::bind((host, port)).map(drop))
        {
            Ok(()) => return Ok(host),
            Err(error) => refused = Some(error),
        }
    }
    let error = refused.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into());
    Err(ClusterError::command::<std::io::Error>("find a free address")(error))
}
