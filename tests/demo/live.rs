//! The demo for a person: a table that moves, a split that shifts before their eyes, until Ctrl-C.

use std::collections::VecDeque;
use std::io::Write;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, sleep_until};
use tokio_util::sync::CancellationToken;

use super::DemoError;
use super::course::{Shift, count, hear, proxy_config};
use super::manifests::{WEIGHTS_AFTER, WEIGHTS_BEFORE, Weights};
use super::screen::Screen;
use super::stage::Stage;
use super::table::{Picture, clock, draw};
use super::tally::Tally;

/// Seconds over which shares and rates are taken: enough requests for a steady share, few enough to see it move.
const RECENT_SECONDS: usize = 10;

/// Seconds between two pictures where they do not replace one another.
const SECONDS_PER_PRINT: u64 = 5;

/// After this long a shift is said to be late; it is still waited for.
const LATE: Duration = Duration::from_secs(30);

/// Shows the mesh until `end`, and shifts the split `shift_after` the first answer of a bookstore.
pub(super) async fn run(
    stage: &mut impl Stage,
    shift_after: Duration,
    end: &CancellationToken,
    mut screen: Screen<impl Write>,
) -> Result<(), DemoError> {
    let mut show = Show::new(shift_after);
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let poll = show.shift.as_ref().map(Shift::next_poll);
        tokio::select! {
            // An end that is wanted comes first, however fast lines arrive; then the clock.
            biased;
            () = end.cancelled() => return Ok(()),
            _ = ticks.tick() => {
                show.tick(stage).await?;
                if screen.is_terminal() || show.seconds.is_multiple_of(SECONDS_PER_PRINT) {
                    screen.show(&show.picture()).map_err(|source| DemoError::Output { source })?;
                }
            }
            () = wait_until(poll) => show.poll(stage).await?,
            line = stage.next_line() => {
                let heard = hear(&line?.ok_or(DemoError::Ended)?);
                count(&mut show.total, &heard);
                count(&mut show.second, &heard);
            }
        }
    }
}

async fn wait_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

struct Show {
    started: Instant,
    seconds: u64,
    shift_after: Duration,
    flowing_since: Option<Instant>,
    weights: Weights,
    shift: Option<Shift>,
    late: bool,
    total: Tally,
    /// The second that is being counted.
    second: Tally,
    /// The last whole seconds, at most [`RECENT_SECONDS`].
    recent: VecDeque<Tally>,
    /// At most four: started flowing, shifted, late, acknowledged.
    events: Vec<String>,
}

impl Show {
    fn new(shift_after: Duration) -> Self {
        Self {
            started: Instant::now(),
            seconds: 0,
            shift_after,
            flowing_since: None,
            weights: WEIGHTS_BEFORE,
            shift: None,
            late: false,
            total: Tally::default(),
            second: Tally::default(),
            recent: VecDeque::new(),
            events: Vec::new(),
        }
    }

    async fn tick(&mut self, stage: &mut impl Stage) -> Result<(), DemoError> {
        self.seconds += 1;
        self.recent.push_back(std::mem::take(&mut self.second));
        if self.recent.len() > RECENT_SECONDS {
            self.recent.pop_front();
        }
        if self.flowing_since.is_none() && !self.total.versions().is_empty() {
            self.flowing_since = Some(Instant::now());
            let after = self.shift_after.as_secs();
            self.event(&format!("traffic flows; the split shifts to {WEIGHTS_AFTER} in {after} s"));
        }
        let due = self.flowing_since.is_some_and(|since| since.elapsed() >= self.shift_after);
        if due && self.weights == WEIGHTS_BEFORE {
            let before = proxy_config(stage).await?;
            self.shift = Some(Shift::start(stage, WEIGHTS_AFTER, before).await?);
            self.weights = WEIGHTS_AFTER;
            self.event(&format!("wrote the split {WEIGHTS_AFTER}"));
        }
        Ok(())
    }

    async fn poll(&mut self, stage: &mut impl Stage) -> Result<(), DemoError> {
        let Some(shift) = &mut self.shift else { return Ok(()) };
        let acknowledged = shift.poll(stage).await?;
        let elapsed = shift.elapsed();
        if acknowledged {
            self.shift = None;
            let ms = elapsed.as_millis();
            self.event(&format!("bookbuyer's sidecar acknowledged it within {ms} ms; Ctrl-C ends the demo"));
        } else if elapsed > LATE && !self.late {
            self.late = true;
            self.event("bookbuyer's sidecar has still not acknowledged it");
        }
        Ok(())
    }

    fn event(&mut self, text: &str) {
        self.events.push(format!("{} {text}", clock(self.started.elapsed())));
    }

    fn picture(&self) -> Vec<String> {
        let mut recent = Tally::default();
        for second in &self.recent {
            recent.merge(second);
        }
        draw(&Picture {
            total: &self.total,
            recent: &recent,
            recent_seconds: u64::try_from(self.recent.len()).unwrap_or(1).max(1),
            elapsed: self.started.elapsed(),
            weights: self.weights,
            events: &self.events,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::scripted_stage::{LAWFUL, Script, Scripted};
    use super::*;

    #[derive(Debug, Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Paper {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_person_sees_the_table_and_the_shift_until_they_end_it() {
        let paper = Paper::default();
        let end = CancellationToken::new();
        let mut stage = Scripted::new(Script { works_from: 0, ..LAWFUL });
        let screen = Screen::new(paper.clone(), true).unwrap();
        let watcher = async {
            let patience = Instant::now() + Duration::from_mins(1);
            while !paper.text().contains("acknowledged it within") && Instant::now() < patience {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            end.cancel();
        };
        let (shown, ()) = tokio::join!(run(&mut stage, Duration::from_millis(500), &end, screen), watcher);
        shown.unwrap();
        let text = paper.text();
        for expected in [
            "split bookstore → v1 50 : v2 50",
            "✓ bookbuyer     bookstore      GET /books-bought",
            "✓ bookthief     bookstore      GET /buy/*",
            "traffic flows; the split shifts to 10/90",
            "split bookstore → v1 10 : v2 90",
            "wrote the split 10/90",
            "acknowledged it within",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(text.starts_with("\x1b[2J") && text.ends_with("\x1b[?7h"), "the terminal is restored");
    }
}
