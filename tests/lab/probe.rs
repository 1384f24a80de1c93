//! Owns readiness probes, which connect inside the Pod's namespace to its loopback address.
//!
//! A kubelet probes from outside, so an injector rewrites probes to bypass the proxy. Here the
//! probe is inside, where loopback is not intercepted, and reaches the application itself.

use std::net::{Ipv4Addr, SocketAddr};

use super::plan::{Check, ContainerPlan, Probe};
use super::{http, netns, process};

/// Probes once.
pub(super) async fn passes(pause: u32, container: &ContainerPlan, probe: &Probe) -> bool {
    let local = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match &probe.check {
        Check::Tcp(port) => netns::connect(pause, local(*port), probe.timeout).await.is_ok(),
        Check::Http { port, path } => {
            let Ok(stream) = netns::connect(pause, local(*port), probe.timeout).await else { return false };
            let reply = http::get(stream, path, probe.timeout).await;
            reply.is_ok_and(|reply| (200..400).contains(&reply.status))
        }
        Check::Exec(argv) => {
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            let mut command = process::command_as(pause, container.uid, container.gid, &argv);
            command.env_clear().envs(&container.env);
            tokio::time::timeout(probe.timeout, process::run(command, ""))
                .await
                .is_ok_and(|done| done.is_ok())
        }
    }
}
