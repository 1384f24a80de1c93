//! Envoy's bootstrap: the configuration with which a proxy connects to SMC, and gets everything else from it.
//!
//! Owns its content, as a function of the proxy, its certificate and the addresses of the
//! controller's replicas. It holds only what never changes while the proxy runs; the rest comes
//! over xDS.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};
use smc_types::host_port::{Host, HostPort};
use smc_types::ids::{ProxyName, ProxyUuid, ReplicaId, ServiceAccountId};
use smc_types::ports::ADMIN_PORT;
use smc_xds::names;
use smc_xds::session::Variant;
use smc_xds::shard::ring::Ring;
use smc_xds::shard::{CONNECT_TIMEOUT, EJECTION_SWEEP, ejection};

use crate::json_object::object;
use crate::omitted_statistics::stats_config;

/// The name of the one static cluster: the controller.
pub const CONTROLLER_CLUSTER: &str = "smc-controller";

/// The runtime key of [`RE2_MAX_PROGRAM_SIZE`].
pub const RE2_MAX_PROGRAM_SIZE_KEY: &str = "re2.max_program_size.error_level";

/// The largest RE2 program, in instructions, that Envoy accepts in a regular expression. Envoy's
/// default is 100, which an ordinary `pathRegex` exceeds. SMC bounds expressions itself when it
/// reads them, far below this.
pub const RE2_MAX_PROGRAM_SIZE: u32 = 32_768;

/// The default bound on the connections to a sidecar's inbound port: a handshake takes some 50 KiB, so this
/// is some 200 MiB for strangers, who are not known before the handshake ends.
pub const INBOUND_CONNECTIONS: u32 = 4096;

/// The bound on connections of readers of the statistics, 8 KiB each. What they may ask for is bounded where
/// the listener is made; this is so many that silent ones, which last a second, do not take every place.
const STATISTICS_CONNECTIONS: u32 = 1024;

/// The bound on all connections of a sidecar, in multiples of that on inbound ones. The application's own are
/// among them, so that strangers cannot use them up.
const ALL_CONNECTIONS: u32 = 4;

/// How often a sidecar resolves the names of replicas again. These have one address for ever in Kubernetes
/// (that of a Service), and every sidecar asks for every replica: with Envoy's default of 5 s, five thousand
/// sidecars would ask a cluster's DNS thousands of times a second. A name that cannot be resolved is asked
/// for more often.
const DNS_REFRESH: Duration = Duration::from_secs(30);

/// The runtime key of the bound on the connections of a listener.
pub fn connection_limit_key(listener: &str) -> String {
    format!("envoy.resource_limits.listener.{listener}.connection_limit")
}

/// The replicas of the controller, as bootstraps name them. Made once per process, since its [`Ring`] is.
#[derive(Debug, Clone)]
pub struct Controllers {
    addresses: BTreeMap<ReplicaId, HostPort>,
    ring: Ring,
}

impl Controllers {
    /// The replicas at these addresses, also those that do not exist yet: Envoy skips them.
    pub fn new(addresses: BTreeMap<ReplicaId, HostPort>) -> Self {
        let ring = Ring::new(addresses.keys().copied());
        Self { addresses, ring }
    }

    /// The ring of all replicas.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Their addresses, in the order in which `proxy` connects to them.
    fn in_order(&self, proxy: ProxyUuid) -> impl Iterator<Item = &HostPort> {
        self.ring.walk(proxy).filter_map(|replica| self.addresses.get(&replica))
    }
}

