//! Waiting for what is to come, by looking again.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long a test waits, on tokio's clock.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// After this long without success the test fails. Generous, for a busy machine.
    pub limit: Duration,
    /// The pause after a look that found nothing.
    pub pause: Duration,
}

/// What a look returns.
pub trait Look {
    /// What it looked for.
    type Found;

    /// What it found, or the reason to look again.
    fn found(self) -> Result<Self::Found, String>;
}

impl Look for bool {
    type Found = ();

    fn found(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("it does not hold".to_owned()) }
    }
}

impl<T> Look for Option<T> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.ok_or_else(|| "there is none".to_owned())
    }
}

impl<T, E: Display> Look for Result<T, E> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.map_err(|error| error.to_string())
    }
}

/// Looks until it finds something.
///
/// # Panics
///
/// If nothing is found within the limit; the last reason is in the message. A look that hangs is not cut off.
pub async fn eventually<L: Look>(
    patience: Patience,
    what: &str,
    mut look: impl AsyncFnMut() -> L,
) -> L::Found {
    let started = Instant::now();
    loop {
        match look().await.found() {
            Ok(found) => return found,
            Err(last) if started.elapsed() >= patience.limit => {
                panic!("{what}: not within {:?}; last: {last}", patience.limit)
            }
            Err(_) => sleep(patience.pause).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { limit: Duration::from_secs(1), pause: Duration::from_millis(10) };

    #[tokio::test(start_paused = true)]
    async fn a_look_is_repeated_until_it_finds_something() {
        let mut looks = 0;
        let found = eventually(PATIENCE, "a third look", async || {
            looks += 1;
            (looks == 3).then_some("found")
        })
        .await;
        assert_eq!((found, looks), ("found", 3));
        eventually(PATIENCE, "what holds", async || true).await;
        let found: Result<_, String> = Ok(7);
        assert_eq!(eventually(PATIENCE, "a value", async || found.clone()).await, 7);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "a value: not within 1s; last: not yet")]
    async fn a_test_that_waits_in_vain_fails_with_the_last_reason() {
        eventually(PATIENCE, "a value", async || Err::<(), _>("not yet")).await;
    }
}
