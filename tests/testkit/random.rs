//! Random choices from a seed.

use smc_host::env::fixed::SeededEntropy;

/// A source of choices. Equal seeds give equal choices.
pub struct Random(SeededEntropy);

impl Random {
    /// The choices of a seed.
    pub fn new(seed: u64) -> Self {
        // The generator counts up, so the choices of the next seed would be the same without the first one.
        // What it draws from neighbours is far apart.
        Self(SeededEntropy::new(SeededEntropy::new(seed).draw()))
    }

    /// A number below `bound`, which is positive.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.draw() % u64::try_from(bound).unwrap()).unwrap()
    }

    /// True in one of `times` draws.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of them.
    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// `least` to `most` of them, perhaps with repetitions.
    pub fn some<'a>(&mut self, least: usize, most: usize, from: &[&'a str]) -> Vec<&'a str> {
        let count = least + self.below(most - least + 1);
        (0..count).map(|_| self.pick(from)).collect()
    }
}

#[test]
fn the_choices_of_neighbouring_seeds_have_nothing_in_common() {
    let drawn = |seed| {
        let mut random = Random::new(seed);
        std::array::from_fn::<_, 50, _>(|_| random.below(1 << 40))
    };
    let (one, next) = (drawn(7), drawn(8));
    assert_eq!(one, drawn(7));
    assert!(one.iter().all(|choice| !next.contains(choice)));
}
