use std::collections::BTreeMap;

use super::*;
use crate::catalog::{Object, SourceEvent};
use smc_api::osm::MeshConfig;
use smc_authority::rules::RootRole;
use smc_types::ids::{MeshNamespace, TrustDomain};
use smc_types::object_ref::{Kind, ObjectRef};

use RootRole::{Active, Inactive, Passive};

fn catalog(objects: &[(&str, RootRole)]) -> Catalog {
    let mut catalog = Catalog::new(MeshNamespace::default(), TrustDomain::new("mesh.example").unwrap());
    for (name, role) in objects {
        catalog.apply(SourceEvent::Upsert(root(name, *role, None)));
    }
    catalog
}

fn root(name: &str, role: RootRole, trust_domain: Option<&str>) -> Object {
    let id = name.parse().unwrap();
    Object::from(MeshRootCertificate { id, role, trust_domain: trust_domain.map(Into::into) })
}

fn roles(all: &[(&str, RootRole)]) -> DeclaredRoots {
    let named = all.iter().map(|(name, role)| (name.parse().unwrap(), *role));
    DeclaredRoots::Roles(named.collect::<BTreeMap<_, _>>())
}

/// What is wrong, as `object: field`, or its beginning where it has no field.
fn problems(catalog: &Catalog) -> Vec<String> {
    let all = catalog.problems().into_iter();
    all.map(|problem| format!("{}: {}{:.22}", problem.subject, problem.field, problem.message)).collect()
}

#[test]
fn the_objects_of_the_control_planes_namespace_count() {
    let all = [("smc-system/a", Active), ("smc-system/b", Passive), ("shop/c", Active)];
    let catalog = catalog(&all);
    assert_eq!(catalog.declared_roots(), roles(&[("smc-system/a", Active), ("smc-system/b", Passive)]));
    assert_eq!(problems(&catalog), ["MeshRootCertificate shop/c: metadata.namespacehas no effect: only th"]);
}

#[test]
fn what_contradicts_itself_changes_nothing_and_is_said_on_each_object() {
    for (sentence, all, wrong) in [
        ("a third one in use", vec![("a", Active), ("b", Passive), ("c", Active), ("d", Inactive)], 3),
        ("none that signs", vec![("a", Passive), ("b", Inactive)], 2),
        ("all are retired", vec![("a", Inactive)], 1),
    ] {
        let names: Vec<_> = all.iter().map(|(name, role)| (format!("smc-system/{name}"), *role)).collect();
        let objects: Vec<_> = names.iter().map(|(name, role)| (name.as_str(), *role)).collect();
        let mut catalog = catalog(&objects);
        assert_eq!(catalog.declared_roots(), DeclaredRoots::Contradicting, "{sentence}");
        assert_eq!(problems(&catalog).len(), wrong, "{sentence}: {:?}", problems(&catalog));
        let first = root("smc-system/a", Active, None);
        catalog.apply(SourceEvent::Upsert(first));
        for other in ["b", "c", "d"] {
            let name = format!("smc-system/{other}").parse().unwrap();
            let reference = ObjectRef::Namespaced(Kind::MeshRootCertificate, name);
            catalog.apply(SourceEvent::Remove(reference));
        }
        assert_eq!(catalog.declared_roots(), roles(&[("smc-system/a", Active)]), "{sentence}");
        assert_eq!(problems(&catalog), Vec::<String>::new(), "{sentence}");
    }
}

#[test]
fn a_root_of_another_trust_domain_does_not_count() {
    let mut catalog = catalog(&[("smc-system/a", Active)]);
    catalog.apply(SourceEvent::Upsert(root("smc-system/b", Passive, Some("other.example"))));
    assert_eq!(catalog.declared_roots(), roles(&[("smc-system/a", Active)]));
    assert_eq!(
        problems(&catalog),
        ["MeshRootCertificate smc-system/b: spec.trustDomainis \"other.example\", an"]
    );
    catalog.apply(SourceEvent::Upsert(root("smc-system/b", Passive, Some("mesh.example"))));
    assert_eq!(catalog.declared_roots(), roles(&[("smc-system/a", Active), ("smc-system/b", Passive)]));
    assert_eq!(problems(&catalog), Vec::<String>::new());
}

#[test]
fn none_counts_where_the_mesh_config_says_so() {
    let mut catalog = catalog(&[("smc-system/a", Active), ("smc-system/b", Passive)]);
    for (ignores_root_certificates, wrong) in [(true, 2), (false, 0)] {
        let config = MeshConfig { ignores_root_certificates, ..MeshConfig::default() };
        let name = "smc-system/osm-mesh-config".parse().unwrap();
        let affected = catalog.apply(SourceEvent::Upsert(Object::MeshConfig(name, config)));
        assert!(!affected.everything, "no sidecar's configuration depends on it");
        assert_eq!(catalog.declared_roots() == DeclaredRoots::none(), ignores_root_certificates);
        assert_eq!(problems(&catalog).len(), wrong);
    }
}
