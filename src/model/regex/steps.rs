//! What the computation of a complement may cost.
//!
//! Owns the unit: a step is about as long as a visit of one edge, some nanoseconds, and is counted instead
//! of timed. So the same expressions fit into a budget on every replica, on a busy machine, too.

/// Why a complement is not written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is larger than any expression's may be.
    TooLarge,
    /// The budget is used up.
    OverBudget,
}

/// A budget of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    left: u64,
}

impl Steps {
    /// A budget of `most` steps.
    pub fn new(most: u64) -> Self {
        Self { left: most }
    }

    /// The steps that are left.
    pub fn left(self) -> u64 {
        self.left
    }

    /// Takes steps, before they are made. Without enough of them none is left.
    pub(super) fn take(&mut self, steps: u64) -> Result<(), Refusal> {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or(Refusal::OverBudget)
    }

    /// As [`Self::take`], for what a length or a product of two stands for.
    pub(super) fn take_all(&mut self, number: usize, each: usize) -> Result<(), Refusal> {
        self.take(u64::try_from(number.saturating_mul(each)).unwrap_or(u64::MAX))
    }
}
