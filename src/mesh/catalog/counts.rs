//! Sums of what several sources contribute.
//!
//! Owns how values are counted, so that what one source contributes can be added and taken away without a
//! look at the others.

use std::borrow::Borrow;
use std::collections::BTreeMap;

/// How often each value was contributed. Between two states it is the difference, and may be negative.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counts<T: Ord>(BTreeMap<T, i64>);

impl<T: Ord> Default for Counts<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord> Counts<T> {
    /// Leaves no count of zero behind, so that equal sums are equal.
    pub(super) fn add(&mut self, value: T, count: i64) {
        use std::collections::btree_map::Entry;
        match self.0.entry(value) {
            Entry::Vacant(vacant) => {
                if count != 0 {
                    vacant.insert(count);
                }
            }
            Entry::Occupied(mut occupied) => {
                *occupied.get_mut() += count;
                if *occupied.get() == 0 {
                    occupied.remove();
                }
            }
        }
    }

    pub(super) fn add_all(&mut self, other: Self) {
        if self.0.is_empty() {
            self.0 = other.0;
        } else {
            other.0.into_iter().for_each(|(value, count)| self.add(value, count));
        }
    }

    pub(super) fn subtract(&mut self, other: &Self)
    where
        T: Clone,
    {
        other.0.iter().for_each(|(value, count)| self.add(value.clone(), -count));
    }

    /// The values, sorted.
    pub(super) fn values(&self) -> impl ExactSizeIterator<Item = &T> {
        self.0.keys()
    }

    /// The values from this one on, sorted.
    pub(super) fn from(&self, first: T) -> impl Iterator<Item = &T> {
        self.0.range(first..).map(|(value, _)| value)
    }

    pub(super) fn contains(&self, value: &T) -> bool {
        self.0.contains_key(value)
    }

    /// The values that `change` adds to these, or takes away, and whether it adds them.
    pub(super) fn turned<'a>(&self, change: &'a Self) -> impl Iterator<Item = (&'a T, bool)> {
        let was = |value: &T| self.0.get(value).copied().unwrap_or(0);
        change.0.iter().filter_map(move |(value, count)| match (was(value), was(value) + count) {
            (0, _) => Some((value, true)),
            (_, 0) => Some((value, false)),
            _ => None,
        })
    }
}

/// Counts by what they have in common, such as a port of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grouped<K: Ord, T: Ord>(BTreeMap<K, Counts<T>>);

/// Counts by port of a service.
pub(super) type ByPort<T> = Grouped<u16, T>;

impl<K: Ord, T: Ord> Default for Grouped<K, T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone, T: Ord> Grouped<K, T> {
    pub(super) fn add(&mut self, key: K, value: T) {
        self.0.entry(key).or_default().add(value, 1);
    }

    /// The values of a key, sorted.
    pub(super) fn of<'a, Q: Ord + ?Sized>(
        &'a self,
        key: &Q,
    ) -> impl ExactSizeIterator<Item = &'a T> + use<'a, K, T, Q>
    where
        K: Borrow<Q>,
    {
        self.0.get(key).map(|counts| counts.0.keys()).unwrap_or_default()
    }

    /// The values of each key.
    pub(super) fn groups(&self) -> impl Iterator<Item = &Counts<T>> {
        self.0.values()
    }

    pub(super) fn add_all(&mut self, other: Self) {
        for (key, counts) in other.0 {
            self.change(&key, |own| own.add_all(counts));
        }
    }

    pub(super) fn subtract(&mut self, other: &Self)
    where
        T: Clone,
    {
        for (key, counts) in &other.0 {
            self.change(key, |own| own.subtract(counts));
        }
    }

    fn change(&mut self, key: &K, change: impl FnOnce(&mut Counts<T>)) {
        let mut counts = self.0.remove(key).unwrap_or_default();
        change(&mut counts);
        if !counts.0.is_empty() {
            self.0.insert(key.clone(), counts);
        }
    }

    /// As [`Counts::turned`], with the port.
    pub(super) fn turned<'a>(&'a self, change: &'a Self) -> impl Iterator<Item = (&'a K, &'a T)> {
        change.0.iter().flat_map(|(key, change)| {
            let own = self.0.get(key);
            let unknown = own.is_none().then(|| change.0.keys());
            let known = own.map(|counts| counts.turned(change).map(|(value, _)| value));
            let turned = unknown.into_iter().flatten().chain(known.into_iter().flatten());
            turned.map(move |value| (key, value))
        })
    }
}
