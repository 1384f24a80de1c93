//! The iptables rules, as input of `iptables-restore --noflush`.

use std::fmt::Write as _;

use super::resolvers::DNS_PORT;
use super::{Family, Interception, IpNet, METRICS_PORT, PROBE_PORTS};

const INBOUND: &str = "SMC_PROXY_INBOUND";
const IN_REDIRECT: &str = "SMC_PROXY_IN_REDIRECT";
const OUTBOUND: &str = "SMC_PROXY_OUTBOUND";
const OUT_REDIRECT: &str = "SMC_PROXY_OUT_REDIRECT";
const STRAY: &str = "SMC_PROXY_STRAY";

/// `iptables-save` prints the jumps exactly as written here, so a second run recognises them.
const INBOUND_JUMP: &str = "-A PREROUTING -p tcp -j SMC_PROXY_INBOUND";
const OUTBOUND_JUMP: &str = "-A OUTPUT -p tcp -j SMC_PROXY_OUTBOUND";
const STRAY_JUMP: &str = "-A PREROUTING -p tcp -m conntrack --ctstate INVALID -j SMC_PROXY_STRAY";

/// The jumps from the built-in chains into SMC's chains that exist already.
///
/// A declaration empties a chain, so SMC's own chains are made from scratch each time. The built-in
/// chains hold rules of other programs and must not be emptied, and a rule that is appended twice
/// is there twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jumps {
    inbound: bool,
    outbound: bool,
    stray: bool,
}

impl Jumps {
    /// Reads the output of `iptables-save`.
    pub fn found_in(saved: &str) -> Self {
        let has = |jump| saved.lines().any(|line| line.trim_end() == jump);
        Self { inbound: has(INBOUND_JUMP), outbound: has(OUTBOUND_JUMP), stray: has(STRAY_JUMP) }
    }
}

/// The input of one call of `iptables-restore --noflush` or `ip6tables-restore --noflush`, which
/// applies all of it or nothing. It is idempotent: applied to tables with the jumps in `existing`,
/// it gives the same tables, whatever SMC's chains held before. Networks of the other family belong
/// to the other call.
pub fn restore_input(interception: &Interception, family: Family, existing: Jumps) -> String {
    let mut text = String::from("*nat\n");
    for chain in [INBOUND, IN_REDIRECT, OUTBOUND, OUT_REDIRECT] {
        line(&mut text, format_args!(":{chain} - [0:0]"));
    }
    inbound(&mut text, interception);
    outbound(&mut text, interception, family);
    // The jumps come last, so that chains are complete before traffic enters them, even where the
    // restore is not atomic.
    if !existing.inbound {
        line(&mut text, format_args!("{INBOUND_JUMP}"));
    }
    if !existing.outbound {
        line(&mut text, format_args!("{OUTBOUND_JUMP}"));
    }
    text.push_str("COMMIT\n");
    text
}

/// The input that drops stray segments on their way to the inbound listener. It is apart from
/// [`restore_input`], since a kernel may lack what it takes: interception works without it. Idempotent in the
/// same way.
pub fn stray_input(interception: &Interception, existing: Jumps) -> String {
    let mut text = format!("*mangle\n:{STRAY} - [0:0]\n");
    not_intercepted(&mut text, interception, STRAY);
    line(&mut text, format_args!("-A {STRAY} -j DROP"));
    if !existing.stray {
        line(&mut text, format_args!("{STRAY_JUMP}"));
    }
    text.push_str("COMMIT\n");
    text
}

/// The input that takes the rules of [`stray_input`] away; none where there are none.
pub fn stray_removal_input(existing: Jumps) -> Option<String> {
    let jump = STRAY_JUMP.replacen("-A ", "-D ", 1);
    existing.stray.then(|| format!("*mangle\n:{STRAY} - [0:0]\n{jump}\n-X {STRAY}\nCOMMIT\n"))
}