/// The values in a bootstrap, whose JSON this serializes to. The JSON holds the private key, so a file of it
/// must not be readable by other users. Has no `Debug` for the same reason.
#[derive(Clone, Copy)]
pub struct Bootstrap<'a> {
    /// The proxy: its node id, and the Common Name of its certificate.
    pub proxy: &'a ProxyName,
    /// The identity of the proxy's pod: the node cluster, for people to read.
    pub account: &'a ServiceAccountId,
    /// The controller's replicas.
    pub controllers: &'a Controllers,
    /// The DNS name in the controller's certificate.
    pub controller_name: &'a str,
    /// The proxy certificate and its issuers, PEM.
    pub chain_pem: &'a str,
    /// The private key of the proxy certificate, PEM.
    pub key_pem: &'a str,
    /// The trusted root certificates, PEM.
    pub roots_pem: &'a str,
    /// The xDS protocol variant.
    pub variant: Variant,
    /// The most connections to the sidecar's inbound port. Envoy closes further ones at once.
    pub inbound_connections: u32,
}

impl Serialize for Bootstrap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ads = object! { "ads": {}, "resource_api_version": "V3" };
        let bootstrap = object! {
            "node": {
                "id": self.proxy.to_string(),
                "cluster": format!("{}.{}", self.account.name(), self.account.namespace()),
                // Labels of the metrics of requests.
                "metadata": {
                    (names::NODE_NAMESPACE): self.account.namespace(),
                    (names::NODE_SERVICE_ACCOUNT): self.account.name(),
                },
            },
            // The statistics listener reads from here.
            "admin": { "address": socket_address("127.0.0.1", ADMIN_PORT) },
            "dynamic_resources": { "ads_config": self.ads_config(), "cds_config": &ads, "lds_config": &ads },
            "static_resources": { "clusters": [self.controller_cluster()] },
            "layered_runtime": {
                "layers": [{
                    "name": "smc",
                    "static_layer": {
                        RE2_MAX_PROGRAM_SIZE_KEY: RE2_MAX_PROGRAM_SIZE,
                        (connection_limit_key(names::INBOUND_LISTENER)): self.inbound_connections,
                        // Below the bound on all connections, however low that is.
                        (connection_limit_key(names::PROMETHEUS_LISTENER)):
                            STATISTICS_CONNECTIONS.min(self.inbound_connections),
                    },
                }],
            },
            "stats_config": stats_config(),
            // Most of the services that a sidecar may call are never called.
            "deferred_stat_options": { "enable_deferred_creation_stats": true },
            "overload_manager": {
                "resource_monitors": [{
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.resource_monitors.\
                                  downstream_connections.v3.DownstreamConnectionsConfig",
                        "max_active_downstream_connections":
                            u64::from(self.inbound_connections) * u64::from(ALL_CONNECTIONS),
                    },
                }],
            },
        };
        bootstrap.serialize(serializer)
    }
}

