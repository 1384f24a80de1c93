//! `smc mesh policy --suggest`: the policy that allows what the sidecars of a cluster have called.
//!
//! Owns which sidecars are asked, and what is said of those that could not be. Which calls and objects follow
//! is [`smc_mesh::policy`]'s.

use std::collections::BTreeMap;

use smc_kubernetes::sidecar_calls;
use smc_mesh::policy::{Destinations, PortServers, Suggestion};
use smc_proto::admin::v1::{
    ListPolicyRequest, ListProxiesRequest, ListServicesRequest, Proxy, Service, ServicePort,
};
use smc_types::causes::causes;
use smc_types::ids::{InvalidName, ServiceAccountId, WorkloadId};
use smc_types::proxy_class::AppProtocol;
use thiserror::Error;

use super::admin_access::AdminArgs;
use super::outcome::{Outcome, Refused, Verdict};
use super::output;

/// What a controller lists cannot be read.
#[derive(Debug, Error)]
enum ListError {
    #[error("cannot read a name that the controller lists")]
    Name(#[from] InvalidName),
    #[error("cannot read the port {port} of {of} that the controller lists")]
    Port { port: u32, of: String },
}

pub(super) async fn run(admin: &AdminArgs) -> Outcome {
    let mut controller = admin.client().await?;
    let proxies = controller.list_proxies(ListProxiesRequest {}).await.map_err(Refused)?.into_inner().proxies;
    let services =
        controller.list_services(ListServicesRequest {}).await.map_err(Refused)?.into_inner().services;
    let policy = controller.list_policy(ListPolicyRequest {}).await.map_err(Refused)?.into_inner();
    let (callers, destinations) = (callers(&proxies)?, destinations(&services)?);

    output::print_progress(&format!("asking {} sidecars", callers.len()));
    let answers = sidecar_calls::calls(&admin.cluster().await?, callers.keys().cloned().collect()).await;
    let mut suggestion = Suggestion::default();
    for (workload, answer) in answers {
        match (callers.get(&workload), answer) {
            (Some(account), Ok(called)) => suggestion.add(account, &called, &destinations),
            (_, Err(error)) => suggestion.note(format!("the calls of {workload}: {}", causes(&error))),
            (None, Ok(_)) => {}
        }
    }
    if !policy.permissive {
        suggestion.note("calls that policy does not allow now: the mesh is not permissive".to_owned());
    }
    output::write(&suggestion.to_string())?;
    let mut verdict = Verdict::Ok;
    for note in suggestion.notes() {
        output::print_error(&format!("left out: {note}"));
        verdict = Verdict::Findings;
    }
    Ok(verdict)
}

/// The workloads in the mesh, with their identities.
fn callers(proxies: &[Proxy]) -> Result<BTreeMap<WorkloadId, ServiceAccountId>, ListError> {
    let known = proxies.iter().filter(|proxy| proxy.discovered);
    known.map(|proxy| Ok((proxy.workload.parse()?, proxy.service_account.parse()?))).collect()
}

/// Where the service ports lead.
fn destinations(services: &[Service]) -> Result<Destinations, ListError> {
    let ports = services.iter().flat_map(|service| service.ports.iter().map(move |port| (service, port)));
    ports
        .map(|(service, port)| {
            let number = |port: u32| {
                u16::try_from(port).map_err(|_| ListError::Port { port, of: service.name.clone() })
            };
            let servers = port
                .servers
                .iter()
                .map(|server| Ok((server.service_account.parse()?, number(server.port)?)))
                .collect::<Result<_, ListError>>()?;
            Ok(((service.name.parse()?, number(port.port)?), PortServers { http: is_http(port), servers }))
        })
        .collect()
}

/// Whether the mesh reads requests on a port.
fn is_http(port: &ServicePort) -> bool {
    [AppProtocol::Http, AppProtocol::Http2].iter().any(|protocol| protocol.as_str() == port.protocol)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;
    use smc_decode::manifest;
    use smc_mesh::catalog::{Catalog, SourceEvent};
    use smc_mesh::policy::{self, Call};
    use smc_model::http_match::MethodSet;
    use smc_model::inbound_intent::HttpAccess;
    use smc_model::regex::Pattern;
    use smc_proto::admin::v1::PortServer;

    use super::*;

    /// The calls that a mesh allows which has read this YAML, and nothing of it with a complaint.
    fn allowed(yaml: &str) -> BTreeSet<Call> {
        let read = manifest::read("suggested.yaml", yaml.as_bytes());
        assert!(read.complete && read.problems.is_empty(), "{:?}\n{yaml}", read.problems);
        let mut catalog = Catalog::default();
        for declaration in read.declarations {
            catalog.apply(SourceEvent::Upsert(declaration.object.clone().unwrap()));
        }
        let mut calls = BTreeSet::new();
        for target in catalog.traffic_targets() {
            let grant = policy::grant(&catalog, target).expect("each target allows something");
            let http = match &grant.http {
                HttpAccess::Any => false,
                HttpAccess::Only(matches) => {
                    let all = matches.iter().all(|one| {
                        one.path == Some(Pattern::prefix(".*").unwrap())
                            && one.methods == MethodSet::Any
                            && one.headers.is_empty()
                    });
                    assert!(all && !matches.is_empty(), "{matches:?}");
                    true
                }
            };
            for (source, port) in grant
                .sources
                .iter()
                .flat_map(|source| grant.ports.iter().flatten().map(move |port| (source.clone(), *port)))
            {
                calls.insert(Call { destination: target.destination.clone(), port, http, source });
            }
            assert!(grant.ports.is_some(), "no target opens all ports");
        }
        calls
    }

    fn accounts() -> impl Strategy<Value = ServiceAccountId> {
        const NAMES: [&str; 7] = ["a/web", "a/1e3", "b/web", "b/null", "b/web-http-80", "b/web.v2", "1/y"];
        prop::sample::select(&NAMES[..]).prop_map(|name| name.parse().unwrap())
    }

    fn ports() -> impl Strategy<Value = u16> {
        prop::sample::select(&[80_u16, 8080, 65535][..])
    }

    fn service_ports() -> impl Strategy<Value = (smc_types::ids::ServiceId, u16)> {
        (prop::sample::select(&["a/s", "b/s", "b/t"][..]), ports())
            .prop_map(|(service, port)| (service.parse().unwrap(), port))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn the_mesh_takes_the_policy_and_allows_the_seen_calls_and_no_others(
            leads in vec((service_ports(), any::<bool>(), btree_set((accounts(), ports()), 0..4)), 0..6),
            seen in vec((accounts(), btree_set(service_ports(), 0..4)), 0..6),
        ) {
            let destinations: Destinations = leads
                .into_iter()
                .map(|(port, http, servers)| (port, PortServers { http, servers }))
                .collect();
            let mut suggestion = Suggestion::default();
            let mut called = BTreeSet::new();
            for (source, service_ports) in &seen {
                suggestion.add(source, service_ports, &destinations);
                for PortServers { http, servers } in service_ports.iter().filter_map(|port| destinations.get(port)) {
                    called.extend(servers.iter().cloned().map(|(destination, port)| Call {
                        destination, port, http: *http, source: source.clone(),
                    }));
                }
            }
            prop_assert_eq!(allowed(&suggestion.to_string()), called);
        }
    }

    /// One target holds no more sources than its reader takes.
    #[test]
    fn a_port_that_thousands_call_is_open_to_each_of_them() {
        let port = ("shop/web".parse().unwrap(), 80);
        let servers = BTreeSet::from([("shop/web".parse().unwrap(), 8080)]);
        let destinations = Destinations::from([(port.clone(), PortServers { http: true, servers })]);
        let mut suggestion = Suggestion::default();
        for i in 0..2500 {
            suggestion.add(
                &format!("c/c{i}").parse().unwrap(),
                &BTreeSet::from([port.clone()]),
                &destinations,
            );
        }
        assert_eq!(suggestion.calls().len(), 2500);
        assert_eq!(allowed(&suggestion.to_string()), *suggestion.calls());
    }

    #[test]
    fn sidecars_and_destinations_are_those_that_the_controller_lists() {
        let proxy = |workload: &str, discovered| Proxy {
            workload: workload.to_owned(),
            service_account: "shop/web".to_owned(),
            discovered,
            ..Proxy::default()
        };
        let proxies = [proxy("shop/a", true), proxy("machine/shop/b", true), proxy("", false)];
        let callers = callers(&proxies).unwrap();
        let names: Vec<_> = callers.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["shop/a", "machine/shop/b"]);

        let port = |protocol: &str, port| ServicePort {
            port: 80,
            protocol: protocol.to_owned(),
            servers: vec![PortServer { service_account: "shop/web".to_owned(), port }],
            ..ServicePort::default()
        };
        for (protocol, http) in
            [("http", true), ("http2", true), ("tcp", false), ("tcp-server-first", false), ("https", false)]
        {
            let service =
                |port| [Service { name: "shop/web".to_owned(), ports: vec![port], ..Service::default() }];
            let servers = BTreeSet::from([("shop/web".parse().unwrap(), 8080)]);
            let expected = [(("shop/web".parse().unwrap(), 80), PortServers { http, servers })].into();
            assert_eq!(destinations(&service(port(protocol, 8080))).unwrap(), expected, "{protocol}");
            let error = destinations(&service(port(protocol, 70_000))).unwrap_err().to_string();
            assert!(error.contains("70000 of shop/web"), "{error}");
        }
    }
}
