//! Owns the controller replicas on the node, each with its own ports, admin socket and data
//! directory.
//!
//! A single replica starts with `--create-kek` and no other members. Several replicas form one Raft
//! group.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::sys::signal::Signal;

use super::config::{self, Config};
use super::controller::Controller;
use super::state_dir::StateDir;
use super::{LabError, addresses};

/// All replicas by number, running or not.
#[derive(Debug)]
pub(super) struct Controllers {
    all: Vec<Controller>,
    /// How many of them run from the beginning.
    founders: usize,
}

/// The xDS address of a replica.
pub(super) fn xds(replica: u16) -> SocketAddr {
    SocketAddr::from((addresses::NODE_V4, 15128 + 100 * replica))
}

/// The Raft address of a replica.
pub(super) fn raft(replica: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 15129 + 100 * replica))
}

/// The health and metrics address of a replica.
fn metrics(replica: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 9091 + replica))
}

impl Controllers {
    pub(super) fn new(config: &Config, state: &StateDir) -> Result<Self, LabError> {
        let kek = state.path().join("kek");
        if count(config) > 1 {
            write_key(&kek)?;
        }
        let replica = |replica| {
            let args = args(replica, config, state, &kek);
            Controller::new(
                args,
                config::controller_gid(replica),
                metrics(replica),
                state.controller_log(replica),
            )
        };
        let all = (0..count(config)).map(replica).collect();
        Ok(Self { all, founders: usize::from(config.replicas) })
    }

    /// Starts the replicas that run from the beginning, and waits until all are ready.
    pub(super) async fn start_all(&self) -> Result<(), LabError> {
        let founders = &self.all[..self.founders];
        for controller in founders {
            controller.start().await?;
        }
        for controller in founders {
            controller.ready().await?;
        }
        Ok(())
    }

    /// Starts one replica, and waits until it is ready.
    pub(super) async fn start(&self, replica: u16) -> Result<(), LabError> {
        let controller = self.get(replica)?;
        controller.start().await?;
        controller.ready().await
    }

    /// Sends a signal to one replica and waits until it ends. Fails if it is not running.
    pub(super) async fn stop(&self, replica: u16, signal: Signal) -> Result<String, LabError> {
        self.get(replica)?.stop(signal).await
    }

    /// Sends a signal to one replica, if it is running.
    pub(super) async fn signal(&self, replica: u16, signal: Signal) -> Result<(), LabError> {
        self.get(replica)?.signal(signal).await;
        Ok(())
    }

    /// Sends SIGTERM to all replicas, then waits for each.
    pub(super) async fn stop_all(&self) {
        for controller in &self.all {
            // One that is stopped ends with the others.
            controller.signal(Signal::SIGCONT).await;
            controller.signal(Signal::SIGTERM).await;
        }
        for controller in &self.all {
            let _ = controller.stop(Signal::SIGTERM).await;
        }
    }

    /// Describes the replicas that ended by themselves since the last call.
    pub(super) fn ended(&self) -> Vec<String> {
        let ended = self.all.iter().zip(0u16..).filter_map(|(controller, replica)| {
            let name = config::numbered("the controller", replica);
            Some(format!("{name} ended by itself: {}", controller.ended()?))
        });
        ended.collect()
    }

    fn get(&self, replica: u16) -> Result<&Controller, LabError> {
        let found = self.all.get(usize::from(replica));
        found.ok_or_else(|| LabError::Refused(format!("there is no replica {replica} of the controller")))
    }
}

/// All replicas, those that run only once they are started among them.
fn count(config: &Config) -> u16 {
    config.replicas + config.absent_replicas
}

fn args(replica: u16, config: &Config, state: &StateDir, kek: &Path) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut args: Vec<String> = vec!["controller".to_owned()];
    let mut flag = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
    match &config.kubeconfig {
        Some(kubeconfig) => flag("--kubeconfig", text(kubeconfig)),
        None => flag("--mesh-dir", text(&state.published())),
    }
    flag("--data-dir", text(&state.path().join(config::numbered("controller", replica))));
    flag("--kek-file", text(kek));
    flag("--xds-listen", xds(replica).to_string());
    flag("--metrics-listen", metrics(replica).to_string());
    flag("--admin-socket", config::admin_socket(replica));
    if count(config) > 1 {
        flag("--replica-id", replica.to_string());
        flag("--raft-listen", raft(replica).to_string());
        for other in 0..config.replicas {
            flag("--initial-member", format!("{other}={}", raft(other)));
        }
        for other in 0..count(config) {
            flag("--xds-replica", format!("{other}={}", xds(other)));
        }
    } else {
        args.push("--create-kek".to_owned());
    }
    if config.kubeconfig.is_some() {
        args.push("--kubernetes".to_owned());
    }
    args.extend(config.controller_args.iter().cloned());
    args
}

/// Writes one key-encryption key for all replicas, as an operator would.
fn write_key(path: &Path) -> Result<(), LabError> {
    let made = || {
        let mut key = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(&key)
    };
    made().map_err(LabError::file("write", path))
}
