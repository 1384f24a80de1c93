//! What holds for every mesh and every order of events.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;

use super::fixtures::{account, service_id};
use super::{Catalog, Object, OutboundIntents, SourceEvent};
use crate::policy::MAX_IDENTITY;
use smc_model::topology::{ServicePort, TargetPort, Workload};
use smc_types::ids::{ProxyName, ServiceAccountId, ServiceId};
use smc_types::object_ref::ObjectRef;

mod universe;

use universe::proxies;
pub(crate) use universe::{ACCOUNTS, SERVICES, events, furnished};

/// What may reach an identity, put into words.
fn reached_by(catalog: &Catalog, id: &ServiceAccountId) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for class in catalog.classes(id) {
        writeln!(text, "{class:?} {}", catalog.inbound_estimate(class).demand()).unwrap();
        writeln!(text, "  {:?}", catalog.inbound_intent(class, MAX_IDENTITY)).unwrap();
        for inbound in &class.inbound {
            writeln!(text, "  {:?}", catalog.inbound_access(id, inbound)).unwrap();
        }
    }
    text
}

/// Everything else that an identity is served, except for endpoints.
fn answers(catalog: &Catalog, id: &ServiceAccountId) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for class in catalog.classes(id) {
        writeln!(text, "{:?}", OutboundIntents::default().of(catalog, class)).unwrap();
    }
    let look = |text: &mut String, service: &ServiceId| {
        let declared = catalog.service(service);
        let behind = catalog.accounts_behind(service);
        writeln!(text, "  {declared:?} {behind:?}").unwrap();
        for port in declared.iter().flat_map(|service| &service.ports) {
            writeln!(text, "  {:?}", declared.map(|service| catalog.dialled(service, port))).unwrap();
        }
    };
    for (service, accounts) in catalog.outbound_services(id) {
        writeln!(text, "{service} {accounts:?}").unwrap();
        look(&mut text, &service);
        for port in catalog.service(&service).into_iter().flat_map(|service| &service.ports) {
            let routes = catalog.routes(&service, port);
            writeln!(text, "  {} {routes:?}", port.port).unwrap();
            for route in routes.into_iter().flatten() {
                for (leaf, _) in route.backends {
                    look(&mut text, &leaf);
                }
            }
        }
    }
    text
}

/// What is promised of every account, service and sidecar by name.
struct Observed {
    accounts: BTreeMap<ServiceAccountId, (bool, String, String)>,
    endpoints: BTreeMap<ServiceId, String>,
    proxies: BTreeMap<ProxyName, String>,
}

fn observe(catalog: &Catalog) -> Observed {
    let accounts = ACCOUNTS.iter().map(|text| account(text));
    let accounts = accounts
        .map(|id| (id.clone(), (catalog.runs_in_mesh(&id), answers(catalog, &id), reached_by(catalog, &id))));
    let endpoints = SERVICES.iter().map(|text| service_id(text)).map(|id| {
        let ports = catalog.service(&id).into_iter().flat_map(|service| &service.ports);
        let of = |port: &ServicePort| (port.port, catalog.endpoints(&id, port).collect::<Vec<_>>());
        let endpoints: Vec<_> = ports.map(of).collect();
        let text = format!("{endpoints:?}");
        (id, text)
    });
    let proxies = proxies().into_iter().map(|proxy| {
        let workload = catalog.workload_by_proxy(&proxy).map(|workload| &workload.id);
        (proxy, format!("{workload:?} {:?}", workload.and_then(|id| catalog.class(id))))
    });
    Observed { accounts: accounts.collect(), endpoints: endpoints.collect(), proxies: proxies.collect() }
}

/// How many endpoints a namespace may have, and how many pods its services may select: fewer than these
/// meshes have now and then, or enough.
fn budgets() -> impl Strategy<Value = (u64, u64)> {
    (select(&[2, 5, 9, 100_000][..]), select(&[1, 3, 6, 100_000, 100_000][..]))
}

