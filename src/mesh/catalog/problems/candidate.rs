//! What would be wrong with an object beside the others, if it were declared.
//!
//! Owns which of it speaks against the object. Objects are declared in any order, so what it names and is not
//! there yet is a warning; only what no later object can put right is an error.

use std::collections::BTreeSet;

use super::{
    access, egress, extension_service, ingress, mesh_config, named, retries, splits, telemetry, upstream,
};
use crate::catalog::{Catalog, Object};
use smc_api::smi::{TrafficSplit, TrafficTarget};
use smc_types::ids::ServiceId;
use smc_types::object_ref::Kind;
use smc_types::problem::{Problem, Severity};

/// The most services that are followed in search of a circle; a namespace with more splits than that is
/// judged by the first.
const MAX_FOLLOWED: usize = 1024;

impl Catalog {
    /// What is wrong with `candidate` beside the objects of the catalog, of which it may be a new version.
    /// Errors are what speaks against declaring it. An object of a kind that depends on no other has none.
    pub fn objections(&self, candidate: &Object) -> Vec<Problem> {
        match candidate {
            Object::TrafficTarget(target) => self.objections_to_target(target),
            Object::TrafficSplit(split) => self.objections_to_split(split),
            Object::UdpRoute(route) => vec![access::not_enforced(&route.id)],
            Object::MeshConfig(name, config) => {
                as_warnings(|problems| mesh_config::check(self, name, config, problems))
            }
            Object::Egress(object) => as_warnings(|problems| egress::check(self, object, problems)),
            Object::IngressBackend(object) => as_warnings(|problems| ingress::check(self, object, problems)),
            Object::Retry(object) => as_warnings(|problems| retries::check(self, object, problems)),
            Object::UpstreamTrafficSetting(object) => {
                as_warnings(|problems| upstream::check(self, object, problems))
            }
            Object::Telemetry(object) => as_warnings(|problems| {
                telemetry::check(self, object, problems);
                telemetry::check_collector(self, object, problems);
            }),
            Object::ExtensionService(object) => {
                as_warnings(|problems| extension_service::check(self, object, problems))
            }
            // It depends on the others whether it can be obeyed: the status says so.
            Object::MeshRootCertificate(_)
            | Object::Namespace(_)
            | Object::Service(_)
            | Object::ServiceAccount(_)
            | Object::Workload(_)
            | Object::EndpointSlice(_)
            | Object::HttpRouteGroup(_)
            | Object::TcpRoute(_) => Vec::new(),
        }
    }

    fn objections_to_target(&self, target: &TrafficTarget) -> Vec<Problem> {
        let mut problems = Vec::new();
        access::check_target(self, target, &mut problems);
        // Routes and accounts may come later; the target's namespace stays.
        problems.into_iter().map(|problem| only_at("spec.destination.namespace", problem)).collect()
    }

    fn objections_to_split(&self, split: &TrafficSplit) -> Vec<Problem> {
        let mut problems = Vec::new();
        splits::check_split(self, split, &mut problems);
        let lasting = |problem: Problem| match problem.field.as_str() {
            // A foreign domain, and weights that are all zero.
            "spec" if self.foreign_domain(split).is_some() => problem,
            "spec.backends" => problem,
            _ => Problem { severity: Severity::Warning, ..problem },
        };
        let mut problems: Vec<_> = problems.into_iter().map(lasting).collect();
        let object = named(Kind::TrafficSplit, &split.id);
        let of_root = self.splits_of(&split.root);
        let rival = of_root.into_iter().find(|other| other.matches.is_empty() && other.id != split.id);
        if let Some(rival) = rival.filter(|_| split.matches.is_empty()) {
            let message = format!("is {}, which TrafficSplit {} splits already", split.root, rival.id);
            problems.push(Problem::error(&object, "spec.service", message));
        }
        if let Some((index, way)) = self.circle(split) {
            let message =
                format!("leads back to {} by the split of {way}: traffic would go in a circle", split.root);
            problems.push(Problem::error(&object, format!("spec.backends[{index}].service"), message));
        }
        problems
    }

    /// The first backend from which other splits lead back to the root, and the service whose split does. The
    /// root may be its own backend: that share stays where it is.
    fn circle(&self, split: &TrafficSplit) -> Option<(usize, ServiceId)> {
        let mut followed = BTreeSet::from([&split.root]);
        for (index, backend) in split.backends.iter().enumerate() {
            let mut waiting = vec![&backend.service];
            while let Some(service) = waiting.pop() {
                if !followed.insert(service) || followed.len() > MAX_FOLLOWED {
                    continue;
                }
                for other in self.splits_of(service).into_iter().filter(|other| other.id != split.id) {
                    if other.backends.iter().any(|backend| backend.service == split.root) {
                        return Some((index, service.clone()));
                    }
                    waiting.extend(other.backends.iter().map(|backend| &backend.service));
                }
            }
        }
        None
    }
}

