//! The bootstrap of an Envoy: the little it must know to ask SMC for everything else.
//!
//! Owns its content, as a function of the proxy, its certificate and where the controller is. Refuses to issue
//! certificates and to write files. Everything that can change while the proxy lives comes over xDS instead.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::ids::{ProxyName, ProxyUuid, ServiceAccountId, check_subdomain};
use crate::interception::ADMIN_PORT;
use crate::session::Variant;

/// The one static cluster: the controller.
pub const CONTROLLER_CLUSTER: &str = "smc-controller";

/// The runtime key of [`RE2_MAX_PROGRAM_SIZE`].
pub const RE2_MAX_PROGRAM_SIZE_KEY: &str = "re2.max_program_size.error_level";

/// The largest regular expression that Envoys take, in instructions. Their default is 100, which an ordinary
/// `pathRegex` exceeds. SMC bounds expressions itself when it reads them, far below this.
pub const RE2_MAX_PROGRAM_SIZE: u32 = 32_768;

/// Where proxies reach the controller: `HOST:PORT`, `IPV4:PORT` or `[IPV6]:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ControllerAddress {
    /// A host name or an address.
    pub host: Host,
    /// 1 to 65535.
    pub port: u16,
}

/// A host, by name or by address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// Resolved by the proxy, again and again.
    Name(String),
    /// Taken as it is.
    Ip(IpAddr),
}

/// An address that proxies could not use.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid controller address {text:?}: {reason}")]
pub struct InvalidAddress {
    text: String,
    reason: &'static str,
}

impl FromStr for ControllerAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = |reason| InvalidAddress { text: text.chars().take(80).collect(), reason };
        let (host, port) = text.rsplit_once(':').ok_or_else(|| invalid("is not HOST:PORT"))?;
        let port = port
            .parse()
            .ok()
            .filter(|&port| port != 0)
            .ok_or_else(|| invalid("the port must be 1 to 65535"))?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = match bracketed {
            Some(inner) => Host::Ip(
                inner
                    .parse()
                    .ok()
                    .filter(IpAddr::is_ipv6)
                    .ok_or_else(|| invalid("is not an IPv6 address"))?,
            ),
            None => match host.parse::<IpAddr>() {
                Ok(IpAddr::V4(ip)) => Host::Ip(IpAddr::V4(ip)),
                Ok(IpAddr::V6(_)) => return Err(invalid("an IPv6 address needs brackets")),
                Err(_) => {
                    check_subdomain("host", host).map_err(|e| invalid(e.reason))?;
                    Host::Name(host.to_owned())
                }
            },
        };
        if let Host::Ip(ip) = &host
            && ip.is_unspecified()
        {
            return Err(invalid("proxies cannot connect to the unspecified address"));
        }
        Ok(Self { host, port })
    }
}

impl fmt::Display for ControllerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Ip(IpAddr::V4(ip)) => write!(f, "{ip}:{}", self.port),
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
        }
    }
}

impl TryFrom<String> for ControllerAddress {
    type Error = InvalidAddress;

    fn try_from(text: String) -> Result<Self, InvalidAddress> {
        text.parse()
    }
}

impl From<ControllerAddress> for String {
    fn from(address: ControllerAddress) -> Self {
        address.to_string()
    }
}

/// The order in which a proxy turns to the replicas: rendezvous hashing (Thaler and Ravishankar, 1996) of its UUID and
/// their ordinals. Proxies spread evenly, those of a replica that is gone spread evenly over the others, and a replica
/// more takes its share from all and moves nobody else.
pub fn preference(proxy: ProxyUuid, ordinals: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let weight = |ordinal: u64| {
        let mut hash = Sha256::new();
        hash.update(proxy.0.as_bytes());
        hash.update(ordinal.to_be_bytes());
        <[u8; 32]>::from(hash.finalize())
    };
    let mut ordered: Vec<_> = ordinals.into_iter().map(|ordinal| (weight(ordinal), ordinal)).collect();
    ordered.sort_unstable();
    ordered.into_iter().map(|(_, ordinal)| ordinal).collect()
}

/// What a bootstrap is made of. No `Debug`: it holds a private key.
#[derive(Clone, Copy)]
pub struct Bootstrap<'a> {
    /// The sidecar: its node id, and the Common Name of its certificate.
    pub proxy: &'a ProxyName,
    /// Its pod's identity: its node cluster, for people to read.
    pub account: &'a ServiceAccountId,
    /// Where the controller's replicas are, by ordinal.
    pub controllers: &'a BTreeMap<u64, ControllerAddress>,
    /// The DNS name in the controller's certificate.
    pub controller_name: &'a str,
    /// The proxy certificate and its issuers, PEM.
    pub chain_pem: &'a str,
    /// Its private key, PEM.
    pub key_pem: &'a str,
    /// The roots to trust, PEM.
    pub roots_pem: &'a str,
    /// The protocol variant to speak.
    pub variant: Variant,
}

