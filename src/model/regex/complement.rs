//! The complement of a header's expression: an expression for all values that it does not match.
//!
//! Owns the way there: a deterministic automaton, whose ends are exchanged, and from which states are then
//! eliminated one by one (Brzozowski and McCluskey). A complement can be exponentially larger than the
//! expression, so every step has a bound, and one that is exceeded refuses the expression. What is computed
//! is charged to a budget of steps, also if the expression is refused in the end.

mod automaton;
mod expression;

use std::collections::{BTreeMap, BTreeSet};

use automaton::Automaton;
use expression::{Bytes, Expression};

use super::steps::{Refusal, Steps};

/// The longest complement, in bytes. Each proxy keeps it compiled, beside the expression, and this is
/// well within the program size that the bootstrap allows: an instruction for a byte, or less.
const MAX_LENGTH: usize = 16 * 1024;

/// The most text that is written on the way, in bytes: some milliseconds.
const MAX_WRITTEN: usize = 4 * 1024 * 1024;

/// The deepest nesting of groups. RE2 refuses 1,000.
const MAX_DEPTH: usize = 500;

/// What an edge takes that is looked at, in steps, and one that is written.
const LOOK: usize = 8;
const WRITE: usize = 128;

/// An expression for all header values that `text` does not match whole; `None` if it matches all of them.
/// `text` has passed the check for what RE2 reads the same way. No value holds NUL, CR or LF (RFC 9110 §5.5).
pub(super) fn complement(text: &str, steps: &mut Steps) -> Result<Option<String>, Refusal> {
    let automaton = Automaton::of(text, steps)?;
    let edges = automaton.states.iter().map(|state| state.edges.len() + 1).sum();
    steps.take_all(edges, WRITE)?;
    Ok(Elimination::new(&automaton, steps).run()?.map(Expression::into_text))
}

/// A state of the automaton, or one of the two ends.
type Node = usize;

/// The automaton while its states are eliminated: edges that carry expressions.
struct Elimination<'a> {
    steps: &'a mut Steps,
    /// The edges by target, of each node.
    out: Vec<BTreeMap<Node, Expression>>,
    /// The sources of edges to each node.
    into: Vec<Vec<Node>>,
    start: Node,
    end: Node,
    written: usize,
}

impl<'a> Elimination<'a> {
    /// The automaton with one more state before its start, and one behind every value that does not match.
    fn new(automaton: &Automaton, steps: &'a mut Steps) -> Self {
        let states = automaton.states.len();
        let (start, end) = (states, states + 1);
        let mut this = Self {
            steps,
            out: vec![BTreeMap::new(); states + 2],
            into: vec![Vec::new(); states + 2],
            start,
            end,
            written: 0,
        };
        this.add(start, 0, Expression::empty());
        let twins = twins(automaton);
        for (from, state) in automaton.states.iter().enumerate() {
            let mut classes: BTreeMap<Node, Bytes> = BTreeMap::new();
            for (to, bytes) in &state.edges {
                classes.entry(twins.get(to).copied().unwrap_or(*to)).or_default().join(*bytes);
                if twins.contains_key(to) {
                    classes.entry(end).or_default().join(*bytes);
                }
            }
            for (to, bytes) in classes {
                this.add(from, to, Expression::class(bytes));
            }
            if !state.matches {
                this.add(from, end, Expression::empty());
            }
        }
        this
    }

    /// Adds an alternative.
    fn add(&mut self, from: Node, to: Node, expression: Expression) {
        let joined = if let Some(other) = self.out[from].remove(&to) {
            other.or(&expression)
        } else {
            if from != to {
                self.into[to].push(from);
            }
            expression
        };
        self.out[from].insert(to, joined);
    }

    fn run(mut self) -> Result<Option<Expression>, Refusal> {
        let mut costs: Vec<Option<usize>> = Vec::new();
        for node in 0..self.start {
            costs.push(Some(self.cost(node)?));
        }
        let mut order: BTreeSet<(usize, Node)> =
            costs.iter().zip(0..).filter_map(|(cost, node)| Some(((*cost)?, node))).collect();
        while let Some((_, node)) = order.pop_first() {
            costs[node] = None;
            let beside: BTreeSet<Node> =
                self.into[node].iter().chain(self.out[node].keys()).copied().collect();
            self.eliminate(node)?;
            for node in beside {
                if let Some(Some(before)) = costs.get(node).copied() {
                    let now = self.cost(node)?;
                    order.remove(&(before, node));
                    order.insert((now, node));
                    costs[node] = Some(now);
                }
            }
        }
        Ok(self.out[self.start].remove(&self.end))
    }

    /// What is written again if this node is eliminated next (Delgado and Morais).
    fn cost(&mut self, node: Node) -> Result<usize, Refusal> {
        self.steps.take_all(1 + self.into[node].len() + self.out[node].len(), LOOK)?;
        let length = |expression: &Expression| expression.len() + 1;
        let sources: Vec<_> = self.into[node].iter().map(|from| length(&self.out[*from][&node])).collect();
        let targets: Vec<_> =
            self.out[node].iter().filter(|(to, _)| **to != node).map(|(_, e)| length(e)).collect();
        let around = self.out[node].get(&node).map_or(0, length);
        let (ins, outs) = (sources.len(), targets.len());
        Ok(sources.iter().sum::<usize>() * outs.saturating_sub(1)
            + targets.iter().sum::<usize>() * ins.saturating_sub(1)
            + around * (ins * outs).saturating_sub(1))
    }

    fn eliminate(&mut self, node: Node) -> Result<(), Refusal> {
        let mut targets = std::mem::take(&mut self.out[node]);
        let around = targets.remove(&node).map(Expression::repeated);
        for to in targets.keys() {
            self.steps.take_all(self.into[*to].len(), 1)?;
            self.into[*to].retain(|from| *from != node);
        }
        for from in std::mem::take(&mut self.into[node]) {
            let Some(first) = self.out[from].remove(&node) else { continue };
            for (to, last) in &targets {
                let mut path = first.clone();
                if let Some(around) = &around {
                    path = path.then(around);
                }
                path = path.then(last);
                self.add(from, *to, path);
                let path = &self.out[from][to];
                self.written += path.len();
                self.steps.take_all(path.len() + WRITE, 1)?;
                if path.len() > MAX_LENGTH || path.depth() > MAX_DEPTH || self.written > MAX_WRITTEN {
                    return Err(Refusal::TooLarge);
                }
            }
        }
        Ok(())
    }
}

/// States that differ from another one only in that a value that ends there does not match. A step to the one
/// is a step to the other, or to the end. Without it, each place of a count such as `([a-z-]{0,61}[a-z])?`
/// would double what is written.
fn twins(automaton: &Automaton) -> BTreeMap<Node, Node> {
    let matching: BTreeMap<_, _> =
        automaton.states.iter().enumerate().filter(|(_, s)| s.matches).map(|(n, s)| (&s.edges, n)).collect();
    let others = automaton.states.iter().enumerate().skip(1).filter(|(_, state)| !state.matches);
    others.filter_map(|(node, state)| Some((node, *matching.get(&state.edges)?))).collect()
}

#[cfg(test)]
mod tests;
