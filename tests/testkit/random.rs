//! Random choices from a seed.

use smc_host::env::fixed::SeededEntropy;

pub(crate) struct Random(SeededEntropy);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds start far apart.
        Self(SeededEntropy::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// A number below `bound`, which is positive.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.draw() % u64::try_from(bound).unwrap()).unwrap()
    }

    /// True in one of `times` draws.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// `least` to `most` of them, perhaps with repetitions.
    pub(crate) fn some<'a>(&mut self, least: usize, most: usize, from: &[&'a str]) -> Vec<&'a str> {
        let count = least + self.below(most - least + 1);
        (0..count).map(|_| self.pick(from)).collect()
    }
}
