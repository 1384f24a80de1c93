//! The check of a snapshot before it is served: does Envoy accept it, and is it safe?
//!
//! Owns the rules:
//! - every resource that another one refers to exists;
//! - names are unique and agree with the content;
//! - no two filter chains match the same connections;
//! - no TLS context accepts every identity, but for that of an ingress;
//! - no traffic leaves or enters the pod in clear text, but for that of an ingress or an egress;
//! - no traffic leaves the mesh by an egress but to a name, or within networks, that it names;
//! - no request reaches the application without RBAC rules, which name identities, and for an ingress the
//!   addresses of connections, or DNS names.
//!
//! The lint reads the encoded bytes and shares no code with [`crate::translate`], which made them: it spells
//! the resource names that it knows itself. Equal content is read only once ([`Facts`]). It repairs nothing;
//! the compiler decides what is served in place of a half that fails.

mod access_log;
mod content;
mod egress;
mod limits;
mod reader;
mod requests;
mod tls;
mod tracing;

use std::sync::Arc;

use smc_types::object_ref::ObjectRef;
use smc_types::problem::Problem;
use smc_types::proxy_class::ProxyClass;
use smc_xds::resource::{Resource, ResourceType, Version};
use smc_xds::served_state::View;

/// What one resource refers to, and its faults regardless of other resources.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// The resources that it refers to, by name; sorted, without duplicates.
    pub references: Box<[(ResourceType, Arc<str>)]>,
    /// The rules that it breaks.
    pub faults: Vec<String>,
}

impl Facts {
    /// Reads an encoded resource.
    pub fn of(resource: &Resource) -> Self {
        Self::of_any(resource.kind, &resource.name, resource.version, &resource.any())
    }

    /// Reads an encoded `google.protobuf.Any` that stands for a resource of this name and version.
    pub fn of_any(kind: ResourceType, name: &str, version: Version, any: &[u8]) -> Self {
        content::inspect(kind, name, version, any)
    }
}

/// Checks resources that are served together to a class. `resolves` returns whether a resource of
/// that name is served with them.
pub fn check<'a>(
    class: &ProxyClass,
    resources: impl IntoIterator<Item = (&'a Resource, &'a Facts)>,
    resolves: impl Fn(ResourceType, &str) -> bool,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (resource, facts) in resources {
        problems.extend(facts.faults.iter().map(|fault| problem(class, resource, fault)));
        for (kind, name) in facts.references.iter().filter(|(kind, name)| !resolves(*kind, name)) {
            problems.push(problem(
                class,
                resource,
                &format!("refers to {} {name}, which does not exist", kind.short()),
            ));
        }
    }
    problems
}

/// The problem of two resources with one type and name: only one of them could be served.
pub fn duplicate(class: &ProxyClass, resource: &Resource) -> Problem {
    problem(class, resource, "another resource of this type has the same name")
}

/// Checks everything that a proxy is served, from the encoded bytes alone. Empty if no rule is broken.
pub fn lint(view: &View) -> Vec<Problem> {
    let resources: Vec<_> = ResourceType::ALL
        .into_iter()
        .flat_map(|kind| view.all(kind))
        .map(|resource| (resource, Facts::of(resource)))
        .collect();
    let resources = resources.iter().map(|(resource, facts)| (&***resource, facts));
    check(&view.class, resources, |kind, name| view.get(kind, name).is_some())
}

fn problem(class: &ProxyClass, resource: &Resource, fault: &str) -> Problem {
    let message = format!("{fault}; the configuration before this change stays in force");
    let field = format!("{} {}", resource.kind.short(), resource.name);
    Problem::error(ObjectRef::from(&class.account), field, message)
}

#[cfg(test)]
mod tests;
