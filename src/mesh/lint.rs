//! The last look at a snapshot before it is served: would Envoy take it, and is it safe?
//!
//! Owns the rules: whatever a resource refers to is there, names are unique and agree with the content, no
//! two filter chains match the same, nothing accepts every identity, nothing of the mesh goes out or comes in
//! in clear text, no request reaches the application without rules. It reads the encoded bytes, so it shares no code with the translation that it judges, and
//! it needs to read equal content only once ([`Facts`]). Refuses to repair: what fails is not served, and what is served in
//! its place is up to the compiler.

mod content;
mod requests;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::problem::Problem;
use crate::resource::{Resource, ResourceType};
use crate::world::{ProxyClass, View};

/// What one resource refers to, and what is wrong with it taken by itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// The resources it needs, by name.
    pub references: BTreeSet<(ResourceType, Arc<str>)>,
    /// What is wrong with it.
    pub faults: Vec<String>,
}

impl Facts {
    /// Reads an encoded resource.
    pub fn of(resource: &Resource) -> Self {
        content::inspect(resource)
    }
}

/// Checks resources that are served together to a class. `resolves` says which names are there.
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
                &format!("refers to {} {name}, which is not there", kind.short()),
            ));
        }
    }
    problems
}

/// Two resources of one type and name: one of them would not be served.
pub fn duplicate(class: &ProxyClass, resource: &Resource) -> Problem {
    problem(class, resource, "another resource of this type has the same name")
}

/// Checks all that a proxy is served, from its bytes alone. Empty means that nothing is wrong.
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
    Problem::error(format_args!("ServiceAccount {}", class.account), field, message)
}

#[cfg(test)]
mod tests;