impl Bootstrap<'_> {
    fn ads_config(&self) -> impl Serialize {
        object! {
            // Envoy accepts the AGGREGATED_ types in cds_config only, and refuses them here.
            "api_type": match self.variant {
                Variant::Delta => "DELTA_GRPC",
                Variant::Sotw => "GRPC",
            },
            "transport_api_version": "V3",
            "set_node_on_first_message_only": true,
            "grpc_services": [{
                "envoy_grpc": {
                    "cluster_name": CONTROLLER_CLUSTER,
                    // Reconnects within milliseconds after a replica ends the stream; backs off, so that an
                    // outage of all replicas does not end in a thundering herd. A wait is random below the
                    // interval, which doubles until a replica has answered.
                    "retry_policy": { "retry_back_off": { "base_interval": "0.005s", "max_interval": "1s" } },
                },
            }],
        }
    }

    fn controller_cluster(&self) -> impl Serialize {
        let mut addresses = self.controllers.addresses.values();
        let named = addresses.any(|controller| matches!(controller.host, Host::Name(_)));
        let addressed = (!named).then_some(object! { "type": "STATIC" });
        // Each address of a name is an endpoint of its own, as in a cluster of the type `STRICT_DNS`, whose
        // fields Envoy 1.40 calls deprecated: `all_addresses_in_single_endpoint` stays unset.
        let resolved = named.then(|| {
            object! {
                "cluster_type": {
                    "name": "envoy.clusters.dns",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster",
                        // The default, AUTO, uses IPv6 alone where a name has such addresses, and fails if
                        // the replica listens on IPv4.
                        "dns_lookup_family": "V4_PREFERRED",
                        "dns_refresh_rate": seconds(DNS_REFRESH),
                        "dns_failure_refresh_rate": { "base_interval": "1s", "max_interval": "5s" },
                    },
                },
            }
        });
        // One replica at each priority: Envoy fails over to the next when it has ejected all before it.
        let in_order = self.controllers.in_order(self.proxy.uuid).enumerate();
        let endpoints: Vec<_> = in_order
            .map(|(priority, controller)| {
                let address = socket_address(controller.host.to_string(), controller.port);
                object! { "priority": priority, "lb_endpoints": [{ "endpoint": { "address": address } }] }
            })
            .collect();
        let count = endpoints.len();
        object! {
            "name": CONTROLLER_CLUSTER,
            ..addressed,
            ..resolved,
            "connect_timeout": seconds(CONNECT_TIMEOUT),
            "load_assignment": { "cluster_name": CONTROLLER_CLUSTER, "endpoints": endpoints },
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": {
                        "http2_protocol_options": {
                            // Leaves a frozen or cut-off replica within 2.4 s: the interval, 15 % of jitter,
                            // and the timeout. Without it Envoy never does. The timeout is no shorter, so
                            // that a replica to which thousands connect at once has time to answer.
                            "connection_keepalive": { "interval": "1s", "timeout": "1.25s" },
                        },
                    },
                },
            },
            // Ejects an address at the first failure to connect. An ejection ends with a sweep, by default
            // every 10 s. One address always stays. If all were ejected, Envoy's panic mode would try that of
            // the first priority alone, which may be the one that is gone.
            "outlier_detection": {
                "interval": seconds(EJECTION_SWEEP),
                "split_external_local_origin_errors": true,
                "consecutive_local_origin_failure": 1,
                "enforcing_consecutive_local_origin_failure": 100,
                "enforcing_local_origin_success_rate": 0,
                "base_ejection_time": seconds(ejection(count)),
                "max_ejection_time": seconds(ejection(count)),
                "max_ejection_percent": all_but_one(count),
            },
            // By default Envoy applies a second ejection within a second only when that second is over, and
            // tries the ejected address again until then.
            "common_lb_config": { "update_merge_window": "0s" },
            "transport_socket": { "name": "envoy.transport_sockets.tls", "typed_config": self.tls() },
        }
    }

    fn tls(&self) -> impl Serialize {
        object! {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": self.controller_name,
            "common_tls_context": {
                // Envoy's default maximum for clients is TLS 1.2.
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
                    "match_typed_subject_alt_names": [{
                        "san_type": "DNS", "matcher": { "exact": self.controller_name },
                    }],
                },
            },
        }
    }
}

/// A duration as JSON has it (the protobuf type).
fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}

/// The percentage that lets Envoy eject all of `addresses` but one. It compares the share of the ejected,
/// the next one included, with this (`DetectorImpl::ejectHost`).
fn all_but_one(addresses: usize) -> usize {
    let others = addresses.saturating_sub(1);
    (others * 100).div_ceil(addresses.max(1))
}

