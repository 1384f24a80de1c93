//! Traffic interception: the iptables rules that send a workload's TCP connections through its proxy.
//!
//! Owns the parameters, their validation and the rules as text for `iptables-restore --noflush`, one text per
//! IP family, and as one text for `nft -f`. It runs no program: `smc init` passes it the output of
//! `iptables-save` and passes its result to `iptables-restore` or `nft`.
//!
//! The semantics are those of OSM's init container (nat table, four chains):
//!
//! - **inbound** (`PREROUTING`): every TCP connection goes to the inbound listener, except to the
//!   ports that must be reachable without the mesh: metrics, rewritten probes, and the caller's
//!   exclusions. Connections through excluded interfaces are left alone, both ways.
//! - **outbound** (`OUTPUT`): first traffic that must never loop (the proxy's own, loopback), then
//!   the caller's exclusions by network and by port, then the inclusions; all other connections go
//!   to the outbound listener. If any network is included, only included networks are intercepted.
//!
//! The workload's resolvers are asked directly, over TCP as over UDP. A segment that belongs to no connection
//! the kernel knows (late, repeated, outside the window) would not be redirected but reach the application's
//! own port, which answers it with a reset of the connection; it is dropped.
//!
//! Other protocols than TCP are not intercepted. Connections from outside to the proxy's own
//! listener ports are *not* exempt: they arrive at the inbound listener, where no filter chain
//! matches them, so no other workload can reach the outbound listener or the admin port.

mod nftables;
mod resolvers;
mod rules;

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
pub use nftables::{nft_input, nft_removal, nft_stray_input};
pub use resolvers::resolvers;
pub use rules::{Jumps, removal_input, restore_input, stray_input, stray_removal_input};
use smc_model::sidecar_settings::MAX_LIST_LEN;
use smc_types::ports::{ADMIN_PORT, INBOUND_PORT, METRICS_PORT, OUTBOUND_PORT, PROBE_PORTS};
use smc_types::text::truncated;

/// The user the proxy runs as, unless a parameter names another. OSM's.
pub const PROXY_UID: u32 = 1500;
/// An IP family; each has its own tables and its own program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4: `iptables-restore`.
    V4,
    /// IPv6: `ip6tables-restore`.
    V6,
}

/// The connections to intercept. [`Interception::new`] refuses parameters that would bypass the
/// proxy or loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interception {
    proxy_uid: u32,
    outbound_port: u16,
    inbound_port: u16,
    exclude_outbound_ports: BTreeSet<u16>,
    exclude_inbound_ports: BTreeSet<u16>,
    exclude_outbound_cidrs: BTreeSet<IpNet>,
    include_outbound_cidrs: BTreeSet<IpNet>,
    exclude_interfaces: BTreeSet<String>,
    resolvers: BTreeSet<IpAddr>,
}

/// The unchecked parameters of [`Interception::new`], as flags or annotations give them. The flags are a
/// struct of the command line: this package knows no parser of flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The user the proxy runs as; its traffic is not intercepted.
    pub proxy_uid: u32,
    /// The proxy's outbound listener.
    pub outbound_port: u16,
    /// The proxy's inbound listener.
    pub inbound_port: u16,
    /// Destination ports the application reaches directly.
    pub exclude_outbound_ports: Vec<u16>,
    /// Local ports that others reach directly.
    pub exclude_inbound_ports: Vec<u16>,
    /// Destination networks the application reaches directly.
    pub exclude_outbound_cidrs: Vec<IpNet>,
    /// If not empty, the only destination networks that are intercepted.
    pub include_outbound_cidrs: Vec<IpNet>,
    /// Network interfaces whose traffic, both ways, is not intercepted: those of other networks that the pod
    /// is attached to.
    pub exclude_interfaces: Vec<String>,
    /// The resolvers, which the application reaches directly at the port of DNS.
    pub resolvers: BTreeSet<IpAddr>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            proxy_uid: PROXY_UID,
            outbound_port: OUTBOUND_PORT,
            inbound_port: INBOUND_PORT,
            exclude_outbound_ports: Vec::new(),
            exclude_inbound_ports: Vec::new(),
            exclude_outbound_cidrs: Vec::new(),
            include_outbound_cidrs: Vec::new(),
            exclude_interfaces: Vec::new(),
            resolvers: BTreeSet::new(),
        }
    }
}

/// Parameters that are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterceptionError {
    /// The proxy's user is exempt from interception, so it must not be the user of privileged containers.
    #[error("proxy uid 0: traffic of root would bypass the proxy; give the proxy a user of its own")]
    ProxyIsRoot,
    /// Port 0 is not a port.
    #[error("{what}: port 0 is outside 1-65535")]
    PortZero {
        /// The parameter.
        what: &'static str,
    },
    /// Inbound and outbound listener can't share a port.
    #[error("inbound and outbound port are both {port}")]
    SamePort {
        /// The port given twice.
        port: u16,
    },
    /// Excluding one of the proxy's own ports would expose its listeners to the network.
    #[error("exclude-inbound-port {port}: belongs to the proxy and can't be excluded")]
    ReservedPort {
        /// The port.
        port: u16,
    },
    /// The kernel has no such interfaces: 1 to 15 characters that a shell and iptables take as one word.
    #[error("{0:?} is not the name of a network interface")]
    Interface(String),
    /// `lo` carries what the sidecar and its application say to each other.
    #[error("the interface lo can't be excluded: the sidecar reaches its application through it")]
    Loopback,
    /// A list is longer than [`MAX_LIST_LEN`].
    #[error("{what}: {len} entries, at most {MAX_LIST_LEN} are allowed")]
    TooMany {
        /// The parameter.
        what: &'static str,
        /// How many were given.
        len: usize,
    },
}

