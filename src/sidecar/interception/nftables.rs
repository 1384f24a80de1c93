//! The same rules for `nft -f`, where there is no iptables.
//!
//! Owns one table for each IP family. The text replaces the table whole, in one transaction, whatever it
//! held. The kernel asks the chains of all tables: rules of other programs stay, and those with an earlier
//! priority come before these.

use std::fmt::Write as _;

use super::resolvers::DNS_PORT;
use super::rules::family_of;
use super::{Family, Interception, METRICS_PORT, PROBE_PORTS};

/// The name of the tables.
const TABLE: &str = "smc_proxy";

/// The input of one call of `nft -f -` for these families: all of it is applied, or nothing.
pub fn nft_input(interception: &Interception, families: &[Family]) -> String {
    let mut text = nft_removal(families);
    for family in families {
        table(&mut text, interception, *family);
    }
    text
}

/// The input that drops stray segments, once [`nft_input`] is in. It is apart from it, since a kernel may
/// lack what it takes.
pub fn nft_stray_input(interception: &Interception, families: &[Family]) -> String {
    let mut text = String::new();
    for family in families {
        line(&mut text, format_args!("table {} {TABLE} {{", keyword(*family)));
        line(&mut text, format_args!("chain stray {{"));
        line(&mut text, format_args!("type filter hook prerouting priority -150; policy accept;"));
        not_intercepted(&mut text, interception);
        line(&mut text, format_args!("ct state invalid drop"));
        line(&mut text, format_args!("}}"));
        line(&mut text, format_args!("}}"));
    }
    text
}

/// The input that takes all rules away. Where there are none, it changes nothing.
pub fn nft_removal(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families {
        let ip = keyword(*family);
        // A table can be deleted only if it exists, and declaring one that exists changes nothing.
        line(&mut text, format_args!("table {ip} {TABLE}"));
        line(&mut text, format_args!("delete table {ip} {TABLE}"));
    }
    text
}

