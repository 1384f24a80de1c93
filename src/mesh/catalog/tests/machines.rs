//! Machines without a pod: which services they are behind, and what their authors cannot take.

use super::{at, endpoints, shop};
use crate::catalog::fixtures::{
    account, accounts, ip, machine, namespace, pod, port, service, service_id, slice, split, target,
    tcp_route, tcp_rule,
};
use crate::catalog::{Catalog, Object};
use smc_model::topology::{Readiness, Service, TargetPort, Workload};
use smc_types::ids::WorkloadId;
use smc_types::object_ref::Kind;
use smc_types::proxy_class::AppProtocol::{Http, Tcp};

fn id(text: &str) -> WorkloadId {
    format!("machine/{text}").parse().unwrap()
}

/// [`shop`] with the machine `shop/legacy` of another account behind `web`.
fn with_machine() -> Catalog {
    let mut catalog = Catalog::of(shop());
    catalog.declare(Object::from(machine("shop/legacy", "shop/old", &["web"], "192.0.2.1")));
    catalog
}

/// Object and field of every problem.
fn reported(catalog: &Catalog) -> Vec<(String, String)> {
    catalog.problems().into_iter().map(|p| (p.subject.to_string(), p.field)).collect()
}

#[test]
fn a_machine_is_an_endpoint_beside_the_pods_and_the_slices_of_its_service() {
    let mut catalog = with_machine();
    let all = at(&[("10.0.0.1", 80), ("10.0.0.2", 80), ("192.0.2.1", 80)]);
    assert_eq!(endpoints(&catalog, "shop/web", 80), all);
    assert_eq!(catalog.accounts_behind(&service_id("shop/web")), accounts(&["shop/old", "shop/web"]));
    assert_eq!(reported(&catalog), []);
    // A service of a cluster has slices, which hold no machines.
    catalog.declare(Object::EndpointSlice(slice("shop/s", "shop/web", &[("p80", 80)], &["10.0.0.2"])));
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[("10.0.0.2", 80), ("192.0.2.1", 80)]));
    let affected = catalog.withdraw(Kind::MeshWorkload, "shop/legacy");
    assert!(affected.endpoints.contains(&service_id("shop/web")));
    assert_eq!(affected.proxies.len(), 1);
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[("10.0.0.2", 80)]));
    assert!(!catalog.runs_in_mesh(&account("shop/old")));
}

#[test]
fn a_machine_is_behind_the_services_that_it_names_and_behind_no_other() {
    let mut catalog = with_machine();
    let of = |catalog: &Catalog| catalog.services_of(&id("shop/legacy"));
    assert_eq!(of(&catalog), [service_id("shop/web")].into());
    // Neither labels nor a slice with its address put it behind another one.
    catalog.declare(Object::from(service("shop/other", "legacy", &[port(81, Tcp)])));
    catalog.declare(Object::EndpointSlice(slice("shop/s", "shop/other", &[("p81", 81)], &["192.0.2.1"])));
    assert_eq!(of(&catalog), [service_id("shop/web")].into());
    assert_eq!(endpoints(&catalog, "shop/other", 81), at(&[]));
    // A service that comes later.
    catalog.declare(Object::from(machine("shop/legacy", "shop/old", &["late", "web"], "192.0.2.1")));
    assert_eq!(of(&catalog), [service_id("shop/web")].into());
    assert!(
        reported(&catalog).contains(&("MeshWorkload shop/legacy".to_owned(), "spec.services[0]".to_owned()))
    );
    catalog.declare(Object::from(service("shop/late", "none", &[port(90, Http)])));
    assert_eq!(of(&catalog), [service_id("shop/late"), service_id("shop/web")].into());
    assert_eq!(endpoints(&catalog, "shop/late", 90), at(&[("192.0.2.1", 90)]));
    catalog.withdraw(Kind::Service, "shop/late");
    assert_eq!(of(&catalog), [service_id("shop/web")].into());
}

