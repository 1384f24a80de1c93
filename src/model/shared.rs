//! A shared value that is compared by what it says.

use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::Arc;

/// A value that several hold. It compares as the value does; two handles of one value are equal at once, so
/// what is shared by many costs nothing to compare.
#[derive(Debug)]
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Shares the value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Eq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T: Ord> PartialOrd for Shared<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Ord> Ord for Shared<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_equal_also_where_they_are_not_shared() {
        let (one, other) = (Shared::new(7), Shared::new(7));
        assert_eq!((&one, one.cmp(&other)), (&other, Ordering::Equal));
        assert_eq!((&one, one.cmp(&one.clone())), (&one.clone(), Ordering::Equal));
        assert!(one < Shared::new(8));
    }
}
