//! When the next change of the mesh is published: at once while the streams keep up, together with others
//! while they do not.
//!
//! Owns the decision. A publication wakes the streams that it concerns, which may be all, so a storm of
//! changes would spend the processor on waking them. What comes meanwhile waits at the source and is one
//! change later.

use std::time::Duration;

/// The longest that a publication waits for streams that are behind.
pub const MAX_WAIT: Duration = Duration::from_millis(100);

/// One in so many streams may be behind without being waited for: slow ones hold up no others.
const FEW: usize = 8;

/// How much longer the next publication waits, where `behind` of `streams` streams have not taken up the
/// latest one, which was `since` ago. Zero: it is due.
pub fn wait(streams: usize, behind: usize, since: Duration) -> Duration {
    if behind <= streams / FEW { Duration::ZERO } else { MAX_WAIT.saturating_sub(since) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_waits_while_many_streams_are_behind_and_never_long() {
        for (streams, behind, since, expected) in [
            (0, 0, 0, 0),
            (1, 0, 0, 0),
            (1, 1, 0, 100),
            (1, 1, 30, 70),
            (1, 1, 100, 0),
            (1, 1, 5000, 0),
            (5000, 5000, 0, 100),
            (5000, 626, 20, 80),
            (5000, 625, 0, 0),
            (5000, 0, 0, 0),
        ] {
            let waits = wait(streams, behind, Duration::from_millis(since));
            assert_eq!(
                waits,
                Duration::from_millis(expected),
                "{behind} of {streams} behind after {since} ms"
            );
        }
    }
}
