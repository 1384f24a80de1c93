//! Owns the unattended demo: settle, observe, kill the leader, shift, observe,
//! upgrade, judge. Every phase
//! has a time limit; exceeding it is a verdict, not an error, and the report shows what is missing.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::DemoError;
use super::convergence::ProxyConfig;
use super::expectation::{EXPECTATIONS, expectation_of};
use super::manifests::{WEIGHTS_AFTER, WEIGHTS_BEFORE, Weights};
use super::report::{Report, Timings};
use super::stage::Stage;
use super::steps::{ParsedLine, Shift, count, parse_line, proxy_config};
use super::tally::{Edge, Observed, Tally};
use super::upgrade::SidecarReport;
use super::verdict::{Observations, Window};
use crate::bookstore::record::Record;

/// Expected results of each kind of call, without an unexpected one in between, before the mesh
/// counts as settled.
const SETTLED_CALLS: u64 = 3;

/// Limits of the phases.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Time limit until every kind of call has its expected result.
    pub settle_max: Duration,
    /// Requests to the bookstore per window.
    pub window_requests: u64,
    /// Time limit of a window.
    pub window_max: Duration,
    /// Time limit for the acknowledgement of the shifted split.
    pub converge_max: Duration,
    /// Time limit of the rolling upgrade.
    pub upgrade_max: Duration,
    /// Wait after the acknowledgement, for requests in flight and their journal lines.
    pub grace: Duration,
}

/// Runs all phases and reports.
pub async fn run(stage: &mut impl Stage, plan: &Plan) -> Result<Report, DemoError> {
    let mut observer = Observer::default();
    let mut timings = Timings::default();
    let mut windows = Vec::new();
    let mut leader_killed = None;
    let mut upgraded = None;

    let started = Instant::now();
    observer.settle(stage, started + plan.settle_max).await?;
    timings.settled_ms = observer.settled.is_some().then(|| elapsed_ms(started));

    if observer.settled.is_some() {
        windows.push(observer.window(stage, plan, WEIGHTS_BEFORE, &mut timings).await?);
        let before = proxy_config(stage).await?;
        // One controller replica is dead from here on; no call may fail because of it.
        leader_killed = Some(stage.kill_leader().await?);
        timings.converged_ms = observer.shift(stage, plan, before).await?;
        if timings.converged_ms.is_some() {
            windows.push(observer.window(stage, plan, WEIGHTS_AFTER, &mut timings).await?);
            let started = Instant::now();
            upgraded = observer.upgrade(stage, plan).await?;
            timings.upgraded_ms = upgraded.is_some().then(|| elapsed_ms(started));
        }
    }

    let observations = Observations {
        since_start: observer.since_start,
        settled: observer.settled,
        converged: timings.converged_ms.is_some(),
        windows,
        upgraded,
    };
    Ok(Report::new(&observations, timings, leader_killed))
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The counts so far, by period.
#[derive(Debug, Default)]
struct Observer {
    since_start: Tally,
    settled: Option<Tally>,
    window: Tally,
}

impl Observer {
    /// Reads one line. `None` once `until` has passed.
    async fn next_line(
        &mut self,
        stage: &mut impl Stage,
        until: Instant,
    ) -> Result<Option<ParsedLine>, DemoError> {
        // `timeout_at` prefers a ready line to a passed deadline, so a flood of lines would outlast
        // it.
        if Instant::now() >= until {
            return Ok(None);
        }
        let Ok(line) = timeout_at(until, stage.next_line()).await else { return Ok(None) };
        let parsed = parse_line(&line?.ok_or(DemoError::Ended)?);
        count(&mut self.since_start, &parsed);
        if let Some(settled) = &mut self.settled {
            count(settled, &parsed);
        }
        count(&mut self.window, &parsed);
        Ok(Some(parsed))
    }

    /// Waits until each kind of call had its expected result [`SETTLED_CALLS`] times since the last
    /// unexpected one.
    async fn settle(&mut self, stage: &mut impl Stage, until: Instant) -> Result<(), DemoError> {
        let mut streak = Tally::default();
        while let Some(parsed) = self.next_line(stage, until).await? {
            if let ParsedLine::Record(Record::Call(call)) = &parsed {
                let accepted = expectation_of(&Edge::of(call))
                    .is_some_and(|expectation| expectation.expected.accepts(&Observed::of(call)));
                if !accepted {
                    streak = Tally::default();
                    continue;
                }
            }
            count(&mut streak, &parsed);
            if is_settled(&streak) {
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
            if self.next_line(stage, started + plan.window_max).await?.is_none() {
                break;
            }
        }
        timings.windows_ms.push(elapsed_ms(started));
        let tally = std::mem::take(&mut self.window);
        Ok(Window { weights, tally, requests_min: plan.window_requests })
    }

    /// Shifts the split, and keeps reading meanwhile. Returns the duration in milliseconds; `None`
    /// if it exceeded the limit.
    async fn shift(
        &mut self,
        stage: &mut impl Stage,
        plan: &Plan,
        before: ProxyConfig,
    ) -> Result<Option<u64>, DemoError> {
        let mut shift = Shift::start(stage, WEIGHTS_AFTER, before).await?;
        let mut converged = None;
        while converged.is_none() && shift.elapsed() < plan.converge_max {
            while self.next_line(stage, shift.next_poll()).await?.is_some() {}
            if shift.poll(stage).await? {
                converged = Some(u64::try_from(shift.elapsed().as_millis()).unwrap_or(u64::MAX));
            }
        }
        self.wait(stage, plan).await?;
        Ok(converged)
    }

    /// Upgrades all replicas, and keeps reading meanwhile. Returns `None` if it exceeded the limit.
    async fn upgrade(
        &mut self,
        stage: &mut impl Stage,
        plan: &Plan,
    ) -> Result<Option<Vec<SidecarReport>>, DemoError> {
        let until = Instant::now() + plan.upgrade_max;
        let mut upgrade = stage.upgrade();
        let upgraded = loop {
            tokio::select! {
                upgraded = &mut upgrade => break upgraded?,
                line = self.next_line(stage, until) => if line?.is_none() { return Ok(None) },
            }
        };
        self.wait(stage, plan).await?;
        Ok(Some(upgraded))
    }

    /// Reads what is still to come of a phase.
    async fn wait(&mut self, stage: &mut impl Stage, plan: &Plan) -> Result<(), DemoError> {
        let grace = Instant::now() + plan.grace;
        while self.next_line(stage, grace).await?.is_some() {}
        Ok(())
    }
}

fn is_settled(streak: &Tally) -> bool {
    EXPECTATIONS.iter().all(|expectation| {
        streak
            .calls
            .iter()
            .filter(|(edge, _)| expectation.is_about(edge))
            .any(|(_, calls)| calls.count() >= SETTLED_CALLS)
    })
}

#[cfg(test)]
mod tests;