#[test]
fn a_pod_and_a_machine_of_one_name_have_each_their_own_sidecar() {
    let mut catalog = with_machine();
    catalog.declare(Object::from(machine("shop/w1", "shop/web", &["web"], "192.0.2.9")));
    let (pod, machine) = ("shop/w1".parse().unwrap(), id("shop/w1"));
    let name = |id| catalog.workload(id).unwrap().proxy_name();
    assert_ne!(name(&pod), name(&machine));
    for workload in [&pod, &machine] {
        assert_eq!(catalog.workload_by_proxy(&name(workload)).map(|found| &found.id), Some(workload));
    }
    catalog.withdraw(Kind::MeshWorkload, "shop/w1");
    assert!(catalog.workload(&pod).is_some() && catalog.workload(&machine).is_none());
}

#[test]
fn a_machine_obeys_policy_as_a_pod_does() {
    let mut catalog = with_machine();
    let legacy = account("shop/old");
    assert!(catalog.allowed_inbound_accounts(&legacy).is_empty(), "deny by default");
    catalog.declare(target("shop/t2", "shop/old", &["shop/client"], &[tcp_rule("shop/any")]));
    assert_eq!(catalog.allowed_inbound_accounts(&legacy), accounts(&["shop/client"]));
    // It calls others by the same rules, and a split leads to it.
    catalog.declare(target("shop/t3", "shop/web", &["shop/old"], &[tcp_rule("shop/any")]));
    assert!(catalog.outbound_services(&legacy).contains_key(&service_id("shop/web")));
    catalog.declare(Object::from(service("shop/root", "none", &[port(80, Http)])));
    catalog.declare(split("shop/s", "shop/root", &[("shop/web", 1)], &[]));
    assert!(catalog.outbound_services(&account("shop/client")).contains_key(&service_id("shop/root")));
}

/// Neither where callers dial it, nor as a leaf of a split.
#[test]
fn a_headless_service_leads_to_no_machine() {
    let mut catalog = with_machine();
    let web = service("shop/web", "web", &[port(80, Http)]);
    let headless = Service { headless: true, cluster_ips: Vec::new(), ..web.clone() };
    let pods = [("10.0.0.1", 80), ("10.0.0.2", 80)];
    for (service, leads) in [(headless.clone(), false), (web, true), (headless, false)] {
        catalog.declare(Object::from(service));
        let services = if leads { vec![service_id("shop/web")] } else { Vec::new() };
        assert_eq!(catalog.services_of(&id("shop/legacy")), services.into_iter().collect());
        let machine = leads.then_some(("192.0.2.1", 80));
        let all: Vec<_> = pods.into_iter().chain(machine).collect();
        assert_eq!(endpoints(&catalog, "shop/web", 80), at(&all));
        let behind = if leads { accounts(&["shop/old", "shop/web"]) } else { accounts(&["shop/web"]) };
        assert_eq!(catalog.accounts_behind(&service_id("shop/web")), behind);
        assert_eq!(catalog.inbound_ports(&id("shop/legacy")).len(), usize::from(leads));
    }
}

#[test]
fn a_named_target_port_is_the_machines_own() {
    let mut catalog = Catalog::of(shop());
    let by_name = TargetPort::Name("web".to_owned());
    let port = smc_model::topology::ServicePort { target: by_name, ..port(80, Http) };
    catalog.declare(Object::from(service("shop/named", "none", &[port])));
    let declared = machine("shop/legacy", "shop/old", &["named"], "192.0.2.1");
    catalog.declare(Object::from(declared.clone()));
    assert_eq!(endpoints(&catalog, "shop/named", 80), at(&[]));
    let ports = [("web".to_owned(), 8081)].into();
    catalog.declare(Object::from(Workload { ports, ..declared }));
    assert_eq!(endpoints(&catalog, "shop/named", 80), at(&[("192.0.2.1", 8081)]));
}

#[test]
fn a_drained_machine_is_no_endpoint_and_keeps_its_sidecar() {
    let mut catalog = with_machine();
    let declared = machine("shop/legacy", "shop/old", &["web"], "192.0.2.1");
    let affected =
        catalog.declare(Object::from(Workload { readiness: Readiness::NotReady, ..declared.clone() }));
    assert_eq!(affected.endpoints, [service_id("shop/web")].into());
    assert!(affected.proxies.is_empty() && affected.accounts.is_empty(), "{affected:?}");
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[("10.0.0.1", 80), ("10.0.0.2", 80)]));
    for pod in ["shop/w1", "shop/w2"] {
        catalog.withdraw(Kind::Pod, pod);
    }
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[]), "not even if no other is left");
    assert!(catalog.workload_by_proxy(&declared.proxy_name()).is_some());
}

