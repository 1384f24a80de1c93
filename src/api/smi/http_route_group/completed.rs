//! A group with the complements of its header expressions.
//!
//! Owns what they may take of one group, and which of its matches are left out. A match that lacks a
//! complement is left out whole, as one that cannot be read: without it, it would match more.

use std::collections::BTreeMap;

use smc_model::http_match::HttpMatch;
use smc_model::regex::{Complements, HeaderPattern, Incomplete, Pattern, Steps};
use smc_types::object_ref::Kind;
use smc_types::problem::Problem;
use smc_types::text::truncated;

use super::{HttpRouteGroup, RouteGroup};
use crate::reading::Findings;

/// The most steps that the header expressions of one group may take: some 0.1 seconds. It is more than a
/// thousand usual expressions, or ten of the most expensive.
pub const MAX_STEPS: u64 = 64 << 20;

/// What completing a group gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed {
    /// The group, without the matches that lack a complement.
    pub group: RouteGroup,
    /// The steps that it takes; of one over its budget, all that it may.
    pub steps: u64,
    /// Whether it takes more than it may.
    pub over_budget: bool,
    /// What is wrong with it beside what reading found.
    pub problems: Vec<Problem>,
}

impl HttpRouteGroup {
    /// Whether any match has headers. Others take no steps.
    pub fn has_headers(&self) -> bool {
        self.matches.values().any(|one| !one.headers.is_empty())
    }

    /// The group with the complements of its header expressions, within `most` steps, and within
    /// [`MAX_STEPS`]. Matches are completed in the order of their names. Equal expressions of the group take
    /// the steps of one.
    pub fn complete(&self, complements: &mut Complements, most: u64) -> Completed {
        let most = most.min(MAX_STEPS);
        let mut completing = Completing {
            complements,
            budget: Steps::new(most),
            known: BTreeMap::new(),
            refused: Vec::new(),
            over: Vec::new(),
        };
        let mut matches = BTreeMap::new();
        for (name, one) in &self.matches {
            if let Some(one) = completing.complete(name, one) {
                matches.insert(name.clone(), one);
            }
        }
        let Completing { budget, over, refused, .. } = completing;
        let mut findings = Findings::new(Kind::HttpRouteGroup, self.id.clone());
        if let Some(first) = over.first() {
            let whose =
                if most == MAX_STEPS { "one group may take" } else { "its namespace has left for it" };
            let message = format!(
                "have header expressions that take more work than {whose}; {} are left out, from {:?} on",
                over.len(),
                truncated(first, 63)
            );
            findings.error("spec.matches", message);
        }
        for message in refused {
            findings.error("spec.matches", message);
        }
        Completed {
            group: HttpRouteGroup { id: self.id.clone(), matches },
            steps: most - budget.left(),
            over_budget: !over.is_empty(),
            problems: findings.into_reading::<()>(None).problems,
        }
    }
}

/// A group while it is completed.
struct Completing<'a> {
    complements: &'a mut Complements,
    budget: Steps,
    known: BTreeMap<&'a Pattern, Result<HeaderPattern, Incomplete>>,
    /// What to say of expressions that no budget suffices for.
    refused: Vec<String>,
    /// The names of matches for which the budget did not suffice.
    over: Vec<&'a str>,
}

impl<'a> Completing<'a> {
    fn complete(&mut self, name: &'a str, one: &'a HttpMatch<Pattern>) -> Option<HttpMatch> {
        let mut headers = Some(BTreeMap::new());
        for (header, pattern) in &one.headers {
            let Self { complements, budget, .. } = self;
            let known = self.known.entry(pattern).or_insert_with(|| complements.header(pattern, budget));
            match known {
                Ok(pattern) => {
                    if let Some(headers) = &mut headers {
                        headers.insert(header.clone(), pattern.clone());
                    }
                    continue;
                }
                Err(why @ Incomplete::TooLarge) => {
                    let (name, header) = (truncated(name, 63), truncated(header, 63));
                    let message = format!(
                        "have {name:?}, of which the expression for {header} {why}; the match is left out"
                    );
                    self.refused.push(message);
                }
                Err(Incomplete::OverBudget) if self.over.last() != Some(&name) => self.over.push(name),
                Err(Incomplete::OverBudget) => {}
            }
            headers = None;
        }
        let HttpMatch { path, methods, .. } = one;
        Some(HttpMatch { path: path.clone(), methods: methods.clone(), headers: headers? })
    }
}

#[cfg(test)]
mod tests;
