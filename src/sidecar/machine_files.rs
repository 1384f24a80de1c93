//! The files with which a machine without a pod joins the mesh, beside its Envoy bootstrap: what the injector
//! and the kubelet do for a pod, as systemd units.
//!
//! Owns their text. They fail closed: interception stands before the network is up, and stays while the
//! machine's proxy is down. `smc-init.service` alone takes it away, when a person stops it.

use std::fmt::Write as _;

use smc_types::ids::{ProxyName, WorkloadId};
use smc_types::text::truncated;
use thiserror::Error;

use crate::interception::{Interception, InterceptionError, PROXY_UID, Parameters};

/// The Envoy bootstrap's name in the directory of the machine's files. Envoy reads its format off the ending.
pub const BOOTSTRAP: &str = "envoy.json";
/// The user of the machine's proxy, with the id [`PROXY_UID`].
pub const PROXY_USER: &str = "smc-proxy";

/// Where the files will be on the machine, and the programs that they start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The directory of the files.
    pub directory: String,
    /// Envoy.
    pub envoy: String,
    /// This program.
    pub smc: String,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            directory: "/etc/smc".to_owned(),
            envoy: "/usr/bin/envoy".to_owned(),
            smc: "/usr/local/bin/smc".to_owned(),
        }
    }
}

/// Why there are no files.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MachineFilesError {
    /// A path that systemd would read as more than a path, or not as one.
    #[error("{0:?} is not an absolute path of letters, digits and `-`, `_`, `.`, `+`, `/`")]
    Path(String),
    /// The interception that is asked for.
    #[error("invalid interception parameters")]
    Interception(#[from] InterceptionError),
}

/// A file by its name in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineFile {
    /// Its name.
    pub name: &'static str,
    /// Its content, which holds no secret.
    pub text: String,
}

/// The files of the machine `workload`, whose certificate names `proxy`. The rules of `parameters` are given
/// to `smc init` as flags; its user and ports of the proxy are the defaults, which the bootstrap assumes.
pub fn machine_files(
    workload: &WorkloadId,
    proxy: &ProxyName,
    places: &Places,
    parameters: Parameters,
) -> Result<Vec<MachineFile>, MachineFilesError> {
    for path in [&places.directory, &places.envoy, &places.smc] {
        check_path(path)?;
    }
    let flags = init_flags(&parameters);
    Interception::new(parameters)?;
    Ok(vec![
        MachineFile { name: "smc.env", text: environment(workload, proxy, places, &flags) },
        MachineFile { name: "smc-proxy.conf", text: user() },
        MachineFile { name: "smc-init.service", text: init_unit(workload, places) },
        MachineFile { name: "smc-envoy.service", text: envoy_unit(workload, places) },
    ])
}

/// Paths are written into units, where a space, a quote, `%` or `$` means something.
fn check_path(path: &str) -> Result<(), MachineFilesError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+/".contains(&byte);
    if path.len() > 1 && path.starts_with('/') && path.bytes().all(plain) {
        return Ok(());
    }
    Err(MachineFilesError::Path(truncated(path, 80)))
}

/// The flags of `smc init`, each one word.
fn init_flags(parameters: &Parameters) -> String {
    let mut flags: Vec<String> = Vec::new();
    let mut add = |flag: &str, value: &dyn std::fmt::Display| flags.push(format!("--{flag}={value}"));
    for port in &parameters.exclude_inbound_ports {
        add("exclude-inbound-port", port);
    }
    for port in &parameters.exclude_outbound_ports {
        add("exclude-outbound-port", port);
    }
    for network in &parameters.exclude_outbound_cidrs {
        add("exclude-outbound-cidr", network);
    }
    for network in &parameters.include_outbound_cidrs {
        add("include-outbound-cidr", network);
    }
    flags.join(" ")
}

fn environment(workload: &WorkloadId, proxy: &ProxyName, places: &Places, flags: &str) -> String {
    let Places { directory, envoy, smc } = places;
    let mut text = String::new();
    let _ = write!(
        text,
        "# MeshWorkload {name} in the mesh, as the proxy {proxy}.
#
# 1. Copy this directory to the machine as {directory}, owned by root, mode 0700. {BOOTSTRAP} holds the private key
#    of the machine's proxy: copy it over a channel that no other person reads, and keep no other copy.
#    Start the proxy within a day; a bootstrap that was not used by then is refused.
# 2. Install Envoy as {envoy}, smc as {smc}, and the package iptables.
# 3. Make the proxy's user and start both services:
#
#      cp {directory}/smc-proxy.conf /etc/sysusers.d/ && systemd-sysusers
#      systemctl enable --now {directory}/smc-init.service {directory}/smc-envoy.service
#
# From then on every TCP connection from or to this machine goes through its proxy, except for the ports and
# networks that are excluded below; the port of SSH is, unless it was asked for otherwise. What policy does not
# allow is closed. To leave the mesh:
#
#      systemctl disable --now smc-envoy.service smc-init.service

# The flags of `smc init`; `systemctl restart smc-init smc-envoy` makes a change take effect.
SMC_INIT_FLAGS={flags}
# Further flags of Envoy.
ENVOY_FLAGS=--log-level warning --drain-time-s 5
",
        name = workload.as_name(),
    );
    text
}

fn user() -> String {
    format!(
        "# The user of the proxy, for systemd-sysusers: its traffic alone is not intercepted, so nothing else may run\n\
         # as this user.\n\
         u {PROXY_USER} {PROXY_UID} \"SMC's proxy\"\n"
    )
}