#[test]
fn a_machine_is_in_the_mesh_with_its_namespace_alone() {
    let mut catalog = Catalog::default();
    catalog.declare(Object::from(service("shop/web", "web", &[port(80, Http)])));
    catalog.declare(Object::from(machine("shop/legacy", "shop/old", &["web"], "192.0.2.1")));
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[]));
    assert_eq!(
        reported(&catalog),
        [("MeshWorkload shop/legacy".to_owned(), "metadata.namespace".to_owned())]
    );
    catalog.declare(namespace("shop"));
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[("192.0.2.1", 80)]));
    // It has no annotation of its own, and that of the namespace is for pods.
    let refusing = smc_model::topology::Namespace {
        name: "shop".to_owned(),
        monitored: true,
        injection: Some(false),
        metrics: false,
        permissive: false,
        access_log: None,
    };
    catalog.declare(Object::Namespace(refusing));
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[("192.0.2.1", 80)]));
}

/// A tenant may write any address, and name any source for its own destination. With egress, or in
/// permissive mode, the victim's connections to that address must go where they went.
#[test]
fn a_machine_with_the_address_of_another_host_draws_no_connection() {
    let headless = |id: &str, app: &str| Service {
        headless: true,
        cluster_ips: Vec::new(),
        ..service(id, app, &[port(80, Http)])
    };
    let mut catalog = Catalog::of(shop());
    catalog.declare(namespace("evil"));
    catalog.declare(Object::from(headless("shop/peers", "web")));
    let peers = |catalog: &Catalog| {
        let service = catalog.service(&service_id("shop/peers")).unwrap();
        catalog.dialled(service, &service.ports[0])
    };
    let before = peers(&catalog);
    assert_eq!(before.len(), 2);
    // The address of a host outside the mesh, of a pod, and of a service.
    for (n, address) in ["203.0.113.5", "10.0.0.1", "10.96.0.1"].iter().enumerate() {
        let (trap, machine_id) = (format!("evil/trap{n}"), format!("evil/m{n}"));
        catalog.declare(Object::from(headless(&trap, "bait")));
        let lure = machine(&machine_id, "evil/lure", &[&format!("trap{n}")], address);
        catalog.declare(Object::from(lure));
    }
    catalog.declare(Object::from(pod("evil/bait", "evil/lure", "bait", "10.0.66.6")));
    catalog.declare(tcp_route("evil/any", &[]));
    catalog.declare(target("evil/t", "evil/lure", &["shop/client"], &[tcp_rule("evil/any")]));
    let callable = catalog.outbound_services(&account("shop/client"));
    for trap in ["evil/trap0", "evil/trap1", "evil/trap2"] {
        assert!(callable.contains_key(&service_id(trap)), "the attacker may offer it");
        let service = catalog.service(&service_id(trap)).unwrap();
        assert_eq!(catalog.dialled(service, &service.ports[0]), [(ip("10.0.66.6"), 80)]);
    }
    assert_eq!(peers(&catalog), before, "nor does the tenant spoil what others dial");
    let found = reported(&catalog);
    for (machine, field) in
        [("evil/m0", "spec.services[0]"), ("evil/m1", "spec.addresses"), ("evil/m2", "spec.addresses")]
    {
        assert!(found.contains(&(format!("MeshWorkload {machine}"), field.to_owned())), "{found:?}");
    }
}

#[test]
fn a_machine_with_a_pods_address_does_not_hide_the_pod_from_a_slice() {
    let mut catalog = Catalog::of(shop());
    catalog.declare(Object::EndpointSlice(slice("shop/s", "shop/web", &[("p80", 80)], &["10.0.0.1"])));
    catalog.declare(Object::from(machine("shop/m", "shop/thief", &["else"], "10.0.0.1")));
    assert_eq!(endpoints(&catalog, "shop/web", 80), at(&[("10.0.0.1", 80)]));
    assert_eq!(catalog.accounts_behind(&service_id("shop/web")), accounts(&["shop/web"]));
}