impl Bootstrap<'_> {
    /// The bootstrap as JSON. It holds the private key: whoever writes it down sees to who may read it.
    pub fn json(&self) -> Value {
        let ads = json!({ "ads": {}, "resource_api_version": "V3" });
        json!({
            "node": {
                "id": self.proxy.to_string(),
                "cluster": format!("{}.{}", self.account.name(), self.account.namespace()),
            },
            // Where the statistics listener takes them from.
            "admin": { "address": socket_address("127.0.0.1", ADMIN_PORT) },
            "dynamic_resources": { "ads_config": self.ads_config(), "cds_config": ads, "lds_config": ads },
            "static_resources": { "clusters": [self.controller_cluster()] },
            "layered_runtime": {
                "layers": [{ "name": "smc", "static_layer": { RE2_MAX_PROGRAM_SIZE_KEY: RE2_MAX_PROGRAM_SIZE } }],
            },
        })
    }

    fn ads_config(&self) -> Value {
        json!({
            // The names that begin with AGGREGATED are for cds_config and refused here.
            "api_type": match self.variant {
                Variant::Delta => "DELTA_GRPC",
                Variant::Sotw => "GRPC",
            },
            "transport_api_version": "V3",
            "set_node_on_first_message_only": true,
            "grpc_services": [{
                "envoy_grpc": {
                    "cluster_name": CONTROLLER_CLUSTER,
                    // Back within milliseconds when a replica ends the stream; no herd when all are away.
                    "retry_policy": { "retry_back_off": { "base_interval": "0.025s", "max_interval": "5s" } },
                },
            }],
        })
    }

    fn controller_cluster(&self) -> Value {
        let named = self.controllers.values().any(|controller| matches!(controller.host, Host::Name(_)));
        let kind = if named { "STRICT_DNS" } else { "STATIC" };
        // One replica at each priority: Envoy turns to the next when it has ejected all before it.
        let order = preference(self.proxy.uuid, self.controllers.keys().copied());
        let endpoints = order.iter().filter_map(|ordinal| self.controllers.get(ordinal)).enumerate();
        let endpoints: Vec<_> = endpoints
            .map(|(priority, controller)| {
                let host = match &controller.host {
                    Host::Name(name) => name.clone(),
                    Host::Ip(ip) => ip.to_string(),
                };
                let address = socket_address(&host, controller.port);
                json!({ "priority": priority, "lb_endpoints": [{ "endpoint": { "address": address } }] })
            })
            .collect();
        let mut cluster = json!({
            "name": CONTROLLER_CLUSTER,
            "type": kind,
            "connect_timeout": "1s",
            "load_assignment": { "cluster_name": CONTROLLER_CLUSTER, "endpoints": endpoints },
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": {
                        "http2_protocol_options": {
                            // Finds a half-open connection; without it a frozen controller is never left.
                            "connection_keepalive": { "interval": "5s", "timeout": "2s" },
                        },
                    },
                },
            },
            // An address that cannot be connected to is left at once, for as long as there is another: when
            // all are out, Envoy's panic mode tries them all the same.
            "outlier_detection": {
                "split_external_local_origin_errors": true,
                "consecutive_local_origin_failure": 1,
                "enforcing_consecutive_local_origin_failure": 100,
                "enforcing_local_origin_success_rate": 0,
                "base_ejection_time": "5s",
                "max_ejection_time": "5s",
                "max_ejection_percent": 100,
            },
            "transport_socket": {
                "name": "envoy.transport_sockets.tls",
                "typed_config": self.tls(),
            },
        });
        if kind == "STRICT_DNS"
            && let Some(fields) = cluster.as_object_mut()
        {
            // The default asks for IPv6 alone where there is any, and finds nothing behind an IPv4 listener.
            fields.insert("dns_lookup_family".to_owned(), json!("V4_PREFERRED"));
        }
        cluster
    }

    fn tls(&self) -> Value {
        json!({
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": self.controller_name,
            "common_tls_context": {
                // Envoy's own maximum for clients is TLS 1.2.
                "tls_params": {
                    "tls_minimum_protocol_version": "TLSv1_2",
                    "tls_maximum_protocol_version": "TLSv1_3",
                },
                "alpn_protocols": ["h2"],
                "tls_certificates": [{
                    "certificate_chain": { "inline_string": self.chain_pem },
                    "private_key": { "inline_string": self.key_pem },
                }],
                "validation_context": {
                    "trusted_ca": { "inline_string": self.roots_pem },
                    "match_typed_subject_alt_names": [
                        { "san_type": "DNS", "matcher": { "exact": self.controller_name } },
                    ],
                },
            },
        })
    }
}

