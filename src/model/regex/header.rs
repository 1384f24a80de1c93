//! Expressions for the values of a header, with their complements.
//!
//! Owns what computing complements may take, and the memory of those that were computed: an expression that
//! was seen before takes none of the time again. What it takes of a budget is the same either way, since
//! replicas that remember different ones must decide alike.

use std::collections::BTreeMap;

use super::complement::complement;
use super::steps::Refusal;
use super::{InvalidPattern, Pattern, Steps};

/// The most bytes that expressions and complements take which are remembered. It is a thousand of the longest
/// complements, or tens of thousands of usual ones.
const MAX_REMEMBERED: usize = 16 * 1024 * 1024;
/// What an expression takes in memory beside its text and its complement.
const ENTRY: usize = 256;

/// What an expression takes at least, in steps: its parsing, and its place in memory.
pub(super) const LEAST: u64 = 50_000;

/// An expression for the values of a header, each of which must match it whole (SMI).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeaderPattern {
    matching: Pattern,
    other: Option<Pattern>,
}

impl HeaderPattern {
    /// Reads one expression, whatever its complement takes. What strangers write many of has a budget
    /// ([`Complements::header`]).
    pub fn new(text: &str) -> Result<Self, InvalidPattern> {
        let matching = Pattern::whole(text)?;
        let completed = Complements::default().header(&matching, &mut Steps::new(u64::MAX - 1));
        completed.map_err(|incomplete| InvalidPattern { reason: incomplete.to_string() })
    }

    /// The expression of values that match.
    pub fn matching(&self) -> &Pattern {
        &self.matching
    }

    /// The expression of values that do not match; `None` if all match. A condition on a header that occurs
    /// more than once needs it: Envoy takes an expression for fulfilled if **any** value matches.
    pub fn other(&self) -> Option<&Pattern> {
        self.other.as_ref()
    }
}

/// Why a header's expression cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    /// Its complement is too large.
    #[error(
        "is too complex for a header: what it does not match, which is refused in a header that is sent \
         twice, cannot be written down"
    )]
    TooLarge,
    /// The budget of steps does not suffice for its complement. No steps are left.
    #[error("takes more steps than are left, for what it does not match")]
    OverBudget,
}

/// Complements by their expressions, as far as they are remembered.
#[derive(Debug, Clone, Default)]
pub struct Complements {
    known: BTreeMap<Pattern, Known>,
    /// What they take, in bytes.
    bytes: usize,
    /// The steps that were made, and not spared by what is remembered.
    made: u64,
}

#[derive(Debug, Clone)]
enum Known {
    /// The complement, and the steps that it took.
    Computed(u64, Option<Pattern>),
    /// It took these steps until the complement was too large.
    TooLarge(u64),
    /// It takes more than these steps.
    Beyond(u64),
}

impl Complements {
    /// Completes a pattern for the whole text, and takes the steps for its complement from `budget`.
    pub fn header(&mut self, matching: &Pattern, budget: &mut Steps) -> Result<HeaderPattern, Incomplete> {
        let most = budget.left();
        let known = match self.known.get(matching) {
            _ if most < LEAST => Known::Beyond(most),
            Some(Known::Beyond(steps)) if *steps < most => self.compute(matching, most),
            Some(known) => known.clone(),
            None => self.compute(matching, most),
        };
        let steps = match &known {
            Known::Computed(steps, _) | Known::TooLarge(steps) => *steps,
            Known::Beyond(_) => u64::MAX,
        };
        match (budget.take(steps), known) {
            (Ok(()), Known::Computed(_, other)) => Ok(HeaderPattern { matching: matching.clone(), other }),
            (Ok(()), _) => Err(Incomplete::TooLarge),
            (Err(_), _) => Err(Incomplete::OverBudget),
        }
    }

    /// The steps that were made so far, and not spared by what is remembered.
    pub fn made(&self) -> u64 {
        self.made
    }

    fn compute(&mut self, matching: &Pattern, most: u64) -> Known {
        let mut steps = Steps::new(most);
        let computed = steps.take(LEAST).and_then(|()| complement(matching.as_str(), &mut steps));
        let took = most - steps.left();
        self.made = self.made.saturating_add(took);
        let known = match computed {
            Ok(other) => Known::Computed(took, other.map(|other| Pattern(other.into()))),
            Err(Refusal::TooLarge) => Known::TooLarge(took),
            Err(Refusal::OverBudget) => Known::Beyond(most),
        };
        self.remember(matching, known.clone());
        known
    }

    fn remember(&mut self, matching: &Pattern, known: Known) {
        if let Some(before) = self.known.remove(matching) {
            self.bytes -= size(matching, &before);
        }
        let size = size(matching, &known);
        if self.bytes + size > MAX_REMEMBERED {
            // What is in use is held where it is used, and asked for again only if it changes.
            (self.known, self.bytes) = (BTreeMap::new(), 0);
        }
        self.bytes += size;
        self.known.insert(matching.clone(), known);
    }
}

/// What an expression takes in memory, in bytes.
fn size(matching: &Pattern, known: &Known) -> usize {
    let other = match known {
        Known::Computed(_, Some(other)) => other.as_str().len(),
        _ => 0,
    };
    ENTRY + matching.as_str().len() + other
}

#[cfg(test)]
mod tests;