/// What a check finds: services, pods and groups may come later, and others that hold in its place may go.
fn as_warnings(check: impl FnOnce(&mut Vec<Problem>)) -> Vec<Problem> {
    let mut problems = Vec::new();
    check(&mut problems);
    problems.into_iter().map(|problem| Problem { severity: Severity::Warning, ..problem }).collect()
}

/// The problem, as a warning unless it is at this field.
fn only_at(field: &str, problem: Problem) -> Problem {
    if problem.field == field { problem } else { Problem { severity: Severity::Warning, ..problem } }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::catalog::SourceEvent;
    use smc_api::smi::{SplitVersion, read_traffic_split, read_traffic_target};

    fn split(name: &str, root: &str, backends: &[(&str, u32)], matches: &[&str]) -> Object {
        let backends = backends.iter().map(|(service, weight)| json!({"service": service, "weight": weight}));
        let matches = matches.iter().map(|name| json!({"kind": "HTTPRouteGroup", "name": name}));
        let spec = json!({
            "service": root,
            "backends": backends.collect::<Vec<Value>>(),
            "matches": matches.collect::<Vec<Value>>(),
        });
        let id = format!("shop/{name}").parse().unwrap();
        Object::TrafficSplit(read_traffic_split(id, SplitVersion::V1Alpha4, spec).object.unwrap())
    }

    fn target(destination: &str) -> Object {
        let account = |namespace| json!({"kind": "ServiceAccount", "name": "a", "namespace": namespace});
        let spec = json!({
            "destination": account(destination),
            "sources": [account("other")],
            "rules": [{"kind": "HTTPRouteGroup", "name": "missing"}],
        });
        Object::from(read_traffic_target("shop/t".parse().unwrap(), spec).object.unwrap())
    }

    fn catalog(objects: &[Object]) -> Catalog {
        let mut catalog = Catalog::default();
        for object in objects {
            catalog.apply(SourceEvent::Upsert(object.clone()));
        }
        catalog
    }

    /// The fields of the errors.
    fn errors(catalog: &Catalog, candidate: &Object) -> Vec<String> {
        let objections = catalog.objections(candidate).into_iter();
        let errors = objections.filter(|problem| problem.severity == Severity::Error);
        errors.map(|problem| problem.field).collect()
    }

    #[test]
    fn what_may_come_later_is_no_error() {
        let empty = Catalog::default();
        for candidate in [target("shop"), split("s", "root", &[("v1", 1)], &["missing"])] {
            assert_eq!(errors(&empty, &candidate), Vec::<String>::new());
            assert!(!empty.objections(&candidate).is_empty(), "it is told all the same");
        }
    }

    #[test]
    fn what_nothing_can_put_right_is_an_error() {
        let empty = Catalog::default();
        assert_eq!(errors(&empty, &target("other")), ["spec.destination.namespace"]);
        assert_eq!(errors(&empty, &split("s", "root", &[("v1", 0)], &[])), ["spec.backends"]);
        assert_eq!(errors(&empty, &split("s", "root.shop.svc.example.com", &[("v1", 1)], &[])), ["spec"]);
    }

    #[test]
    fn a_root_is_split_once_except_for_the_requests_that_others_name() {
        let catalog = catalog(&[split("first", "root", &[("v1", 1)], &[])]);
        assert_eq!(errors(&catalog, &split("second", "root", &[("v2", 1)], &[])), ["spec.service"]);
        assert_eq!(errors(&catalog, &split("earlier", "root", &[("v2", 1)], &[])), ["spec.service"]);
        for fine in [
            split("first", "root", &[("v2", 1)], &[]),
            split("second", "root", &[("v2", 1)], &["beta"]),
            split("second", "other", &[("v2", 1)], &[]),
        ] {
            assert_eq!(errors(&catalog, &fine), Vec::<String>::new());
        }
    }

    #[test]
    fn splits_may_not_lead_in_a_circle() {
        let a_to_b = split("a", "a", &[("b", 1)], &[]);
        let b_to_c = split("b", "b", &[("x", 1), ("c", 1)], &[]);
        let catalog = catalog(&[a_to_b, b_to_c]);
        let closing = split("c", "c", &[("y", 1), ("a", 1)], &[]);
        assert_eq!(errors(&catalog, &closing), ["spec.backends[1].service"]);
        let message = catalog.objections(&closing).pop().unwrap().message;
        assert_eq!(message, "leads back to shop/c by the split of shop/b: traffic would go in a circle");
        for fine in [
            split("c", "c", &[("c", 1), ("d", 1)], &[]),
            split("a", "a", &[("a", 1), ("b", 1)], &[]),
            split("b", "b", &[("x", 1)], &[]),
        ] {
            assert_eq!(errors(&catalog, &fine), Vec::<String>::new());
        }
    }
}