/// The input that takes all of [`restore_input`] away again: the jumps in `existing`, and then SMC's chains.
/// Where there are none, it changes nothing.
pub fn removal_input(existing: Jumps) -> String {
    let mut text = String::from("*nat\n");
    let chains = [INBOUND, IN_REDIRECT, OUTBOUND, OUT_REDIRECT];
    // A declaration makes a chain that is missing and empties one that exists, so that all can be deleted.
    for chain in chains {
        line(&mut text, format_args!(":{chain} - [0:0]"));
    }
    for (exists, jump) in [(existing.inbound, INBOUND_JUMP), (existing.outbound, OUTBOUND_JUMP)] {
        if exists {
            line(&mut text, format_args!("{}", jump.replacen("-A ", "-D ", 1)));
        }
    }
    for chain in chains {
        line(&mut text, format_args!("-X {chain}"));
    }
    text.push_str("COMMIT\n");
    text
}

fn inbound(text: &mut String, interception: &Interception) {
    let port = interception.inbound_port;
    line(text, format_args!("-A {IN_REDIRECT} -p tcp -j REDIRECT --to-ports {port}"));
    not_intercepted(text, interception, INBOUND);
    line(text, format_args!("-A {INBOUND} -p tcp -j {IN_REDIRECT}"));
}

/// What comes in and is not for the proxy returns from the chain.
fn not_intercepted(text: &mut String, interception: &Interception, chain: &str) {
    for interface in &interception.exclude_interfaces {
        line(text, format_args!("-A {chain} -i {interface} -p tcp -j RETURN"));
    }
    line(text, format_args!("-A {chain} -p tcp --dport {METRICS_PORT} -j RETURN"));
    let (first, last) = (PROBE_PORTS.start(), PROBE_PORTS.end());
    line(text, format_args!("-A {chain} -p tcp --dport {first}:{last} -j RETURN"));
    for port in &interception.exclude_inbound_ports {
        line(text, format_args!("-A {chain} -p tcp --dport {port} -j RETURN"));
    }
}

fn outbound(text: &mut String, interception: &Interception, family: Family) {
    let uid = interception.proxy_uid;
    let loopback = match family {
        Family::V4 => "127.0.0.1/32",
        Family::V6 => "::1/128",
    };
    let port = interception.outbound_port;
    line(text, format_args!("-A {OUT_REDIRECT} -p tcp -j REDIRECT --to-ports {port}"));
    // What the proxy sends from the loopback address is for the application beside it, also at the pod's own
    // address (`localProxyMode: PodIP`).
    line(text, format_args!("-A {OUTBOUND} -s {loopback} -o lo -p tcp -m owner --uid-owner {uid} -j RETURN"));
    // The proxy calls its own workload's address when load balancing picks it. That call must pass
    // inbound policy like any other. It goes through `lo`, which skips PREROUTING, so it is
    // redirected here.
    line(
        text,
        format_args!(
            "-A {OUTBOUND} ! -d {loopback} -o lo -p tcp -m owner --uid-owner {uid} -j {IN_REDIRECT}"
        ),
    );
    // An application that calls its own address does not call the mesh.
    line(text, format_args!("-A {OUTBOUND} -o lo -p tcp -m owner ! --uid-owner {uid} -j RETURN"));
    line(text, format_args!("-A {OUTBOUND} -p tcp -m owner --uid-owner {uid} -j RETURN"));
    line(text, format_args!("-A {OUTBOUND} -d {loopback} -p tcp -j RETURN"));
    for interface in &interception.exclude_interfaces {
        line(text, format_args!("-A {OUTBOUND} -o {interface} -p tcp -j RETURN"));
    }
    for resolver in interception.resolvers_of(family) {
        line(text, format_args!("-A {OUTBOUND} -d {resolver} -p tcp --dport {DNS_PORT} -j RETURN"));
    }
    for cidr in interception.exclude_outbound_cidrs.iter().filter(|cidr| family_of(cidr) == family) {
        line(text, format_args!("-A {OUTBOUND} -d {cidr} -p tcp -j RETURN"));
    }
    for port in &interception.exclude_outbound_ports {
        line(text, format_args!("-A {OUTBOUND} -p tcp --dport {port} -j RETURN"));
    }
    if interception.include_outbound_cidrs.is_empty() {
        line(text, format_args!("-A {OUTBOUND} -p tcp -j {OUT_REDIRECT}"));
        return;
    }
    // An inclusion list applies to both families: if it names only IPv4 networks, no IPv6 network
    // is included.
    for cidr in interception.include_outbound_cidrs.iter().filter(|cidr| family_of(cidr) == family) {
        line(text, format_args!("-A {OUTBOUND} -d {cidr} -p tcp -j {OUT_REDIRECT}"));
    }
    line(text, format_args!("-A {OUTBOUND} -p tcp -j RETURN"));
}

