//! Which states of an automaton nothing tells apart, by Hopcroft's algorithm.
//!
//! Groups are split until no group has states that lead to different groups. When a group is split, the
//! others are compared with its smaller part alone. So a state is in such a part at most log n times.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Table;
use crate::regex::steps::{Refusal, Steps};

/// What a visit of a state takes, in steps.
const VISIT: usize = 4;

/// The group of each state. Groups are numbered in the order in which their first states come.
pub(super) fn partition(table: &Table, steps: &mut Steps) -> Result<Vec<usize>, Refusal> {
    let columns = table.columns.len();
    steps.take_all(table.matches.len(), columns)?;
    let sources = sources(table);
    let mut groups = Groups::new(&table.matches);
    // A group and a column: which states lead to the one by the other is still to be compared.
    let by_column = |group| (0..columns).map(move |column| (group, column));
    let mut waiting: Vec<(usize, usize)> = (0..groups.ranges.len()).flat_map(by_column).collect();
    while let Some((group, column)) = waiting.pop() {
        let members = groups.members(group);
        let leading: Vec<usize> = members.iter().flat_map(|to| &sources[column][*to]).copied().collect();
        steps.take_all(1 + members.len() + 2 * leading.len(), VISIT)?;
        for new in groups.split(&leading, steps)? {
            steps.take_all(columns, 1)?;
            waiting.extend(by_column(new));
        }
    }
    Ok(groups.numbered())
}

/// By column, the states that lead to each state.
fn sources(table: &Table) -> Vec<Vec<Vec<usize>>> {
    let mut sources = vec![vec![Vec::new(); table.matches.len()]; table.columns.len()];
    for (from, row) in table.next.iter().enumerate() {
        for (column, to) in sources.iter_mut().zip(row) {
            column[*to].push(from);
        }
    }
    sources
}

struct Groups {
    /// The states, group by group.
    order: Vec<usize>,
    /// The place of each state in that order.
    places: Vec<usize>,
    /// The group of each state.
    of: Vec<usize>,
    /// The places of each group.
    ranges: Vec<Range<usize>>,
}

impl Groups {
    /// The states that match, and those that do not.
    fn new(matches: &[bool]) -> Self {
        let states = 0..matches.len();
        let mut order: Vec<usize> = states.clone().collect();
        order.sort_by_key(|state| !matches[*state]);
        let mut this = Self { places: order.clone(), order, of: vec![0; matches.len()], ranges: Vec::new() };
        for place in states.clone() {
            this.places[this.order[place]] = place;
        }
        let matching = matches.iter().filter(|matches| **matches).count();
        for range in [0..matching, matching..states.end].into_iter().filter(|range| !range.is_empty()) {
            this.add(range);
        }
        this
    }

    fn add(&mut self, range: Range<usize>) {
        for state in &self.order[range.clone()] {
            self.of[*state] = self.ranges.len();
        }
        self.ranges.push(range);
    }

    fn members(&self, group: usize) -> &[usize] {
        &self.order[self.ranges[group].clone()]
    }

    /// Splits each group of which some states are named, each once, and others are not. Returns the new
    /// groups, which are the smaller parts.
    fn split(&mut self, named: &[usize], steps: &mut Steps) -> Result<Vec<usize>, Refusal> {
        // The end of the named states of each group, which are moved to its front.
        let mut ends: BTreeMap<usize, usize> = BTreeMap::new();
        for state in named {
            let group = self.of[*state];
            let end = ends.entry(group).or_insert(self.ranges[group].start);
            let (place, other) = (self.places[*state], self.order[*end]);
            self.order.swap(*end, place);
            (self.places[*state], self.places[other]) = (*end, place);
            *end += 1;
        }
        let mut new = Vec::new();
        for (group, middle) in ends {
            let Range { start, end } = self.ranges[group];
            if middle == end {
                continue;
            }
            let (named, others) = (start..middle, middle..end);
            let (smaller, larger) =
                if named.len() < others.len() { (named, others) } else { (others, named) };
            steps.take_all(smaller.len(), VISIT)?;
            self.ranges[group] = larger;
            new.push(self.ranges.len());
            self.add(smaller);
        }
        Ok(new)
    }

    fn numbered(&self) -> Vec<usize> {
        let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
        let mut number = |group: &usize| {
            let next = numbers.len();
            *numbers.entry(*group).or_insert(next)
        };
        self.of.iter().map(&mut number).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::regex::complement::expression::Bytes;

    /// By Moore's algorithm, as directly as it can be written.
    fn by_rounds(table: &Table) -> Vec<usize> {
        let mut groups: Vec<usize> = table.matches.iter().map(|matches| usize::from(*matches)).collect();
        loop {
            let described: Vec<(usize, Vec<usize>)> = (groups.iter().zip(&table.next))
                .map(|(group, row)| (*group, row.iter().map(|to| groups[*to]).collect()))
                .collect();
            let first = |one| described.iter().position(|other| other == one).unwrap();
            let next: Vec<usize> = described.iter().map(first).collect();
            if next == groups {
                return groups;
            }
            groups = next;
        }
    }

    fn table() -> impl Strategy<Value = Table> {
        (1..24_usize, 1..4_usize).prop_flat_map(|(states, columns)| {
            let row = prop::collection::vec(0..states, columns);
            (prop::collection::vec(any::<bool>(), states), prop::collection::vec(row, states)).prop_map(
                move |(matches, next)| Table { matches, next, columns: vec![Bytes::default(); columns] },
            )
        })
    }

    proptest! {
        #[test]
        fn states_are_joined_exactly_if_nothing_tells_them_apart(table in table()) {
            let groups = partition(&table, &mut Steps::new(u64::MAX)).unwrap();
            let expected = by_rounds(&table);
            for one in 0..groups.len() {
                for other in 0..one {
                    prop_assert_eq!(groups[one] == groups[other], expected[one] == expected[other]);
                }
                let before = groups[..one].iter().max().map_or(0, |most| most + 1);
                prop_assert!(groups[one] <= before, "numbered in the order of first states");
            }
        }
    }

    /// Each round of Moore's would look at all states, which is the square of their number.
    #[test]
    fn a_long_chain_takes_little_more_than_its_length() {
        let steps = |length: usize| {
            let next = (0..length).map(|state| vec![(state + 1).min(length - 1), length - 1]).collect();
            let matches = (0..length).map(|state| state + 2 == length).collect();
            let table = Table { matches, next, columns: vec![Bytes::default(); 2] };
            let mut steps = Steps::new(u64::MAX);
            partition(&table, &mut steps).unwrap();
            u64::MAX - steps.left()
        };
        assert!(steps(512) < 5 * steps(128), "{} {}", steps(512), steps(128));
    }
}
