//! Owns the files and rules that the lab writes for others: the controller's directory, the Pods'
//! `/etc`, the node's NAT rules. Writes only what has changed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;

use smc_types::ids::NamespacedName;

use super::kube_proxy::{self, ServiceView};
use super::mesh_files::Files;
use super::state_dir::StateDir;
use super::{LabError, hosts, process};

/// Files of a Pod's `/etc` with constant content.
const ETC: [(&str, &str); 2] = [
    ("resolv.conf", "# The lab has no DNS: names are in /etc/hosts.\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
];

/// The content last written.
#[derive(Debug)]
pub(super) struct Publication {
    state: StateDir,
    dual_stack: bool,
    files: Files,
    hosts: BTreeMap<NamespacedName, String>,
    rules: [String; 2],
}

impl Publication {
    pub(super) fn new(state: StateDir, dual_stack: bool) -> Self {
        Self { state, dual_stack, files: Files::new(), hosts: BTreeMap::new(), rules: Default::default() }
    }

    /// Writes the controller's directory. Each file is written beside its target and renamed into
    /// place.
    pub(super) fn files(&mut self, files: Files) -> Result<(), LabError> {
        let directory = self.state.published();
        let beside = self.state.path().join("publishing");
        for name in self.files.keys().filter(|name| !files.contains_key(*name)) {
            let path = directory.join(name);
            match fs::remove_file(&path) {
                // An earlier publication removed it and then failed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(LabError::file("remove", &path))?,
            }
        }
        for (name, bytes) in &files {
            if self.files.get(name) != Some(bytes) {
                let path = directory.join(name);
                fs::write(&beside, bytes).map_err(LabError::file("write", &beside))?;
                fs::rename(&beside, &path).map_err(LabError::file("create", &path))?;
            }
        }
        self.files = files;
        Ok(())
    }

    /// Writes the Pod's files of `/etc`. They are bind-mounted in the Pod, so they are changed in
    /// place.
    pub(super) fn hosts(
        &mut self,
        pod: &NamespacedName,
        addresses: &[IpAddr],
        services: &BTreeMap<NamespacedName, ServiceView>,
    ) -> Result<(), LabError> {
        let text = hosts::hosts(pod, addresses, services);
        let written = self.hosts.get(pod);
        if written == Some(&text) {
            return Ok(());
        }
        let directory = self.state.pod(pod);
        if written.is_none() {
            fs::create_dir_all(&directory).map_err(LabError::file("create", &directory))?;
            for (file, content) in ETC {
                let path = directory.join(file);
                fs::write(&path, content).map_err(LabError::file("write", &path))?;
            }
        }
        let path = directory.join("hosts");
        let write = || {
            let mut file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
            // The file never gets shorter while it is written, so a concurrent reader sees whole
            // lines, old or new.
            let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
            let padding = "\n".repeat(length.saturating_sub(text.len()));
            file.write_all(format!("{text}{padding}").as_bytes())?;
            file.set_len(text.len() as u64)
        };
        write().map_err(LabError::file("write", &path))?;
        self.hosts.insert(pod.clone(), text);
        Ok(())
    }

    /// Forgets a Pod that is gone; the next one of its name gets new files.
    pub(super) fn forget(&mut self, pod: &NamespacedName) {
        self.hosts.remove(pod);
    }

    /// Writes the node's rules for virtual IPs.
    pub(super) async fn rules(
        &mut self,
        services: &BTreeMap<NamespacedName, ServiceView>,
    ) -> Result<(), LabError> {
        let families = [("iptables-restore", false), ("ip6tables-restore", true)];
        for ((program, ipv6), written) in families.into_iter().zip(&mut self.rules) {
            let table = kube_proxy::nat_table(services, ipv6);
            if *written == table || (ipv6 && !self.dual_stack) {
                continue;
            }
            process::run(process::command(program, &["--wait", "5"]), &table).await?;
            *written = table;
        }
        Ok(())
    }
}