pub(super) fn family_of(network: &IpNet) -> Family {
    match network {
        IpNet::V4(_) => Family::V4,
        IpNet::V6(_) => Family::V6,
    }
}

fn line(text: &mut String, rule: std::fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = writeln!(text, "{rule}");
}

#[cfg(test)]
mod tests {
    use super::super::{Interception, Parameters};
    use super::*;
    use smc_model::cidr::parse_cidr;

    fn rules(parameters: Parameters, family: Family, chain: &str) -> Vec<String> {
        let interception = Interception::new(parameters).unwrap();
        restore_input(&interception, family, Jumps::default())
            .lines()
            .filter_map(|line| line.strip_prefix(&format!("-A {chain} ")).map(str::to_owned))
            .collect()
    }

    #[test]
    fn the_whole_text_for_ipv4_without_exclusions() {
        let interception = Interception::new(Parameters::default()).unwrap();
        let text = restore_input(&interception, Family::V4, Jumps::default());
        assert_eq!(
            text,
            "*nat\n\
             :SMC_PROXY_INBOUND - [0:0]\n\
             :SMC_PROXY_IN_REDIRECT - [0:0]\n\
             :SMC_PROXY_OUTBOUND - [0:0]\n\
             :SMC_PROXY_OUT_REDIRECT - [0:0]\n\
             -A SMC_PROXY_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15003\n\
             -A SMC_PROXY_INBOUND -p tcp --dport 15010 -j RETURN\n\
             -A SMC_PROXY_INBOUND -p tcp --dport 15901:15904 -j RETURN\n\
             -A SMC_PROXY_INBOUND -p tcp -j SMC_PROXY_IN_REDIRECT\n\
             -A SMC_PROXY_OUT_REDIRECT -p tcp -j REDIRECT --to-ports 15001\n\
             -A SMC_PROXY_OUTBOUND -s 127.0.0.1/32 -o lo -p tcp -m owner --uid-owner 1500 -j RETURN\n\
             -A SMC_PROXY_OUTBOUND ! -d 127.0.0.1/32 -o lo -p tcp -m owner --uid-owner 1500 -j SMC_PROXY_IN_REDIRECT\n\
             -A SMC_PROXY_OUTBOUND -o lo -p tcp -m owner ! --uid-owner 1500 -j RETURN\n\
             -A SMC_PROXY_OUTBOUND -p tcp -m owner --uid-owner 1500 -j RETURN\n\
             -A SMC_PROXY_OUTBOUND -d 127.0.0.1/32 -p tcp -j RETURN\n\
             -A SMC_PROXY_OUTBOUND -p tcp -j SMC_PROXY_OUT_REDIRECT\n\
             -A PREROUTING -p tcp -j SMC_PROXY_INBOUND\n\
             -A OUTPUT -p tcp -j SMC_PROXY_OUTBOUND\n\
             COMMIT\n"
        );
    }

    #[test]
    fn ipv6_differs_only_in_the_loopback_address() {
        let interception = Interception::new(Parameters::default()).unwrap();
        let v4 = restore_input(&interception, Family::V4, Jumps::default());
        let v6 = restore_input(&interception, Family::V6, Jumps::default());
        assert_eq!(v4.replace("127.0.0.1/32", "::1/128"), v6);
    }

