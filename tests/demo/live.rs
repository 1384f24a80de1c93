//! Owns the attended demo: a live table, a split that shifts during the run, and a rolling upgrade of all
//! replicas, until Ctrl-C.

use std::collections::VecDeque;
use std::io::Write;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, sleep_until};
use tokio_util::sync::CancellationToken;

use super::DemoError;
use super::manifests::{WEIGHTS_AFTER, WEIGHTS_BEFORE, Weights};
use super::screen::Screen;
use super::stage::{Stage, Upgrade};
use super::steps::{Shift, count, parse_line, proxy_config};
use super::table::{Picture, clock, draw};
use super::tally::Tally;
use super::upgrade::SidecarReport;

/// Window of shares and rates in seconds: enough requests for a steady share, few enough to see it
/// move.
const RECENT_SECONDS: usize = 10;

/// Seconds between two pictures on an output that is not a terminal.
const SECONDS_PER_PRINT: u64 = 5;

/// After this long a shift is reported as late; the demo still waits for it.
const LATE: Duration = Duration::from_secs(30);

/// Shows the mesh until `end`, and shifts the split `shift_after` the first response of a
/// bookstore.
pub(super) async fn run(
    stage: &mut impl Stage,
    shift_after: Duration,
    end: &CancellationToken,
    mut screen: Screen<impl Write>,
) -> Result<(), DemoError> {
    let mut view = LiveView::new(shift_after);
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut upgrade: Option<Upgrade> = None;
    loop {
        let poll = view.shift.as_ref().map(Shift::next_poll);
        tokio::select! {
            // Cancellation first, however fast lines arrive; then the clock.
            biased;
            () = end.cancelled() => return Ok(()),
            _ = ticks.tick() => {
                view.tick(stage).await?;
                if screen.is_terminal() || view.seconds.is_multiple_of(SECONDS_PER_PRINT) {
                    screen.show(&view.picture()).map_err(|source| DemoError::Output { source })?;
                }
            }
            () = wait_until(poll) => {
                if view.poll(stage).await? {
                    upgrade = Some(stage.upgrade());
                }
            }
            upgraded = wait_for(&mut upgrade) => {
                upgrade = None;
                view.upgraded(&upgraded?);
            }
            line = stage.next_line() => {
                let parsed = parse_line(&line?.ok_or(DemoError::Ended)?);
                count(&mut view.total, &parsed);
                count(&mut view.second, &parsed);
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

async fn wait_for(upgrade: &mut Option<Upgrade>) -> <Upgrade as Future>::Output {
    match upgrade {
        Some(upgrade) => upgrade.await,
        None => std::future::pending().await,
    }
}

struct LiveView {
    started: Instant,
    seconds: u64,
    shift_after: Duration,
    flowing_since: Option<Instant>,
    weights: Weights,
    shift: Option<Shift>,
    late: bool,
    total: Tally,
    /// The current second.
    second: Tally,
    /// The last whole seconds, at most [`RECENT_SECONDS`].
    recent: VecDeque<Tally>,
    /// At most five, and one for each sidecar: traffic flows, shifted, late, acknowledged, upgraded.
    events: Vec<String>,
}

impl LiveView {
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

    /// Returns whether the shift has just been acknowledged.
    async fn poll(&mut self, stage: &mut impl Stage) -> Result<bool, DemoError> {
        let Some(shift) = &mut self.shift else { return Ok(false) };
        let acknowledged = shift.poll(stage).await?;
        let elapsed = shift.elapsed();
        if acknowledged {
            self.shift = None;
            let ms = elapsed.as_millis();
            self.event(&format!("bookbuyer's sidecar acknowledged it within {ms} ms"));
            self.event("the replicas of the controller are upgraded, one after another");
        } else if elapsed > LATE && !self.late {
            self.late = true;
            self.event("bookbuyer's sidecar has still not acknowledged it");
        }
        Ok(acknowledged)
    }

    fn upgraded(&mut self, sidecars: &[SidecarReport]) {
        self.event("all replicas are upgraded; Ctrl-C ends the demo");
        self.events.extend(sidecars.iter().map(noticed));
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

/// What a sidecar noticed of the upgrade, on a line.
fn noticed(report: &SidecarReport) -> String {
    let SidecarReport { sidecar, gaps_ms, resent } = report;
    let gaps: Vec<_> = gaps_ms.iter().map(|gap| format!("{gap} ms")).collect();
    let gaps = if gaps.is_empty() { "never seen".to_owned() } else { format!("for {}", gaps.join(", ")) };
    format!("      {sidecar}: without a stream {gaps}; {resent} resources sent again")
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::scripted_stage::{ENFORCING, Script, Scripted};
    use super::*;

    #[derive(Debug, Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Output {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn the_table_and_the_shift_are_shown_until_the_end() {
        let output = Output::default();
        let end = CancellationToken::new();
        let mut stage = Scripted::new(Script { works_from: 0, ..ENFORCING });
        let screen = Screen::new(output.clone(), true).unwrap();
        let watcher = async {
            let deadline = Instant::now() + Duration::from_mins(1);
            while !output.text().contains("all replicas are upgraded") && Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            end.cancel();
        };
        let (shown, ()) = tokio::join!(run(&mut stage, Duration::from_millis(500), &end, screen), watcher);
        shown.unwrap();
        let text = output.text();
        for expected in [
            "split bookstore → v1 50 : v2 50",
            "✓ bookbuyer     bookstore      GET /books-bought",
            "✓ bookthief     bookstore      GET /buy/*",
            "traffic flows; the split shifts to 10/90",
            "split bookstore → v1 10 : v2 90",
            "wrote the split 10/90",
            "acknowledged it within",
            "a/pod: without a stream for 20 ms, 40 ms; 0 resources sent again",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(text.starts_with("\x1b[2J") && text.ends_with("\x1b[?7h"), "the terminal is restored");
    }
}
