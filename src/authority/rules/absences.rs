//! For how long things have been missing at every look.
//!
//! Owns the count that the rules share by which something goes after it was missing for a while. A single
//! look may err: a source loses sight of what still runs.

use std::collections::BTreeMap;
use std::time::Duration;

use smc_types::time::Timestamp;

/// The count. After a restart it begins again.
#[derive(Debug, Clone)]
pub(super) struct Absences<K> {
    period: Duration,
    /// The time of the latest look; `None` before the first one, and after a blind one.
    looked_at: Option<Timestamp>,
    absent_for: BTreeMap<K, Duration>,
}

impl<K: Ord> Absences<K> {
    /// For looks that come `period` apart.
    pub(super) fn new(period: Duration) -> Self {
        Self { period, looked_at: None, absent_for: BTreeMap::new() }
    }

    /// Counts one look, which found these missing. Returns for how long each has been, from zero on. What is
    /// seen once is counted from zero again.
    ///
    /// At most two periods count between two looks: a jump of the clock or a suspended process says nothing
    /// about what is missing.
    pub(super) fn look(
        &mut self,
        missing: impl IntoIterator<Item = K>,
        now: Timestamp,
    ) -> impl Iterator<Item = (&K, Duration)> {
        let passed = self.looked_at.map_or(Duration::ZERO, |last| now.since(last)).min(2 * self.period);
        self.looked_at = Some(now);
        let before = std::mem::take(&mut self.absent_for);
        let counted = |key: K| {
            let absence = before.get(&key).map_or(Duration::ZERO, |absence| absence.saturating_add(passed));
            (key, absence)
        };
        self.absent_for = missing.into_iter().map(counted).collect();
        self.absent_for.iter().map(|(key, absence)| (key, *absence))
    }

    /// Notes that nothing was visible: the time until the next look does not count.
    pub(super) fn blind(&mut self) {
        self.looked_at = None;
    }
}