fn init_unit(workload: &WorkloadId, places: &Places) -> String {
    let Places { directory, smc, .. } = places;
    format!(
        "# Sends the TCP connections of this machine through its proxy, from before the network is up until this unit
# is stopped. While the proxy is down, they fail.
[Unit]
Description=SMC: interception for MeshWorkload {name}
DefaultDependencies=no
Wants=network-pre.target
Before=network-pre.target shutdown.target
After=systemd-modules-load.service local-fs.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
EnvironmentFile={directory}/smc.env
ExecStart={smc} init $SMC_INIT_FLAGS
ExecStop={smc} init --remove
CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW
NoNewPrivileges=yes
ProtectHome=yes
ProtectSystem=strict
# The lock of the tables.
ReadWritePaths=/run

[Install]
WantedBy=multi-user.target
",
        name = workload.as_name(),
    )
}

fn envoy_unit(workload: &WorkloadId, places: &Places) -> String {
    let Places { directory, envoy, .. } = places;
    // The bootstrap stays readable by root alone: systemd hands the proxy a copy that no other user can read.
    format!(
        "# The proxy of this machine. Its configuration comes from the mesh's controllers.
[Unit]
Description=SMC: the proxy of MeshWorkload {name}
Requires=smc-init.service
Wants=network-online.target
After=smc-init.service network-online.target
StartLimitIntervalSec=0

[Service]
User={PROXY_USER}
EnvironmentFile={directory}/smc.env
LoadCredential={BOOTSTRAP}:{directory}/{BOOTSTRAP}
ExecStart={envoy} --config-path ${{CREDENTIALS_DIRECTORY}}/{BOOTSTRAP} --disable-hot-restart $ENVOY_FLAGS
Restart=always
RestartSec=1
LimitNOFILE=65536
CapabilityBoundingSet=
NoNewPrivileges=yes
LockPersonality=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem=strict
RestrictNamespaces=yes
RestrictSUIDSGID=yes

[Install]
WantedBy=multi-user.target
",
        name = workload.as_name(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use smc_model::cidr::parse_cidr;
    use smc_types::ids::ProxyUuid;

    fn files(places: &Places, parameters: Parameters) -> Result<Vec<MachineFile>, MachineFilesError> {
        let workload: WorkloadId = "machine/bank/ledger-1".parse().unwrap();
        let service = "bank/ledger".parse().unwrap();
        let proxy = ProxyName::of_machine(ProxyUuid::derived(&workload), &service).unwrap();
        machine_files(&workload, &proxy, places, parameters)
    }

    fn text(files: &[MachineFile], name: &str) -> String {
        files.iter().find(|file| file.name == name).unwrap().text.clone()
    }

    #[test]
    fn the_exclusions_become_flags_of_init_that_units_pass_on() {
        let parameters = Parameters {
            exclude_inbound_ports: vec![22, 9100],
            exclude_outbound_ports: vec![53],
            exclude_outbound_cidrs: vec![parse_cidr("169.254.169.254/32").unwrap()],
            ..Parameters::default()
        };
        let files = files(&Places::default(), parameters).unwrap();
        let line = "SMC_INIT_FLAGS=--exclude-inbound-port=22 --exclude-inbound-port=9100 \
                    --exclude-outbound-port=53 --exclude-outbound-cidr=169.254.169.254/32";
        let environment = text(&files, "smc.env");
        assert!(environment.lines().any(|found| found == line), "{environment}");
        let settings = environment.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        assert_eq!(settings.count(), 2);
        assert!(environment.contains(".ledger.bank"));
    }

    #[test]
    fn interception_comes_before_the_proxy_and_outlives_it() {
        let files = files(&Places::default(), Parameters::default()).unwrap();
        let (init, envoy) = (text(&files, "smc-init.service"), text(&files, "smc-envoy.service"));
        assert!(init.contains("ExecStart=/usr/local/bin/smc init $SMC_INIT_FLAGS\n"), "{init}");
        assert!(init.contains("Before=network-pre.target"), "{init}");
        assert!(envoy.contains("Requires=smc-init.service\n"), "{envoy}");
        assert!(!init.contains("PartOf") && !init.contains("smc-envoy"), "{init}");
    }

    #[test]
    fn the_proxy_reads_its_key_as_a_credential_and_has_no_privilege() {
        let places = Places { directory: "/opt/mesh".to_owned(), ..Places::default() };
        let files = files(&places, Parameters::default()).unwrap();
        let envoy = text(&files, "smc-envoy.service");
        assert!(envoy.contains("LoadCredential=envoy.json:/opt/mesh/envoy.json\n"), "{envoy}");
        assert!(envoy.contains("--config-path ${CREDENTIALS_DIRECTORY}/envoy.json "), "{envoy}");
        assert!(envoy.contains("User=smc-proxy\n") && envoy.contains("CapabilityBoundingSet=\n"), "{envoy}");
        assert!(text(&files, "smc-proxy.conf").contains("u smc-proxy 1500 "));
    }

    #[test]
    fn a_path_that_a_unit_reads_otherwise_is_refused() {
        for bad in
            ["", "/", "etc/smc", "/etc/s mc", "/etc/%h", "/etc/$HOME", "/etc/\nUser=root", "/a\"b", "/ä"]
        {
            for places in [
                Places { directory: bad.to_owned(), ..Places::default() },
                Places { envoy: bad.to_owned(), ..Places::default() },
                Places { smc: bad.to_owned(), ..Places::default() },
            ] {
                let refused = files(&places, Parameters::default()).unwrap_err();
                assert!(matches!(refused, MachineFilesError::Path(_)), "{bad:?}: {refused}");
            }
        }
        let unsafe_ports = Parameters { exclude_inbound_ports: vec![15001], ..Parameters::default() };
        let refused = files(&Places::default(), unsafe_ports).unwrap_err();
        assert!(matches!(refused, MachineFilesError::Interception(_)), "{refused}");
    }
}