    #[test]
    fn a_second_run_appends_no_jump() {
        let interception = Interception::new(Parameters::default()).unwrap();
        let first = restore_input(&interception, Family::V4, Jumps::default());
        let second = restore_input(&interception, Family::V4, Jumps::found_in(&first));
        assert!(!second.contains("PREROUTING") && !second.contains("-A OUTPUT"), "{second}");
        let half = Jumps::found_in("*nat\n-A PREROUTING -p tcp -j SMC_PROXY_INBOUND\nCOMMIT\n");
        let third = restore_input(&interception, Family::V4, half);
        assert!(!third.contains("PREROUTING") && third.contains("-A OUTPUT"), "{third}");
    }

    #[test]
    fn a_removal_deletes_the_jumps_that_exist_and_then_the_chains() {
        let chains = ":SMC_PROXY_INBOUND - [0:0]\n:SMC_PROXY_IN_REDIRECT - [0:0]\n\
                      :SMC_PROXY_OUTBOUND - [0:0]\n:SMC_PROXY_OUT_REDIRECT - [0:0]\n";
        let ends = "-X SMC_PROXY_INBOUND\n-X SMC_PROXY_IN_REDIRECT\n-X SMC_PROXY_OUTBOUND\n\
                    -X SMC_PROXY_OUT_REDIRECT\nCOMMIT\n";
        assert_eq!(removal_input(Jumps::default()), format!("*nat\n{chains}{ends}"));
        let interception = Interception::new(Parameters::default()).unwrap();
        let programmed = restore_input(&interception, Family::V4, Jumps::default());
        let jumps = "-D PREROUTING -p tcp -j SMC_PROXY_INBOUND\n-D OUTPUT -p tcp -j SMC_PROXY_OUTBOUND\n";
        assert_eq!(removal_input(Jumps::found_in(&programmed)), format!("*nat\n{chains}{jumps}{ends}"));
    }

    #[test]
    fn a_similar_jump_of_another_program_is_not_taken_for_ours() {
        for saved in [
            "-A PREROUTING -p tcp -j SMC_PROXY_INBOUND_OLD",
            "-A PREROUTING -p tcp -m tcp --dport 80 -j SMC_PROXY_INBOUND",
            "# -A PREROUTING -p tcp -j SMC_PROXY_INBOUND",
        ] {
            assert_eq!(Jumps::found_in(saved), Jumps::default(), "{saved}");
        }
    }

    #[test]
    fn exclusions_come_before_the_redirect_and_networks_before_ports() {
        let parameters = Parameters {
            exclude_outbound_ports: vec![5432, 25, 25],
            exclude_outbound_cidrs: ["10.1.2.3/8", "fd00::/8"].map(|text| parse_cidr(text).unwrap()).into(),
            ..Parameters::default()
        };
        assert_eq!(
            rules(parameters.clone(), Family::V4, OUTBOUND)[5..],
            [
                "-d 10.0.0.0/8 -p tcp -j RETURN",
                "-p tcp --dport 25 -j RETURN",
                "-p tcp --dport 5432 -j RETURN",
                "-p tcp -j SMC_PROXY_OUT_REDIRECT",
            ]
        );
        assert_eq!(rules(parameters, Family::V6, OUTBOUND)[5], "-d fd00::/8 -p tcp -j RETURN");
    }

    #[test]
    fn with_an_inclusion_only_included_networks_are_intercepted() {
        let parameters = Parameters {
            include_outbound_cidrs: vec![parse_cidr("10.96.0.0/16").unwrap()],
            exclude_outbound_ports: vec![25],
            ..Parameters::default()
        };
        assert_eq!(
            rules(parameters.clone(), Family::V4, OUTBOUND)[5..],
            [
                "-p tcp --dport 25 -j RETURN",
                "-d 10.96.0.0/16 -p tcp -j SMC_PROXY_OUT_REDIRECT",
                "-p tcp -j RETURN"
            ]
        );
        assert_eq!(
            rules(parameters, Family::V6, OUTBOUND)[5..],
            ["-p tcp --dport 25 -j RETURN", "-p tcp -j RETURN"]
        );
    }

