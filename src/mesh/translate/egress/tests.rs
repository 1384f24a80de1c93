//! What is written out, against the estimate of it.

use super::*;
use crate::catalog::fixtures::{group, longest_host, namespace, pod, tracing};
use crate::catalog::{Catalog, Object};
use crate::policy::fixtures::{egress, host};
use crate::policy::{EgressSurvey, GroupSizes, MAX_EGRESS, egress_ports};
use crate::translate::access_log::Logs;
use crate::translate::intern::Interner;
use crate::translate::reports::Reports;
use smc_api::osm::Egress;
use smc_api::osm::egress::EgressProtocol::{Http, Https, Tcp};
use smc_model::access_log::{AccessLog, Logged};
use smc_model::declared::Declared;
use smc_model::log_format::{LogFormat, MAX_FORMAT};
use smc_types::ids::TrustDomain;
use smc_types::object_ref::ObjectRef;
use smc_xds::resource::Resource;

/// The bytes of clusters, routes and chains.
fn written(ports: &EgressPorts) -> usize {
    let settings = Settings::new(TrustDomain::new("cluster.local").unwrap());
    let families = Families::new(true, true);
    let mut interner = Interner::default();
    let mut draft = Draft::new(&mut interner);
    let exits = translate(ports, &BTreeSet::new(), &settings, families, &mut draft);
    let listener = |chains, tls_ports: &BTreeSet<u16>| {
        let text = "x".repeat(MAX_FORMAT - 17);
        let format =
            Declared { what: LogFormat::parse(&text).unwrap(), by: ObjectRef::Namespace("shop".to_owned()) };
        let log = AccessLog { logged: Logged::All, format: Some(format), collector: None };
        let traced = super::super::tracing::of_manager(&tracing(&longest_host()), names::OUTBOUND_TRACES);
        let reports = Reports { log: Logs::of(&log, names::OUTBOUND_LOGS), tracing: Some(traced) };
        let listener =
            super::super::listener::outbound::listener(chains, tls_ports, false, families, 15001, &reports);
        Resource::encode(ResourceType::Listener, names::OUTBOUND_LISTENER, &listener).any_len()
    };
    let empty = listener(Vec::new(), &BTreeSet::new());
    let chains = listener(exits.chains, &exits.tls_ports) - empty;
    chains + draft.finish().resources().map(|resource| resource.any_len()).sum::<usize>()
}

/// The least allowance, to some 2 percent, within which all objects fit.
fn estimated(catalog: &Catalog, objects: &[Egress]) -> u64 {
    let (mut least, mut most) = (0, MAX_EGRESS * 64);
    while most - least > 1 + least / 50 {
        let middle = least + (most - least) / 2;
        if EgressSurvey::of(catalog, objects, middle, &mut GroupSizes::new()).cut.is_none() {
            most = middle;
        } else {
            least = middle;
        }
    }
    most
}

#[test]
fn what_egresses_take_is_estimated_from_above() {
    let paths: Vec<_> = (0..40).map(|place| format!("/{place}")).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let catalog = Catalog::of([
        namespace("shop"),
        Object::from(pod("shop/x", "shop/x", "x", "10.0.0.1")),
        group("shop/g", &paths[..20]),
        group("shop/h", &paths[20..]),
    ]);
    let long = "x".repeat(60);
    let hosts: Vec<_> = (0..20).map(|place| host(&format!("{place}.{long}.{long}.{long}.example"))).collect();
    let wide = [host("*"), host("*.example")];
    let networks: Vec<_> =
        (0..10).map(|place| format!("2001:db8:{place:x}:ffff:ffff:ffff:ffff:ffff/128")).collect();
    let networks: Vec<_> = networks.iter().map(String::as_str).collect();
    let all = ["0.0.0.0/0", "::/0"];
    let one = [host("a.example")];
    let restricted =
        |object: Egress, group: &str| Egress { matches: Some([group.parse().unwrap()].into()), ..object };
    let matching = |object: Egress| restricted(object, "shop/g");
    for (case, objects) in [
        ("one host over TLS", vec![egress("shop/a", Some(&one), None, &[(443, Https)])]),
        ("one host over HTTP", vec![egress("shop/a", Some(&one), None, &[(80, Http)])]),
        ("hosts on two ports", vec![egress("shop/a", Some(&hosts), None, &[(80, Http), (443, Https)])]),
        ("requests of hosts", vec![matching(egress("shop/a", Some(&hosts), None, &[(80, Http)]))]),
        (
            "short requests of the longest host",
            vec![matching(egress("shop/a", Some(&hosts[..1]), None, &[(80, Http)]))],
        ),
        ("networks", vec![egress("shop/a", None, Some(&networks), &[(5432, Tcp)])]),
        ("all networks", vec![egress("shop/a", None, Some(&all), &[(5432, Tcp)])]),
        (
            "hosts in networks",
            vec![egress("shop/a", Some(&hosts), Some(&networks), &[(443, Https), (80, Http)])],
        ),
        (
            "hosts that hold in the networks of others",
            vec![
                egress("shop/a", Some(&hosts), None, &[(443, Https), (80, Http)]),
                egress("shop/b", Some(&one), Some(&networks), &[(443, Https), (80, Http)]),
            ],
        ),
        (
            "requests of wide names",
            vec![
                matching(egress("shop/a", Some(&hosts), Some(&networks), &[(80, Http)])),
                restricted(egress("shop/b", Some(&wide), Some(&networks), &[(80, Http)]), "shop/h"),
            ],
        ),
    ] {
        let ports = egress_ports(&catalog, &objects);
        let (written, estimated) = (written(&ports), estimated(&catalog, &objects));
        let estimated = usize::try_from(estimated).unwrap();
        assert!(written <= estimated, "{case}: {written} bytes, {estimated} estimated");
        // Requests of names that hold others are counted as if each had the longest name.
        assert!(estimated <= 16 * written, "{case}: {written} bytes, {estimated} estimated");
    }
}