/// The objects that remain after the events, by name.
pub(crate) fn remaining(events: &[SourceEvent]) -> BTreeMap<ObjectRef, Object> {
    let mut objects = BTreeMap::new();
    for event in events {
        match event {
            SourceEvent::Upsert(object) => objects.insert(object.reference(), object.clone()),
            SourceEvent::Remove(reference) => objects.remove(reference),
        };
    }
    objects
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_an_impact_does_not_name_is_as_it_was(
        (endpoints, selected) in budgets(),
        begin in any::<bool>(),
        together in 1..8_usize,
        events in events(40),
    ) {
        let mut catalog = Catalog::with_budgets(endpoints, selected);
        if begin {
            catalog = catalog.and(furnished());
        }
        let mut before = observe(&catalog);
        for events in events.chunks(together) {
            let shown = format!("{events:?}");
            let affected = catalog.apply_all(events);
            let after = observe(&catalog);
            for (id, (ran, answers, reached_by)) in &before.accounts {
                let (runs, now, reached_now) = &after.accounts[id];
                // An account that runs nothing in the mesh is served nothing.
                if (*ran || *runs) && !affected.everything && !affected.accounts.contains(id) {
                    prop_assert_eq!(answers, now, "{} after {}", id, &shown);
                    if !affected.inbound.contains(id) {
                        prop_assert_eq!(reached_by, reached_now, "{} after {}", id, &shown);
                    }
                }
            }
            for (id, endpoints) in &before.endpoints {
                if !affected.endpoints.contains(id) {
                    prop_assert_eq!(endpoints, &after.endpoints[id], "{} after {}", id, &shown);
                }
            }
            for (id, proxy) in &before.proxies {
                if !affected.proxies.contains(id) {
                    prop_assert_eq!(proxy, &after.proxies[id], "{} after {}", id, &shown);
                }
            }
            before = after;
        }
    }

    #[test]
    fn the_catalog_is_a_function_of_the_set_of_objects(
        (endpoints, selected) in budgets(),
        together in 1..60_usize,
        (events, order) in events(60).prop_flat_map(|events| {
            let objects: Vec<Object> = remaining(&events).into_values().collect();
            (Just(events), Just(objects).prop_shuffle())
        })
    ) {
        let mut incremental = Catalog::with_budgets(endpoints, selected);
        for events in events.chunks(together) {
            incremental.apply_all(events);
            // What was found is kept, and only what changed is looked at again.
            let found = incremental.problems();
            prop_assert_eq!(&found, &incremental.searched());
            incremental.recheck();
            prop_assert_eq!(&found, &incremental.problems());
        }
        let scratch = Catalog::with_budgets(endpoints, selected).and(order);
        prop_assert_eq!(&incremental, &scratch);
        prop_assert_eq!(incremental.problems(), scratch.problems());
    }

    #[test]
    fn pods_outside_and_ports_that_are_lacking_are_those_of_a_search(
        together in 1..60_usize,
        events in events(60),
    ) {
        let mut catalog = Catalog::default();
        for events in events.chunks(together) {
            catalog.apply_all(events);
        }
        for service in catalog.services() {
            let selects = |workload: &&Workload| {
                let own = workload.id.namespace() == service.id.namespace() && !service.selector.is_empty();
                let mut pairs = service.selector.iter();
                let matches = own && pairs.all(|(key, value)| workload.labels.get(key) == Some(value));
                if workload.id.is_machine() { workload.services.contains(&service.id) } else { matches }
            };
            let selected = catalog.workloads().filter(selects);
            let (inside, outside): (Vec<_>, Vec<_>) = selected.partition(|workload| catalog.in_mesh(workload));
            let backends = &catalog.index.backends[&service.id];
            let outside: Vec<_> = outside.iter().map(|workload| &workload.id).collect();
            prop_assert_eq!(backends.outside().collect::<Vec<_>>(), outside);
            let named = service.ports.iter().any(|port| port.target == TargetPort::Name("web".to_owned()));
            let callable = |workload: &&&Workload| !(service.headless && workload.id.is_machine());
            let lacking = inside.iter().filter(callable).filter(|w| named && !w.ports.contains_key("web"));
            let lacking: Vec<_> = lacking.map(|workload| &workload.id).collect();
            prop_assert_eq!(backends.lacking("web").collect::<Vec<_>>(), lacking);
        }
    }

    #[test]
    fn an_address_in_a_slice_means_the_pod_that_a_search_finds(events in events(60)) {
        let mut catalog = Catalog::default();
        catalog.apply_all(&events);
        for slice in catalog.slices.values() {
            for (endpoint, ip) in slice.endpoints.iter().flat_map(|e| e.addresses.iter().map(move |ip| (e, *ip))) {
                let pods = catalog.workloads().filter(|workload| !workload.id.is_machine());
                let pods = pods.filter(|pod| pod.id.namespace() == slice.id.namespace() && pod.ips.contains(&ip));
                let pods = pods.filter(|pod| endpoint.workload.as_ref().is_none_or(|meant| *meant == pod.id));
                let mut pods: Vec<_> = pods.filter(|pod| catalog.in_mesh(pod)).collect();
                if pods.len() > 1 {
                    pods.retain(|pod| pod.readiness.is_ready());
                }
                let meant = (pods.len() == 1).then(|| pods[0]);
                prop_assert_eq!(catalog.workload_at(slice, endpoint, ip), meant);
            }
        }
    }

    #[test]
    fn an_event_that_tells_nothing_new_touches_nothing(events in events(40)) {
        let mut catalog = Catalog::default();
        for event in events {
            catalog.apply(event.clone());
            let before = catalog.clone();
            prop_assert!(catalog.apply(event).is_empty());
            prop_assert!(catalog == before);
        }
    }

    #[test]
    fn an_endpoint_is_always_a_ready_way_into_the_mesh(events in events(60)) {
        let mut catalog = Catalog::default();
        for event in events {
            catalog.apply(event);
        }
        for service in catalog.services() {
            let behind = catalog.accounts_behind(&service.id);
            for endpoint in service.ports.iter().flat_map(|port| catalog.endpoints(&service.id, port)) {
                let workload = catalog.workload(&endpoint.workload).unwrap();
                prop_assert!(catalog.in_mesh(workload));
                prop_assert!(workload.ips.contains(&endpoint.ip));
                prop_assert_eq!(workload.id.namespace(), service.id.namespace());
                prop_assert!(behind.contains(&endpoint.service_account));
                let inbound = catalog.inbound_ports(&workload.id);
                prop_assert!(inbound.iter().any(|p| p.port == endpoint.port && p.services.contains(&service.id)));
                let named = workload.services.contains(&service.id);
                prop_assert_eq!(named, workload.id.is_machine(), "only the services that it names");
            }
            for port in &service.ports {
                for (address, _) in catalog.headless_addresses(&service.id, port) {
                    let pods = catalog.workloads().filter(|workload| !workload.id.is_machine());
                    let mut pods = pods.filter(|pod| pod.id.namespace() == service.id.namespace());
                    prop_assert!(pods.any(|pod| pod.ips.contains(&address)), "only what a platform states");
                }
            }
        }
    }
}