    #[test]
    fn inbound_exclusions_return_before_the_redirect() {
        let parameters = Parameters { exclude_inbound_ports: vec![9090], ..Parameters::default() };
        assert_eq!(
            rules(parameters, Family::V4, INBOUND),
            [
                "-p tcp --dport 15010 -j RETURN",
                "-p tcp --dport 15901:15904 -j RETURN",
                "-p tcp --dport 9090 -j RETURN",
                "-p tcp -j SMC_PROXY_IN_REDIRECT",
            ]
        );
    }

    #[test]
    fn an_excluded_interface_is_left_alone_both_ways() {
        let parameters = Parameters { exclude_interfaces: vec!["net1".to_owned()], ..Parameters::default() };
        assert_eq!(rules(parameters.clone(), Family::V4, INBOUND)[0], "-i net1 -p tcp -j RETURN");
        assert_eq!(rules(parameters, Family::V4, OUTBOUND)[5], "-o net1 -p tcp -j RETURN");
    }

    #[test]
    fn a_resolver_is_reached_at_the_port_of_dns_alone_whatever_is_included() {
        let resolvers = ["10.96.0.10", "fd00::a"].map(|text| text.parse().unwrap()).into();
        let include_outbound_cidrs = vec![parse_cidr("10.96.0.0/16").unwrap()];
        let parameters = Parameters { include_outbound_cidrs, resolvers, ..Parameters::default() };
        let v4 = rules(parameters.clone(), Family::V4, OUTBOUND);
        assert_eq!(v4[5], "-d 10.96.0.10 -p tcp --dport 53 -j RETURN");
        assert!(v4[6].ends_with("-j SMC_PROXY_OUT_REDIRECT"), "{v4:?}");
        let v6 = rules(parameters, Family::V6, OUTBOUND);
        assert_eq!(v6[5..], ["-d fd00::a -p tcp --dport 53 -j RETURN", "-p tcp -j RETURN"]);
    }

    #[test]
    fn stray_segments_are_dropped_where_they_would_be_intercepted() {
        let parameters = Parameters {
            exclude_inbound_ports: vec![9090],
            exclude_interfaces: vec!["net1".to_owned()],
            ..Parameters::default()
        };
        let interception = Interception::new(parameters).unwrap();
        let first = stray_input(&interception, Jumps::default());
        assert_eq!(
            first,
            "*mangle\n\
             :SMC_PROXY_STRAY - [0:0]\n\
             -A SMC_PROXY_STRAY -i net1 -p tcp -j RETURN\n\
             -A SMC_PROXY_STRAY -p tcp --dport 15010 -j RETURN\n\
             -A SMC_PROXY_STRAY -p tcp --dport 15901:15904 -j RETURN\n\
             -A SMC_PROXY_STRAY -p tcp --dport 9090 -j RETURN\n\
             -A SMC_PROXY_STRAY -j DROP\n\
             -A PREROUTING -p tcp -m conntrack --ctstate INVALID -j SMC_PROXY_STRAY\n\
             COMMIT\n"
        );
        let existing = Jumps::found_in(&first);
        assert!(!stray_input(&interception, existing).contains("PREROUTING"), "appended once");
        assert_eq!(
            stray_removal_input(existing).unwrap(),
            "*mangle\n\
             :SMC_PROXY_STRAY - [0:0]\n\
             -D PREROUTING -p tcp -m conntrack --ctstate INVALID -j SMC_PROXY_STRAY\n\
             -X SMC_PROXY_STRAY\n\
             COMMIT\n"
        );
        assert_eq!(stray_removal_input(Jumps::default()), None);
    }

    #[test]
    fn other_ports_and_another_user_are_taken_everywhere() {
        let parameters = Parameters {
            proxy_uid: 1600,
            inbound_port: 25003,
            outbound_port: 25001,
            ..Parameters::default()
        };
        let interception = Interception::new(parameters).unwrap();
        let text = restore_input(&interception, Family::V4, Jumps::default());
        assert!(!text.contains("1500") && !text.contains("15003") && !text.contains("15001"), "{text}");
    }
}