fn socket_address(host: impl Serialize, port: u16) -> impl Serialize {
    object! { "socket_address": { "address": host, "port_value": port } }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use smc_types::ids::WorkloadId;

    use super::*;

    fn made(controller: &str, variant: Variant) -> Value {
        made_for(&BTreeMap::from([(ReplicaId(0), controller.parse().unwrap())]), variant)
    }

    fn made_for(controllers: &BTreeMap<ReplicaId, HostPort>, variant: Variant) -> Value {
        let workload = WorkloadId::new("bookstore", "v1").unwrap();
        let bootstrap = Bootstrap {
            proxy: &ProxyName::new(ProxyUuid::derived(&workload), "bookstore").unwrap(),
            account: &ServiceAccountId::new("bookstore", "store").unwrap(),
            controllers: &Controllers::new(controllers.clone()),
            controller_name: "controller.test",
            chain_pem: "CHAIN",
            key_pem: "KEY",
            roots_pem: "ROOTS",
            variant,
            inbound_connections: 100,
        };
        serde_json::to_value(bootstrap).unwrap()
    }

    #[test]
    fn an_address_is_static_and_a_name_is_resolved() {
        let dns = json!({
            "@type": "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster",
            "dns_lookup_family": "V4_PREFERRED",
            "dns_refresh_rate": "30s",
            "dns_failure_refresh_rate": { "base_interval": "1s", "max_interval": "5s" },
        });
        for (address, kind, resolved) in
            [("10.0.0.1:5", json!("STATIC"), Value::Null), ("controller:5", Value::Null, dns)]
        {
            let cluster = &made(address, Variant::Delta)["static_resources"]["clusters"][0];
            assert_eq!(cluster["type"], kind);
            assert_eq!(cluster["cluster_type"]["typed_config"], resolved);
        }
    }

    #[test]
    fn all_addresses_but_one_can_be_ejected() {
        assert_eq!([0, 1, 2].map(all_but_one), [0, 0, 50]);
        for addresses in 2..=9 {
            // As Envoy calculates, with whole numbers for its doubles.
            let ejected =
                (1..=addresses).take_while(|ejected| ejected * 100 <= all_but_one(addresses) * addresses);
            assert_eq!(ejected.count(), addresses - 1, "{addresses}");
        }
    }

    #[test]
    fn every_replica_is_named_once_in_the_order_of_preference() {
        let address = |replica: ReplicaId| format!("smc-{replica}:15128");
        let replicas = || (0..3).map(ReplicaId);
        let controllers: BTreeMap<ReplicaId, HostPort> =
            replicas().map(|replica| (replica, address(replica).parse().unwrap())).collect();
        let bootstrap = made_for(&controllers, Variant::Delta);
        let cluster = &bootstrap["static_resources"]["clusters"][0];
        let uuid = ProxyUuid::derived(&WorkloadId::new("bookstore", "v1").unwrap());
        for (priority, replica) in Ring::new(replicas()).walk(uuid).enumerate() {
            let endpoints = &cluster["load_assignment"]["endpoints"][priority];
            assert_eq!(endpoints["priority"], priority);
            let socket = &endpoints["lb_endpoints"][0]["endpoint"]["address"]["socket_address"];
            assert_eq!(socket["address"], format!("smc-{replica}"));
        }
        let mixed = [(ReplicaId(0), "smc-0:1"), (ReplicaId(1), "10.0.0.1:1")];
        let mixed = mixed.map(|(replica, address)| (replica, address.parse().unwrap())).into();
        let bootstrap = made_for(&mixed, Variant::Delta);
        assert_eq!(
            bootstrap["static_resources"]["clusters"][0]["cluster_type"]["name"],
            "envoy.clusters.dns"
        );
    }

    /// Strangers are not known before the handshake ends, and must not use up what the application needs.
    #[test]
    fn connections_to_the_inbound_port_are_bounded_below_all_connections() {
        let bootstrap = made("c:5", Variant::Delta);
        let layer = &bootstrap["layered_runtime"]["layers"][0]["static_layer"];
        assert_eq!(layer["envoy.resource_limits.listener.inbound-listener.connection_limit"], 100);
        // And those of readers of the statistics, which may be 1,024, are no more.
        assert_eq!(layer["envoy.resource_limits.listener.inbound-prometheus-listener.connection_limit"], 100);
        let monitor = &bootstrap["overload_manager"]["resource_monitors"][0]["typed_config"];
        assert_eq!(monitor["max_active_downstream_connections"], 400);
    }

    #[test]
    fn the_variant_decides_the_api_type() {
        for (variant, api_type) in [(Variant::Delta, "DELTA_GRPC"), (Variant::Sotw, "GRPC")] {
            assert_eq!(made("c:5", variant)["dynamic_resources"]["ads_config"]["api_type"], api_type);
        }
    }

    #[test]
    fn the_node_has_the_certificates_name_and_the_controller_proves_its_own() {
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
