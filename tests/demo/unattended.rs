//! The demo without a person: settle, watch, kill the leader, shift, watch, judge. Every phase has a time limit, and running into one is
//! a verdict, not an error: the report then says what is missing.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::DemoError;
use super::convergence::ProxyConfig;
use super::course::{Heard, Shift, count, hear, proxy_config};
use super::expectation::{EXPECTATIONS, expectation_of};
use super::manifests::{WEIGHTS_AFTER, WEIGHTS_BEFORE, Weights};
use super::report::{Report, Timings};
use super::stage::Stage;
use super::tally::{Edge, Observed, Tally};
use super::verdict::{Observations, Window};
use crate::bookstore::record::Record;

/// Calls of each kind that must come out right, with none going wrong in between, before the mesh counts as settled.
const SETTLED_CALLS: u64 = 3;

/// Limits of the phases.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// For every kind of call to come out right.
    pub settle_max: Duration,
    /// Requests to the bookstore per window.
    pub window_requests: u64,
    /// For a window to have them.
    pub window_max: Duration,
    /// For the shifted split to be acknowledged.
    pub converge_max: Duration,
    /// After that: for requests that were already on their way, and for their lines to reach us.
    pub grace: Duration,
}

/// Runs the whole course and reports.
pub async fn run(stage: &mut impl Stage, plan: &Plan) -> Result<Report, DemoError> {
    let mut watch = Watch::default();
    let mut timings = Timings::default();
    let mut windows = Vec::new();
    let mut leader_killed = None;

    let started = Instant::now();
    watch.settle(stage, started + plan.settle_max).await?;
    timings.settled_ms = watch.settled.is_some().then(|| elapsed_ms(started));

    if watch.settled.is_some() {
        windows.push(watch.window(stage, plan, WEIGHTS_BEFORE, &mut timings).await?);
        let before = proxy_config(stage).await?;
        // From here on one of the replicas is gone, and nobody should notice.
        leader_killed = Some(stage.kill_leader().await?);
        timings.converged_ms = watch.shift(stage, plan, before).await?;
        if timings.converged_ms.is_some() {
            windows.push(watch.window(stage, plan, WEIGHTS_AFTER, &mut timings).await?);
        }
    }

    let observations = Observations {
        ever: watch.ever,
        settled: watch.settled,
        converged: timings.converged_ms.is_some(),
        windows,
    };
    Ok(Report::new(&observations, timings, leader_killed))
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Everything heard so far, over the stretches of time that matter.
#[derive(Debug, Default)]
struct Watch {
    ever: Tally,
    settled: Option<Tally>,
    window: Tally,
}

impl Watch {
    /// Hears one line. None if `until` came first.
    async fn hear(&mut self, stage: &mut impl Stage, until: Instant) -> Result<Option<Heard>, DemoError> {
        // A line that is ready wins over a deadline that has passed, so a flood would outlast any deadline.
        if Instant::now() >= until {
            return Ok(None);
        }
        let Ok(line) = timeout_at(until, stage.next_line()).await else { return Ok(None) };
        let heard = hear(&line?.ok_or(DemoError::Ended)?);
        count(&mut self.ever, &heard);
        if let Some(settled) = &mut self.settled {
            count(settled, &heard);
        }
        count(&mut self.window, &heard);
        Ok(Some(heard))
    }

    /// Waits until each kind of call came out right [`SETTLED_CALLS`] times since the last one that did not.
    async fn settle(&mut self, stage: &mut impl Stage, until: Instant) -> Result<(), DemoError> {
        let mut quiet = Tally::default();
        while let Some(heard) = self.hear(stage, until).await? {
            if let Heard::Record(Record::Call(call)) = &heard {
                let accepted = expectation_of(&Edge::of(call))
                    .is_some_and(|expectation| expectation.expected.accepts(&Observed::of(call)));
                if !accepted {
                    quiet = Tally::default();
                    continue;
                }
            }
            count(&mut quiet, &heard);
            if is_settled(&quiet) {
                self.settled = Some(Tally::default());
                break;
            }
        }
        Ok(())
    }

    async fn window(
        &mut self,
        stage: &mut impl Stage,
        plan: &Plan,
        weights: Weights,
        timings: &mut Timings,
    ) -> Result<Window, DemoError> {
        let started = Instant::now();
        self.window = Tally::default();
        while self.window.versions().values().sum::<u64>() < plan.window_requests {
            if self.hear(stage, started + plan.window_max).await?.is_none() {
                break;
            }
        }
        timings.windows_ms.push(elapsed_ms(started));
        let tally = std::mem::take(&mut self.window);
        Ok(Window { weights, tally, requests_min: plan.window_requests })
    }

    /// Shifts the split, and listens on meanwhile. How long it took in milliseconds; None if it took too long.
    async fn shift(
        &mut self,
        stage: &mut impl Stage,
        plan: &Plan,
        before: ProxyConfig,
    ) -> Result<Option<u64>, DemoError> {
        let mut shift = Shift::start(stage, WEIGHTS_AFTER, before).await?;
        let mut converged = None;
        while converged.is_none() && shift.elapsed() < plan.converge_max {
            while self.hear(stage, shift.next_poll()).await?.is_some() {}
            if shift.poll(stage).await? {
                converged = Some(u64::try_from(shift.elapsed().as_millis()).unwrap_or(u64::MAX));
            }
        }
        let grace = Instant::now() + plan.grace;
        while self.hear(stage, grace).await?.is_some() {}
        Ok(converged)
    }
}

fn is_settled(quiet: &Tally) -> bool {
    EXPECTATIONS.iter().all(|expectation| {
        quiet
            .calls
            .iter()
            .filter(|(edge, _)| expectation.is_about(edge))
            .any(|(_, calls)| calls.count() >= SETTLED_CALLS)
    })
}

#[cfg(test)]
#[path = "unattended_tests.rs"]
mod tests;