impl Interception {
    /// Checks the parameters. Duplicates and order don't matter.
    pub fn new(parameters: Parameters) -> Result<Self, InterceptionError> {
        let Parameters {
            proxy_uid,
            outbound_port,
            inbound_port,
            exclude_outbound_ports,
            exclude_inbound_ports,
            exclude_outbound_cidrs,
            include_outbound_cidrs,
            exclude_interfaces,
            resolvers,
        } = parameters;
        if proxy_uid == 0 {
            return Err(InterceptionError::ProxyIsRoot);
        }
        for (what, port) in [("outbound-port", outbound_port), ("inbound-port", inbound_port)] {
            if port == 0 {
                return Err(InterceptionError::PortZero { what });
            }
        }
        if outbound_port == inbound_port {
            return Err(InterceptionError::SamePort { port: inbound_port });
        }
        let exclude_inbound_ports = ports("exclude-inbound-port", exclude_inbound_ports)?;
        if let Some(&port) =
            exclude_inbound_ports.iter().find(|port| [ADMIN_PORT, outbound_port, inbound_port].contains(port))
        {
            return Err(InterceptionError::ReservedPort { port });
        }
        bounded("resolvers", resolvers.len())?;
        Ok(Self {
            proxy_uid,
            outbound_port,
            inbound_port,
            exclude_outbound_ports: ports("exclude-outbound-port", exclude_outbound_ports)?,
            exclude_inbound_ports,
            exclude_outbound_cidrs: cidrs("exclude-outbound-cidr", exclude_outbound_cidrs)?,
            include_outbound_cidrs: cidrs("include-outbound-cidr", include_outbound_cidrs)?,
            exclude_interfaces: interfaces(exclude_interfaces)?,
            resolvers,
        })
    }

    fn resolvers_of(&self, family: Family) -> impl Iterator<Item = &IpAddr> {
        self.resolvers.iter().filter(move |address| address.is_ipv6() == (family == Family::V6))
    }
}

fn ports(what: &'static str, list: Vec<u16>) -> Result<BTreeSet<u16>, InterceptionError> {
    bounded(what, list.len())?;
    if list.contains(&0) {
        return Err(InterceptionError::PortZero { what });
    }
    Ok(list.into_iter().collect())
}

fn cidrs(what: &'static str, list: Vec<IpNet>) -> Result<BTreeSet<IpNet>, InterceptionError> {
    bounded(what, list.len())?;
    Ok(list.into_iter().collect())
}

/// Checks names of interfaces. iptables reads a `+` at the end as any text, and options by a dash.
fn interfaces(list: Vec<String>) -> Result<BTreeSet<String>, InterceptionError> {
    /// `IFNAMSIZ` of Linux, without the final zero.
    const LONGEST: usize = 15;
    bounded("exclude-interface", list.len())?;
    for name in &list {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if name.len() > LONGEST || !begins || !name.bytes().all(plain) {
            return Err(InterceptionError::Interface(truncated(name, 40)));
        }
        if name == "lo" {
            return Err(InterceptionError::Loopback);
        }
    }
    Ok(list.into_iter().collect())
}

fn bounded(what: &'static str, len: usize) -> Result<(), InterceptionError> {
    if len > MAX_LIST_LEN { Err(InterceptionError::TooMany { what, len }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Parameters)) -> InterceptionError {
        let mut parameters = Parameters::default();
        change(&mut parameters);
        Interception::new(parameters).unwrap_err()
    }

    #[test]
    fn the_defaults_are_accepted() {
        assert!(Interception::new(Parameters::default()).is_ok());
    }

    #[test]
    fn parameters_that_bypass_the_proxy_or_loop_are_refused() {
        assert_eq!(refused(|p| p.proxy_uid = 0), InterceptionError::ProxyIsRoot);
        assert_eq!(refused(|p| p.inbound_port = 15001), InterceptionError::SamePort { port: 15001 });
        assert_eq!(refused(|p| p.inbound_port = 0), InterceptionError::PortZero { what: "inbound-port" });
        for port in [15000, 15001, 15003] {
            assert_eq!(
                refused(|p| p.exclude_inbound_ports = vec![port]),
                InterceptionError::ReservedPort { port }
            );
        }
        assert_eq!(
            refused(|p| p.exclude_outbound_ports = vec![80, 0]),
            InterceptionError::PortZero { what: "exclude-outbound-port" }
        );
    }

    #[test]
    fn an_interface_has_a_name_that_the_kernel_takes() {
        for name in ["eth1", "net1.100", "veth-0"] {
            let parameters =
                Parameters { exclude_interfaces: vec![name.to_owned()], ..Parameters::default() };
            assert!(Interception::new(parameters).is_ok(), "{name}");
        }
        for name in ["", "-j", "eth+", "a b", "a\nb", "sixteen-letters-", "é"] {
            let error = refused(|p| p.exclude_interfaces = vec![name.to_owned()]);
            assert_eq!(error, InterceptionError::Interface(name.to_owned()));
        }
        assert_eq!(refused(|p| p.exclude_interfaces = vec!["lo".to_owned()]), InterceptionError::Loopback);
    }

    #[test]
    fn lists_are_bounded() {
        assert_eq!(
            refused(|p| p.exclude_outbound_ports = vec![80; MAX_LIST_LEN + 1]),
            InterceptionError::TooMany { what: "exclude-outbound-port", len: MAX_LIST_LEN + 1 }
        );
    }
}
