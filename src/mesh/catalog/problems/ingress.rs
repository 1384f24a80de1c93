//! What is wrong between IngressBackends, services and HTTPRouteGroups.

use std::collections::BTreeMap;

use super::named;
use crate::catalog::Catalog;
use crate::catalog::ingress::{IngressPort, MAX_ADDRESSES};
use smc_api::osm::ingress_backend::{BackendPort, IngressBackend};
use smc_model::topology::{Service, TargetPort};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Problem;

pub(super) fn check(catalog: &Catalog, object: &IngressBackend, problems: &mut Vec<Problem>) {
    let subject = named(Kind::IngressBackend, &object.id);
    if catalog.mesh_config().ignores_ingress {
        let message = "has no effect: featureFlags.enableIngressBackendPolicy of the MeshConfig is false";
        problems.push(Problem::error(&subject, "", message));
        return;
    }
    let mut ports = BTreeMap::new();
    for opened in &object.backends {
        let found = || catalog.ports_for_ingress(&opened.service);
        let ports = ports.entry(&opened.service).or_insert_with(found);
        check_backend(catalog, opened, ports, &subject, problems);
    }
    check_sources(catalog, object, &subject, problems);
    for group in object.matches.iter().flatten().filter(|group| !catalog.route_groups.contains(group)) {
        let message = format!(
            "names HTTPRouteGroup {group}, which does not exist or cannot be read: it allows nothing"
        );
        problems.push(Problem::error(&subject, "spec.matches", message));
    }
}

/// `ports` are those of the workloads behind the service.
fn check_backend(
    catalog: &Catalog,
    opened: &BackendPort,
    ports: &BTreeMap<u16, IngressPort>,
    subject: &ObjectRef,
    problems: &mut Vec<Problem>,
) {
    let BackendPort { service: id, port, .. } = opened;
    let field = "spec.backends";
    let Some(service) = catalog.services.get(id) else {
        let message = format!("names Service {id}, which does not exist (yet): nothing is open");
        problems.push(Problem::error(subject, field, message));
        return;
    };
    let message = match ports.get(port) {
        Some(IngressPort::WithoutHttp) => format!(
            "opens port {port} of {id}, which does not carry HTTP; it stays closed to an ingress. Name the Service's \
             port http, or set its appProtocol"
        ),
        Some(IngressPort::OfAnother(other)) => {
            let other = other.as_ref().map_or_else(|| "another one".to_owned(), ToString::to_string);
            format!(
                "opens port {port} of {id}, to which Service {other} leads in another protocol: an ingress reaches it in \
                 that one, and by that Service alone"
            )
        }
        None if !ports.is_empty() || cannot_target(service, *port) => no_target(service, *port),
        // Where there is no pod yet, none says what the names of target ports mean.
        Some(IngressPort::Open) | None => return,
    };
    problems.push(Problem::error(subject, field, message));
}

/// Whether the service leads to other ports only, whatever its pods are.
fn cannot_target(service: &Service, port: u16) -> bool {
    service.ports.iter().all(|own| matches!(own.target, TargetPort::Number(number) if number != port))
}

fn no_target(service: &Service, port: u16) -> String {
    let id = &service.id;
    let own = service.ports.iter().find(|own| own.port == port).map(|own| &own.target);
    let target = own.filter(|target| **target != TargetPort::Number(port)).map(|target| match target {
        TargetPort::Number(number) => number.to_string(),
        TargetPort::Name(name) => name.clone(),
    });
    match target {
        Some(target) => format!(
            "opens port {port} of {id}, which is the Service's own; the field takes the port of its pods, here {target}. \
             Nothing is open"
        ),
        None => format!("opens port {port} of {id}, which is no target port of the Service. Nothing is open"),
    }
}

fn check_sources(
    catalog: &Catalog,
    object: &IngressBackend,
    subject: &ObjectRef,
    problems: &mut Vec<Problem>,
) {
    let Some(sources) = &object.sources.addresses else { return };
    let field = "spec.sources";
    for id in &sources.services {
        let message = if !catalog.services.contains_key(id) || !catalog.monitors(id.namespace()) {
            format!(
                "names Service {id}, which does not exist, or whose namespace is not in the mesh (it may be without \
                 injection): nothing may connect from there"
            )
        } else if !catalog.index.source_addresses.contains_key(id) {
            format!("names Service {id}, which has no endpoints: nothing may connect from there")
        } else {
            continue;
        };
        problems.push(Problem::warning(subject, field, message));
    }
    if catalog.count_ingress_addresses(object) == MAX_ADDRESSES {
        let message = format!(
            "stand for {MAX_ADDRESSES} addresses or more; as many are heeded: the ranges first, then the endpoints of \
             each Service by name"
        );
        problems.push(Problem::error(subject, field, message));
    }
}