fn keyword(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

/// The reasons for each rule are in [`super::rules`]; order and meaning are the same.
fn table(text: &mut String, interception: &Interception, family: Family) {
    let ip = keyword(family);
    line(text, format_args!("table {ip} {TABLE} {{"));
    inbound(text, interception);
    outbound(text, interception, family);
    line(text, format_args!("}}"));
}

fn inbound(text: &mut String, interception: &Interception) {
    line(text, format_args!("chain inbound {{"));
    line(text, format_args!("type nat hook prerouting priority -100; policy accept;"));
    not_intercepted(text, interception);
    line(text, format_args!("meta l4proto tcp redirect to :{}", interception.inbound_port));
    line(text, format_args!("}}"));
}

fn not_intercepted(text: &mut String, interception: &Interception) {
    line(text, format_args!("meta l4proto != tcp return"));
    for interface in &interception.exclude_interfaces {
        line(text, format_args!("iifname \"{interface}\" return"));
    }
    let (first, last) = (PROBE_PORTS.start(), PROBE_PORTS.end());
    line(text, format_args!("tcp dport {METRICS_PORT} return"));
    line(text, format_args!("tcp dport {first}-{last} return"));
    for port in &interception.exclude_inbound_ports {
        line(text, format_args!("tcp dport {port} return"));
    }
}

fn outbound(text: &mut String, interception: &Interception, family: Family) {
    let (ip, uid) = (keyword(family), interception.proxy_uid);
    let loopback = match family {
        Family::V4 => "127.0.0.1",
        Family::V6 => "::1",
    };
    let (inbound, outbound) = (interception.inbound_port, interception.outbound_port);
    line(text, format_args!("chain outbound {{"));
    line(text, format_args!("type nat hook output priority -100; policy accept;"));
    line(text, format_args!("meta l4proto != tcp return"));
    let own = format!("oifname \"lo\" meta skuid {uid}");
    line(text, format_args!("{ip} saddr {loopback} {own} return"));
    line(text, format_args!("{ip} daddr != {loopback} {own} meta l4proto tcp redirect to :{inbound}"));
    line(text, format_args!("oifname \"lo\" meta skuid != {uid} return"));
    line(text, format_args!("meta skuid {uid} return"));
    line(text, format_args!("{ip} daddr {loopback} return"));
    for interface in &interception.exclude_interfaces {
        line(text, format_args!("oifname \"{interface}\" return"));
    }
    for resolver in interception.resolvers_of(family) {
        line(text, format_args!("{ip} daddr {resolver} tcp dport {DNS_PORT} return"));
    }
    for cidr in interception.exclude_outbound_cidrs.iter().filter(|cidr| family_of(cidr) == family) {
        line(text, format_args!("{ip} daddr {cidr} return"));
    }
    for port in &interception.exclude_outbound_ports {
        line(text, format_args!("tcp dport {port} return"));
    }
    if interception.include_outbound_cidrs.is_empty() {
        line(text, format_args!("meta l4proto tcp redirect to :{outbound}"));
    }
    for cidr in interception.include_outbound_cidrs.iter().filter(|cidr| family_of(cidr) == family) {
        line(text, format_args!("{ip} daddr {cidr} meta l4proto tcp redirect to :{outbound}"));
    }
    line(text, format_args!("}}"));
}

fn line(text: &mut String, rule: std::fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = writeln!(text, "{rule}");
}

#[cfg(test)]
mod tests {
    use super::super::Parameters;
    use super::*;
    use smc_model::cidr::parse_cidr;

    fn rules(parameters: Parameters, families: &[Family]) -> String {
        nft_input(&Interception::new(parameters).unwrap(), families)
    }

    #[test]
    fn the_whole_text_for_nftables_without_exclusions() {
        assert_eq!(
            rules(Parameters::default(), &[Family::V4]),
            "table ip smc_proxy\n\
             delete table ip smc_proxy\n\
             table ip smc_proxy {\n\
             chain inbound {\n\
             type nat hook prerouting priority -100; policy accept;\n\
             meta l4proto != tcp return\n\
             tcp dport 15010 return\n\
             tcp dport 15901-15904 return\n\
             meta l4proto tcp redirect to :15003\n\
             }\n\
             chain outbound {\n\
             type nat hook output priority -100; policy accept;\n\
             meta l4proto != tcp return\n\
             ip saddr 127.0.0.1 oifname \"lo\" meta skuid 1500 return\n\
             ip daddr != 127.0.0.1 oifname \"lo\" meta skuid 1500 meta l4proto tcp redirect to :15003\n\
             oifname \"lo\" meta skuid != 1500 return\n\
             meta skuid 1500 return\n\
             ip daddr 127.0.0.1 return\n\
             meta l4proto tcp redirect to :15001\n\
             }\n\
             }\n"
        );
    }

    #[test]
    fn stray_segments_have_a_chain_of_their_own() {
        let parameters = Parameters { exclude_inbound_ports: vec![9090], ..Parameters::default() };
        assert_eq!(
            nft_stray_input(&Interception::new(parameters).unwrap(), &[Family::V6]),
            "table ip6 smc_proxy {\n\
             chain stray {\n\
             type filter hook prerouting priority -150; policy accept;\n\
             meta l4proto != tcp return\n\
             tcp dport 15010 return\n\
             tcp dport 15901-15904 return\n\
             tcp dport 9090 return\n\
             ct state invalid drop\n\
             }\n\
             }\n"
        );
    }

    #[test]
    fn both_families_are_one_transaction_and_take_their_own_networks() {
        let parameters = Parameters {
            exclude_outbound_ports: vec![25],
            exclude_inbound_ports: vec![9090],
            exclude_outbound_cidrs: ["10.0.0.0/8", "fd00::/8"].map(|text| parse_cidr(text).unwrap()).into(),
            include_outbound_cidrs: vec![parse_cidr("10.96.0.0/16").unwrap()],
            exclude_interfaces: vec!["net1".to_owned()],
            resolvers: ["10.96.0.10", "fd00::a"].map(|text| text.parse().unwrap()).into(),
            ..Parameters::default()
        };
        let text = rules(parameters, &[Family::V4, Family::V6]);
        let (v4, v6) = text.split_once("table ip6 smc_proxy {").unwrap();
        for rule in [
            "ip daddr 10.96.0.10 tcp dport 53 return\n",
            "ip daddr 10.0.0.0/8 return\n",
            "ip daddr 10.96.0.0/16 meta l4proto tcp redirect to :15001\n",
        ] {
            assert!(v4.contains(rule) && !v6.contains(rule), "{rule}{text}");
        }
        assert!(v6.contains("ip6 daddr fd00::a tcp dport 53 return\n"), "{text}");
        assert!(v6.contains("ip6 daddr fd00::/8 return\n") && !v6.contains(":15001"), "{text}");
        for rule in ["iifname \"net1\" return\n", "oifname \"net1\" return\n", "tcp dport 25 return\n"] {
            assert!(v4.contains(rule) && v6.contains(rule), "{rule}{text}");
        }
        assert!(!v4.contains("redirect to :15001\n}\n}\n}"), "{text}");
    }
}
