//! The smallest deterministic automaton of an expression, over the bytes of header values.

use std::collections::BTreeMap;

use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, MatchKind, util::start};

use super::TooLarge;
use super::expression::Bytes;

/// The most states. Joining them takes some milliseconds at most.
const MAX_STATES: usize = 512;
/// The most memory of each automaton on the way, in bytes: [`MAX_STATES`] rows of usual width.
const MAX_MEMORY: usize = 256 * 1024;

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
    pub(super) fn of(text: &str) -> Result<Self, TooLarge> {
        let table = explore(&determine(text)?)?;
        Ok(Self { states: trimmed(&minimal(&table)) })
    }
}

fn determine(text: &str) -> Result<dense::DFA<Vec<u32>>, TooLarge> {
    // Envoy matches bytes, and the check of patterns lets no other character pass.
    let syntax = regex_automata::util::syntax::Config::new().unicode(false).utf8(false);
    let nfa = thompson::Config::new()
        .utf8(false)
        .which_captures(thompson::WhichCaptures::None)
        .nfa_size_limit(Some(MAX_MEMORY));
    let dfa = dense::Config::new()
        .match_kind(MatchKind::All)
        .start_kind(StartKind::Anchored)
        .accelerate(false)
        .dfa_size_limit(Some(MAX_MEMORY))
        .determinize_size_limit(Some(MAX_MEMORY));
    dense::Builder::new().syntax(syntax).thompson(nfa).configure(dfa).build(text).map_err(|_| TooLarge)
}

/// The states that header values lead to: whether each matches, and the next state by column.
struct Table {
    matches: Vec<bool>,
    /// Rows by state, of as many entries as there are columns.
    next: Vec<Vec<usize>>,
    /// The bytes of each column, which no state tells apart.
    columns: Vec<Bytes>,
}

fn explore(dfa: &dense::DFA<Vec<u32>>) -> Result<Table, TooLarge> {
    let start = dfa.start_state(&start::Config::new().anchored(Anchored::Yes)).map_err(|_| TooLarge)?;
    let mut numbers: BTreeMap<StateID, usize> = BTreeMap::from([(start, 0)]);
    let mut found = vec![start];
    let bytes: Vec<u8> = Bytes::all().iter().collect();
    let mut by_byte: Vec<Vec<usize>> = vec![Vec::new(); bytes.len()];
    let mut matches = Vec::new();
    while let Some(&id) = found.get(matches.len()) {
        for (column, byte) in by_byte.iter_mut().zip(&bytes) {
            let next = dfa.next_state(id, *byte);
            column.push(*numbers.entry(next).or_insert_with(|| {
                found.push(next);
                found.len() - 1
            }));
        }
        matches.push(dfa.is_match_state(dfa.next_eoi_state(id)));
        if found.len() > MAX_STATES {
            return Err(TooLarge);
        }
    }
    let mut columns: BTreeMap<Vec<usize>, Bytes> = BTreeMap::new();
    for (column, byte) in by_byte.into_iter().zip(bytes) {
        columns.entry(column).or_default().insert(byte);
    }
    let next = (0..matches.len()).map(|state| columns.keys().map(|column| column[state]).collect()).collect();
    Ok(Table { matches, next, columns: columns.into_values().collect() })
}

/// Joins states that nothing tells apart (Moore): first those that match and those that do not, then by
/// where they lead, until no more groups are found.
fn minimal(table: &Table) -> Vec<State> {
    let mut groups: Vec<usize> = table.matches.iter().map(|matches| usize::from(*matches)).collect();
    let mut count = 0;
    loop {
        let mut kinds: BTreeMap<(bool, Vec<usize>), usize> = BTreeMap::new();
        let next: Vec<usize> = table
            .next
            .iter()
            .zip(&table.matches)
            .map(|(row, matches)| {
                let described = (*matches, row.iter().map(|to| groups[*to]).collect());
                let new = kinds.len();
                *kinds.entry(described).or_insert(new)
            })
            .collect();
        let done = kinds.len() == count;
        count = kinds.len();
        groups = next;
        if done {
            break;
        }
    }
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
