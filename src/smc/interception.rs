//! `smc init`: programs traffic interception in the current network namespace.
//!
//! Runs `iptables-save`, computes the rules with [`smc_sidecar::interception`], and runs `iptables-restore
//! --noflush`; then the same for IPv6 if the kernel has it. Where that fails, as where iptables or a module
//! of the kernel is missing, it runs `nft -f -` for both at once. If IPv6 exists and cannot be programmed,
//! the command fails, since traffic could otherwise bypass the proxy.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use clap::{Args, ValueEnum};
use smc_model::cidr::{IpNet, parse_cidr};
use smc_sidecar::interception::{
    Family, Interception, InterceptionError, Jumps, PROXY_UID, Parameters, nft_input, nft_removal,
    nft_stray_input, removal_input, resolvers, restore_input, stray_input, stray_removal_input,
};
use smc_types::causes::causes;
use smc_types::ports::{INBOUND_PORT, OUTBOUND_PORT};

use crate::log_args::LogArgs;

/// Exists exactly while the kernel's IPv6 stack is loaded and enabled at boot.
const IPV6_STACK: &str = "/proc/net/if_inet6";

/// The longest wait for another process that holds the lock of the tables. Interception is set up once,
/// before anything else runs in the namespace, so the lock is never held for long.
const LOCK_WAIT_SECONDS: &str = "5";

/// The most that is read of a `resolv.conf`: many times what resolvers themselves take.
const MAX_RESOLV_CONF: u64 = 64 << 10;

/// What programs the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// iptables where it works, else nftables.
    #[default]
    Auto,
    /// `iptables-restore` and `ip6tables-restore`, of either kind (legacy or nft).
    Iptables,
    /// `nft`.
    Nftables,
}

