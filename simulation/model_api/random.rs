//! Draws from a seed.

use smc_host::env::fixed::SeededEntropy;

/// A sequence of draws. The same seed gives the same draws.
#[derive(Debug)]
pub struct Random(SeededEntropy);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(SeededEntropy::new(seed))
    }

    /// Any number.
    pub fn draw(&self) -> u64 {
        self.0.draw()
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&self, end: u64) -> u64 {
        self.draw().checked_rem(end).unwrap_or_default()
    }

    /// A number from `first` to `last`.
    pub fn between(&self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first) + 1)
    }

    /// True in so many of a hundred cases.
    pub fn percent(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these, which are not empty.
    pub fn one<'a, T>(&self, of: &'a [T]) -> &'a T {
        // Below the length, which fits.
        &of[usize::try_from(self.below(of.len() as u64)).unwrap_or_default()]
    }

    /// An index below `len`.
    pub fn index(&self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or_default()
    }
}