fn socket_address(host: &str, port: u16) -> Value {
    json!({ "socket_address": { "address": host, "port_value": port } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ProxyUuid, WorkloadId};

    fn made(controller: &str, variant: Variant) -> Value {
        made_for(&BTreeMap::from([(0, controller.parse().unwrap())]), variant)
    }

    fn made_for(controllers: &BTreeMap<u64, ControllerAddress>, variant: Variant) -> Value {
        let workload = WorkloadId::new("bookstore", "v1").unwrap();
        Bootstrap {
            proxy: &ProxyName::new(ProxyUuid::derived(&workload), "bookstore").unwrap(),
            account: &ServiceAccountId::new("bookstore", "store").unwrap(),
            controllers,
            controller_name: "controller.test",
            chain_pem: "CHAIN",
            key_pem: "KEY",
            roots_pem: "ROOTS",
            variant,
        }
        .json()
    }

    #[test]
    fn addresses_that_a_proxy_could_not_use_are_refused() {
        for bad in [
            "",
            "host",
            "host:0",
            "host:65536",
            "::1:5",
            "[127.0.0.1]:5",
            "a b:5",
            "0.0.0.0:5",
            "[::]:5",
            ":5",
        ] {
            assert!(bad.parse::<ControllerAddress>().is_err(), "{bad:?}");
        }
        for good in ["controller.smc-system.svc:15128", "127.0.0.1:1", "[::1]:65535", "localhost:5"] {
            assert_eq!(good.parse::<ControllerAddress>().unwrap().to_string(), good);
        }
    }

    #[test]
    fn an_address_is_static_and_a_name_is_resolved() {
        for (address, kind, family) in
            [("10.0.0.1:5", "STATIC", Value::Null), ("controller:5", "STRICT_DNS", json!("V4_PREFERRED"))]
        {
            let cluster = &made(address, Variant::Delta)["static_resources"]["clusters"][0];
            assert_eq!(cluster["type"], kind);
            assert_eq!(cluster["dns_lookup_family"], family);
        }
    }

    #[test]
    fn every_replica_is_named_once_in_the_order_of_preference() {
        let address = |ordinal: u64| format!("smc-{ordinal}:15128");
        let controllers: BTreeMap<u64, ControllerAddress> =
            (0..3).map(|ordinal| (ordinal, address(ordinal).parse().unwrap())).collect();
        let bootstrap = made_for(&controllers, Variant::Delta);
        let cluster = &bootstrap["static_resources"]["clusters"][0];
        let uuid = ProxyUuid::derived(&WorkloadId::new("bookstore", "v1").unwrap());
        for (priority, ordinal) in preference(uuid, 0..3).into_iter().enumerate() {
            let endpoints = &cluster["load_assignment"]["endpoints"][priority];
            assert_eq!(endpoints["priority"], priority);
            let socket = &endpoints["lb_endpoints"][0]["endpoint"]["address"]["socket_address"];
            assert_eq!(socket["address"], format!("smc-{ordinal}"));
        }
        let mixed = BTreeMap::from([(0, "smc-0:1".parse().unwrap()), (1, "10.0.0.1:1".parse().unwrap())]);
        let bootstrap = made_for(&mixed, Variant::Delta);
        assert_eq!(bootstrap["static_resources"]["clusters"][0]["type"], "STRICT_DNS");
    }

    #[test]
    fn proxies_spread_evenly_and_those_of_a_replica_that_is_gone_spread_over_the_others() {
        let proxies: Vec<_> = (0..3000u32)
            .map(|n| ProxyUuid::derived(&WorkloadId::new("bookstore", &format!("v{n}")).unwrap()))
            .collect();
        let mut firsts = BTreeMap::<u64, usize>::new();
        let mut seconds = BTreeMap::<(u64, u64), usize>::new();
        for proxy in &proxies {
            let order = preference(*proxy, 0..3);
            *firsts.entry(order[0]).or_default() += 1;
            *seconds.entry((order[0], order[1])).or_default() += 1;
            // One replica more takes some, and moves nobody between the others.
            let more = preference(*proxy, 0..4);
            assert!(more[0] == 3 || more[0] == order[0]);
            assert_eq!(more.into_iter().filter(|ordinal| *ordinal != 3).collect::<Vec<_>>(), order);
        }
        assert!(firsts.values().all(|count| (900..1100).contains(count)), "{firsts:?}");
        assert!(seconds.values().all(|count| (400..600).contains(count)), "{seconds:?}");
    }

    #[test]
    fn the_variant_decides_the_api_type() {
        for (variant, api_type) in [(Variant::Delta, "DELTA_GRPC"), (Variant::Sotw, "GRPC")] {
            assert_eq!(made("c:5", variant)["dynamic_resources"]["ads_config"]["api_type"], api_type);
        }
    }

    #[test]
    fn the_node_is_named_as_the_certificate_and_the_controller_must_prove_its_name() {
        let bootstrap = made("c:5", Variant::Delta);
        let id = bootstrap["node"]["id"].as_str().unwrap();
        assert_eq!(id.parse::<ProxyName>().unwrap().to_string(), id);
        assert_eq!(bootstrap["node"]["cluster"], "store.bookstore");
        let tls = &bootstrap["static_resources"]["clusters"][0]["transport_socket"]["typed_config"];
        let context = &tls["common_tls_context"];
        assert_eq!(
            context["validation_context"]["match_typed_subject_alt_names"][0]["matcher"]["exact"],
            "controller.test"
        );
        assert_eq!(context["tls_certificates"][0]["private_key"]["inline_string"], "KEY");
        assert_eq!(context["tls_params"]["tls_minimum_protocol_version"], "TLSv1_2");
    }
}