/// Flags of `smc init`.
#[derive(Args, Clone, Debug)]
pub struct InitArgs {
    /// User id the proxy runs as; its own traffic is not intercepted.
    #[arg(long, default_value_t = PROXY_UID, value_name = "UID")]
    pub proxy_uid: u32,
    /// Port of the proxy's outbound listener.
    #[arg(long, default_value_t = OUTBOUND_PORT, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub outbound_port: u16,
    /// Port of the proxy's inbound listener.
    #[arg(long, default_value_t = INBOUND_PORT, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub inbound_port: u16,
    /// Destination port that is reached directly, without the proxy (repeatable).
    #[arg(long = "exclude-outbound-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub exclude_outbound_ports: Vec<u16>,
    /// Local port that others reach directly, without the proxy (repeatable).
    #[arg(long = "exclude-inbound-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub exclude_inbound_ports: Vec<u16>,
    /// Destination network that is reached directly, IPv4 or IPv6 (repeatable).
    #[arg(long = "exclude-outbound-cidr", value_name = "CIDR", value_parser = parse_cidr)]
    pub exclude_outbound_cidrs: Vec<IpNet>,
    /// Intercept only these destination networks, IPv4 or IPv6 (repeatable).
    #[arg(long = "include-outbound-cidr", value_name = "CIDR", value_parser = parse_cidr)]
    pub include_outbound_cidrs: Vec<IpNet>,
    /// Network interface whose traffic is not intercepted (repeatable).
    #[arg(long = "exclude-interface", value_name = "NAME")]
    pub exclude_interfaces: Vec<String>,
    /// The file that names the resolvers, which are reached directly at port 53.
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf")]
    pub resolv_conf: PathBuf,
    /// The program that writes the rules.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub backend: Backend,
    /// Print the rules instead of applying them.
    #[arg(long)]
    pub dry_run: bool,
    /// Take the rules away, for a machine that leaves the mesh.
    #[arg(long, conflicts_with = "dry_run")]
    pub remove: bool,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Why interception could not be set up. No rule of the failing address family was applied.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The parameters do not give a safe set of rules.
    #[error("invalid interception parameters")]
    Parameters(#[from] InterceptionError),
    /// A program could not be started.
    #[error("cannot run `{program}` (Debian packages: iptables, nftables)")]
    Spawn {
        /// The name of the program.
        program: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A program ran and failed.
    #[error("`{program}` failed with {status}: {stderr}")]
    Failed {
        /// The name of the program.
        program: &'static str,
        /// The exit status.
        status: ExitStatus,
        /// The standard error output, on one line.
        stderr: String,
    },
    /// iptables does not work here, and nftables neither.
    #[error("neither iptables nor nftables works here; iptables: {iptables}")]
    Neither {
        /// What iptables said, on one line.
        iptables: String,
        /// What nftables said.
        #[source]
        nftables: Box<Self>,
    },
    /// The rules could not be printed.
    #[error("cannot write the rules to standard output")]
    Print(#[source] io::Error),
}

impl From<InitArgs> for Parameters {
    fn from(args: InitArgs) -> Self {
        let InitArgs {
            proxy_uid,
            outbound_port,
            inbound_port,
            exclude_outbound_ports,
            exclude_inbound_ports,
            exclude_outbound_cidrs,
            include_outbound_cidrs,
            exclude_interfaces,
            resolv_conf,
            backend: _,
            dry_run: _,
            remove: _,
            log: _,
        } = args;
        Self {
            proxy_uid,
            outbound_port,
            inbound_port,
            exclude_outbound_ports,
            exclude_inbound_ports,
            exclude_outbound_cidrs,
            include_outbound_cidrs,
            exclude_interfaces,
            resolvers: named_in(&resolv_conf),
        }
    }
}

/// The resolvers that a file names; none if it cannot be read.
fn named_in(resolv_conf: &Path) -> BTreeSet<IpAddr> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(resolv_conf)?.take(MAX_RESOLV_CONF).read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(bytes)
    };
    match read() {
        Ok(bytes) => resolvers(&String::from_utf8_lossy(&bytes)),
        Err(error) => {
            let file = resolv_conf.display();
            tracing::info!(%file, %error, "no resolvers are known: DNS over TCP is intercepted like the rest");
            BTreeSet::new()
        }
    }
}

/// Programs interception, or with `dry_run` prints the rules for empty tables. Repeating it with the same
/// parameters changes nothing; with other parameters it replaces the rules.
pub fn run(parameters: Parameters, backend: Backend, dry_run: bool) -> Result<(), InitError> {
    let interception = Interception::new(parameters)?;
    if dry_run {
        return print(&interception, backend).map_err(InitError::Print);
    }
    let families = families();
    let iptables = || set_iptables(&interception, &families);
    let nftables = || set_nftables(&interception, &families);
    match backend {
        Backend::Iptables => return iptables(),
        Backend::Nftables => return nftables(),
        Backend::Auto => {}
    }
    let Err(refused) = iptables() else {
        // Those of an earlier run, at which iptables did not work.
        tidy(remove_nftables(&families));
        return Ok(());
    };
    let refused = causes(&refused);
    tracing::info!(iptables = refused, "the rules are those of nftables");
    nftables().map_err(|error| InitError::Neither { iptables: refused, nftables: Box::new(error) })?;
    // Those of the family for which it worked.
    tidy(remove_iptables(&families));
    Ok(())
}

/// Takes interception away. Repeating it changes nothing.
pub fn remove(backend: Backend) -> Result<(), InitError> {
    let families = families();
    match backend {
        Backend::Iptables => return remove_iptables(&families),
        Backend::Nftables => return remove_nftables(&families),
        Backend::Auto => {}
    }
    match remove_iptables(&families) {
        // A program that is missing has written no rules, nor has one that does not work here.
        Ok(()) => tidy(remove_nftables(&families)),
        Err(InitError::Spawn { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            remove_nftables(&families)?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The address families that the kernel has.
fn families() -> Vec<Family> {
    if Path::new(IPV6_STACK).exists() {
        return vec![Family::V4, Family::V6];
    }
    tracing::info!("the kernel has no IPv6: only IPv4 is intercepted");
    vec![Family::V4]
}

fn set_iptables(interception: &Interception, families: &[Family]) -> Result<(), InitError> {
    iptables(families, |family, existing, restore| {
        restore(&restore_input(interception, family, existing))?;
        without_stray_segments(restore(&stray_input(interception, existing)));
        Ok(())
    })
}

fn remove_iptables(families: &[Family]) -> Result<(), InitError> {
    iptables(families, |_, existing, restore| {
        restore(&removal_input(existing))?;
        stray_removal_input(existing).map_or(Ok(()), |input| restore(&input))
    })
}

/// Restores the tables of a family from an input.
type Restore<'a> = &'a dyn Fn(&str) -> Result<(), InitError>;

/// Programs each family, given the jumps that exist.
fn iptables(
    families: &[Family],
    program: impl Fn(Family, Jumps, Restore<'_>) -> Result<(), InitError>,
) -> Result<(), InitError> {
    for family in families {
        let (save, restore) = programs(*family);
        let existing = Jumps::found_in(&capture(save, &[], "")?);
        program(*family, existing, &|input| {
            capture(restore, &["--noflush", "--wait", LOCK_WAIT_SECONDS], input).map(drop)
        })?;
    }
    Ok(())
}

fn set_nftables(interception: &Interception, families: &[Family]) -> Result<(), InitError> {
    nft(&nft_input(interception, families))?;
    without_stray_segments(nft(&nft_stray_input(interception, families)));
    Ok(())
}

fn remove_nftables(families: &[Family]) -> Result<(), InitError> {
    nft(&nft_removal(families))
}

fn nft(input: &str) -> Result<(), InitError> {
    capture("nft", &["-f", "-"], input).map(drop)
}

/// Notes that a kernel cannot drop stray segments. Interception works all the same.
fn without_stray_segments(outcome: Result<(), InitError>) {
    if let Err(error) = outcome {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "segments outside of a connection's window are not dropped, and may reset it");
    }
}

/// Notes that rules of the other program were not taken away, most often because it does not work here.
fn tidy(outcome: Result<(), InitError>) {
    if let Err(error) = outcome {
        tracing::debug!(error = &error as &dyn std::error::Error, "no rules of the other program to remove");
    }
}

fn programs(family: Family) -> (&'static str, &'static str) {
    match family {
        Family::V4 => ("iptables-save", "iptables-restore"),
        Family::V6 => ("ip6tables-save", "ip6tables-restore"),
    }
}

fn print(interception: &Interception, backend: Backend) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if backend == Backend::Nftables {
        let families = [Family::V4, Family::V6];
        for input in [nft_input(interception, &families), nft_stray_input(interception, &families)] {
            writeln!(out, "# nft -f -")?;
            out.write_all(input.as_bytes())?;
        }
        return out.flush();
    }
    for family in [Family::V4, Family::V6] {
        let (_, restore) = programs(family);
        let none = Jumps::default();
        for input in [restore_input(interception, family, none), stray_input(interception, none)] {
            writeln!(out, "# {restore} --noflush")?;
            out.write_all(input.as_bytes())?;
        }
    }
    out.flush()
}

/// Runs `program` with `input` and returns its standard output.
fn capture(program: &'static str, args: &[&str], input: &str) -> Result<String, InitError> {
    let spawn_error = |source| InitError::Spawn { program, source };
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(spawn_error)?;
    // No deadlock: the restore programs print nothing before they have read their whole input, and the save
    // programs get none. A program that ended early is reported by its status below.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(spawn_error)?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(InitError::Failed {
            program,
            status: output.status,
            stderr: stderr.split_whitespace().collect::<Vec<_>>().join(" "),
        });
    }
    written.map_err(spawn_error)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
