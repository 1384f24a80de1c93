//! The smallest deterministic automaton of an expression, over the bytes of header values.

mod minimal;

use std::collections::BTreeMap;

use regex_automata::hybrid::{LazyStateID, dfa};
use regex_automata::nfa::thompson;
use regex_automata::{Anchored, MatchKind, util::start};

use self::minimal::partition;
use super::expression::Bytes;
use crate::regex::steps::{Refusal, Steps};

/// The most states.
const MAX_STATES: usize = 512;
/// The most memory of the automaton that is not deterministic, in bytes: that of some thousand states.
const MAX_MEMORY: usize = 256 * 1024;
/// The most memory of the deterministic one, in bytes: what [`MAX_STATES`] take that each stand for all
/// states of the other.
const MAX_CACHE: usize = 32 * 1024 * 1024;

/// What parsing takes for each byte of an expression, in steps.
const PARSING: usize = 64;
/// The bytes of the automaton that is not deterministic which a step from a state passes by: from above, a
/// step for each of its states and edges.
const PASSED: usize = 16;

/// The automaton. Its first state is the start.
pub(super) struct Automaton {
    pub(super) states: Vec<State>,
}

pub(super) struct State {
    /// Whether a value that ends here matches the expression.
    pub(super) matches: bool,
    /// The next states, and the bytes that lead there. Every byte of a header value leads somewhere, but to
    /// no state from which everything matches.
    pub(super) edges: BTreeMap<usize, Bytes>,
}

impl Automaton {
    pub(super) fn of(text: &str, steps: &mut Steps) -> Result<Self, Refusal> {
        steps.take_all(text.len() + 1, PARSING)?;
        let table = explore(&build(text)?, steps)?;
        let groups = partition(&table, steps)?;
        steps.take_all(table.matches.len(), table.columns.len())?;
        Ok(Self { states: trimmed(&joined(&table, &groups)) })
    }
}

/// The automaton that is not deterministic, and makes states of a deterministic one when they are asked for.
fn build(text: &str) -> Result<dfa::DFA, Refusal> {
    // Envoy matches bytes, and the check of patterns lets no other character pass.
    let syntax = regex_automata::util::syntax::Config::new().unicode(false).utf8(false);
    let nfa = thompson::Config::new()
        .utf8(false)
        .which_captures(thompson::WhichCaptures::None)
        .nfa_size_limit(Some(MAX_MEMORY));
    // No state is made twice.
    let dfa = dfa::Config::new()
        .match_kind(MatchKind::All)
        .cache_capacity(MAX_CACHE)
        .minimum_cache_clear_count(Some(0));
    let built = dfa::Builder::new().syntax(syntax).thompson(nfa).configure(dfa).build(text);
    built.map_err(|_| Refusal::TooLarge)
}

/// The states that header values lead to: whether each matches, and the next state by column.
#[derive(Debug)]
struct Table {
    matches: Vec<bool>,
    /// Rows by state, of as many entries as there are columns.
    next: Vec<Vec<usize>>,
    /// The bytes of each column, which no state tells apart.
    columns: Vec<Bytes>,
}

fn explore(dfa: &dfa::DFA, steps: &mut Steps) -> Result<Table, Refusal> {
    let mut classes: BTreeMap<u8, (u8, Bytes)> = BTreeMap::new();
    for byte in Bytes::all().iter() {
        classes.entry(dfa.byte_classes().get(byte)).or_insert((byte, Bytes::default())).1.insert(byte);
    }
    let one = dfa.get_nfa().memory_usage() / PASSED;
    steps.take_all(dfa.get_nfa().memory_usage(), 1)?;
    let mut cache = dfa.create_cache();
    let start = start::Config::new().anchored(Anchored::Yes);
    let start = dfa.start_state(&mut cache, &start).map_err(|_| Refusal::TooLarge)?;
    let mut numbers: BTreeMap<LazyStateID, usize> = BTreeMap::from([(start, 0)]);
    let mut found = vec![start];
    let mut by_class: Vec<Vec<usize>> = vec![Vec::new(); classes.len()];
    let mut matches = Vec::new();
    while let Some(&id) = found.get(matches.len()) {
        steps.take_all(classes.len() + 1, one + STEP)?;
        for (column, (byte, _)) in by_class.iter_mut().zip(classes.values()) {
            let next = dfa.next_state(&mut cache, id, *byte).map_err(|_| Refusal::TooLarge)?;
            column.push(*numbers.entry(next).or_insert_with(|| {
                found.push(next);
                found.len() - 1
            }));
        }
        matches.push(dfa.next_eoi_state(&mut cache, id).map_err(|_| Refusal::TooLarge)?.is_match());
        if found.len() > MAX_STATES {
            return Err(Refusal::TooLarge);
        }
    }
    let mut columns: BTreeMap<Vec<usize>, Bytes> = BTreeMap::new();
    for (column, (_, bytes)) in by_class.into_iter().zip(classes.into_values()) {
        columns.entry(column).or_default().join(bytes);
    }
    let next = (0..matches.len()).map(|state| columns.keys().map(|column| column[state]).collect()).collect();
    Ok(Table { matches, next, columns: columns.into_values().collect() })
}

/// What a step from a state takes however small the automaton is.
const STEP: usize = 64;

/// The groups as states.
fn joined(table: &Table, groups: &[usize]) -> Vec<State> {
    let mut states: Vec<State> = Vec::new();
    for (state, group) in groups.iter().enumerate() {
        // Groups are numbered in the order in which their first states come.
        if *group == states.len() {
            let mut edges: BTreeMap<usize, Bytes> = BTreeMap::new();
            for (to, bytes) in table.next[state].iter().zip(&table.columns) {
                edges.entry(groups[*to]).or_default().join(*bytes);
            }
            states.push(State { matches: table.matches[state], edges });
        }
    }
    states
}

/// Drops the edges to the one state from which everything matches: no value there fails to match.
fn trimmed(states: &[State]) -> Vec<State> {
    let hopeless = |index: usize| states[index].matches && states[index].edges.keys().all(|to| *to == index);
    let kept = |to: &usize| !hopeless(*to);
    states
        .iter()
        .map(|state| State {
            matches: state.matches,
            edges: state.edges.iter().filter(|(to, _)| kept(to)).map(|(to, bytes)| (*to, *bytes)).collect(),
        })
        .collect()
}
