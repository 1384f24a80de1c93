//! What Egresses become beside services.

use serde_json::Value;
use smc_model::cidr::IpNet;

use super::*;

/// The chains of `shop/a` that match an address on a port, by name.
fn chains(compiler: &Compiler, address: &str, port: u32) -> Vec<String> {
    let view = view(compiler, "shop/a").unwrap();
    let listener: Listener = get(&view, ResourceType::Listener, names::OUTBOUND_LISTENER);
    let address: std::net::IpAddr = address.parse().unwrap();
    let mut nearest: Vec<(u8, String)> = Vec::new();
    for chain in listener.filter_chains {
        let matched = chain.filter_chain_match.unwrap();
        if matched.destination_port.map(|number| number.value) != Some(port) {
            continue;
        }
        for range in matched.prefix_ranges {
            let length = u8::try_from(range.prefix_len.unwrap().value).unwrap();
            let network = IpNet::new(range.address_prefix.parse().unwrap(), length).unwrap();
            if network.contains(&address) {
                nearest.push((length, chain.name.clone()));
            }
        }
    }
    let longest = nearest.iter().map(|(length, _)| *length).max();
    nearest.into_iter().filter(|(length, _)| Some(*length) == longest).map(|(_, name)| name).collect()
}

fn out(protocol: &str, networks: &Value) -> Input {
    let port = |number: u16| json!({"number": number, "protocol": protocol});
    let spec = json!({
        "sources": [{"kind": "ServiceAccount", "name": "a", "namespace": "shop"}],
        "ipAddresses": networks,
        "ports": [port(80), port(443)],
    });
    egress("shop/e", spec)
}

/// A network that is exactly the address of a service would take its calls, or make Envoy refuse the
/// listener.
#[test]
fn a_service_is_called_as_before_whatever_an_egress_names() {
    let mut compiler = shop([a_may_call("shop/b1")]);
    let before = chains(&compiler, "10.9.0.1", 80);
    assert_eq!(before.len(), 1, "{before:?}");
    for protocol in ["http", "https", "tcp", "tcp-server-first"] {
        for networks in [json!(["10.9.0.1"]), json!(["10.9.0.0/24", "10.9.0.1/32"]), json!(["0.0.0.0/0"])] {
            compiler.apply([out(protocol, &networks)]);
            assert_eq!(chains(&compiler, "10.9.0.1", 80), before, "{protocol} {networks}");
            assert_eq!(compiler.problems(), [], "{protocol} {networks}");
            let outside = chains(&compiler, "10.9.0.1", 443);
            assert!(outside.len() == 1 && outside[0].starts_with("egress_443_"), "{outside:?}");
        }
    }
}
