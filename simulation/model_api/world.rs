//! One story as it runs: a server, a source that reads it, and a judge.
//!
//! Owns the steps' effects, the time that the source has for what it must do, and the runs of the source.

mod actions;
mod bounds;
mod source;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use smc_server::source::Batch;
use smc_types::object_ref::Kind;
use tokio::runtime::{Builder, RngSeed};
use tokio::time::{Instant, sleep, sleep_until};

use self::source::Running;
use super::clock::StoryClock;
use super::history::{Form, OWN};
use super::judge::{Judge, Rule, Violation};
use super::random::Random;
use super::server::Server;
use super::story::{Action, Story};

/// How often a quiet world is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// For how long what is published must stay what the server has.
const STAYS: Duration = Duration::from_secs(2);

/// A story that went wrong.
#[derive(Debug, Clone)]
pub struct Failed {
    /// What did not hold.
    pub violation: Violation,
    /// What was seen until then.
    pub trace: Vec<String>,
}

/// What a story came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The batches of all runs.
    pub batches: u64,
    /// The requests of all runs.
    pub requests: u64,
    /// The simulated time.
    pub took: Duration,
}

/// Tells a story. The same story goes the same way. With `traced`, it says what it sees.
///
/// # Panics
///
/// If no runtime can be made.
pub fn tell(story: &Story, traced: bool) -> Result<Outcome, Failed> {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .rng_seed(RngSeed::from_bytes(&story.seed.to_be_bytes()))
        .build()
        .expect("a runtime without input and output");
    runtime.block_on(async {
        let mut world = World::new(story, traced);
        let told = world.tell().await;
        world.outcome.took = world.clock.elapsed();
        match told {
            Ok(()) => Ok(world.outcome),
            Err(violation) => Err(Failed { violation, trace: world.trace }),
        }
    })
}

struct World<'a> {
    story: &'a Story,
    clock: StoryClock,
    server: Server,
    judge: Judge,
    running: Option<Running>,
    runs: u64,
    directory: Option<tempfile::TempDir>,
    bounds: bounds::Bounds,
    /// When the source must say that it is stale, if this run goes on until then.
    stale_at: BTreeMap<Instant, Stale>,
    traced: bool,
    trace: Vec<String>,
    outcome: Outcome,
}

/// Why the source must say that it is stale.
#[derive(Debug, Clone, Copy)]
struct Stale {
    run: u64,
    /// The kind that may not be read; `None` if nothing can be.
    kind: Option<Kind>,
}

impl<'a> World<'a> {
    fn new(story: &'a Story, traced: bool) -> Self {
        let clock = StoryClock::begin();
        let server = Server::new(story.setup.clone(), story.seed, clock);
        let judge = Judge::new(server.clone(), story.namespaces);
        Self {
            story,
            clock,
            server,
            judge,
            running: None,
            runs: 0,
            directory: None,
            bounds: bounds::Bounds::new(&story.setup, story.namespaces),
            stale_at: BTreeMap::new(),
            traced,
            trace: Vec::new(),
            outcome: Outcome::default(),
        }
    }

    fn note(&mut self, what: impl fmt::Display) {
        if self.traced {
            self.trace.push(format!("{:>8} ms  {what}", self.clock.elapsed().as_millis()));
        }
    }

    async fn tell(&mut self) -> Result<(), Violation> {
        self.fill();
        let story = self.story;
        let (prelude, rest) = story.steps.split_at(story.prelude.min(story.steps.len()));
        for step in prelude {
            self.run_for(step.wait).await?;
            self.act(&step.action).await?;
        }
        self.start(true);
        for step in rest {
            self.run_for(step.wait).await?;
            self.act(&step.action).await?;
        }
        self.end(true).await
    }

    /// What the server holds at first.
    fn fill(&mut self) {
        let random = Random::new(self.story.seed ^ 0xF111);
        if random.percent(80) {
            self.server.put(Kind::MeshConfig, (OWN, 0), Form::Good);
        }
        for namespace in 1..=self.story.namespaces {
            let form = if random.percent(70) { Form::Good } else { Form::Outside };
            self.server.put(Kind::Namespace, (namespace, 0), form);
            for _ in 0..self.story.objects {
                self.change_in(namespace, &random);
            }
        }
    }

    async fn run_for(&mut self, span: Duration) -> Result<(), Violation> {
        self.run_until(Instant::now() + span).await
    }

    /// Judges what the source says until then.
    async fn run_until(&mut self, end: Instant) -> Result<(), Violation> {
        loop {
            self.settle()?;
            let wake = self.next_due().map_or(end, |due| due.min(end));
            let Some(running) = &mut self.running else {
                sleep_until(wake).await;
                if Instant::now() >= end {
                    return Ok(());
                }
                continue;
            };
            tokio::select! {
                biased;
                batch = running.batches.recv() => match batch {
                    Some(batch) => {
                        self.take(batch)?;
                        if self.story.consumer_pause > 0 {
                            sleep(Duration::from_millis(self.story.consumer_pause)).await;
                        }
                    }
                    None => return Err(Violation::new(Rule::Lives, "the source ended")),
                },
                () = sleep_until(wake) => {
                    if Instant::now() >= end {
                        return self.settle();
                    }
                }
            }
        }
    }

    fn take(&mut self, batch: Batch) -> Result<(), Violation> {
        self.outcome.batches += 1;
        if self.traced {
            let events: Vec<String> = batch.events.iter().map(source::describe).collect();
            let problems: Vec<String> = batch.problems.iter().map(ToString::to_string).collect();
            self.note(format!("published: {}; problems: {}", events.join(" "), problems.join("; ")));
        }
        let first = self.judge.batches() == 0;
        self.judge.take(batch)?;
        if first { self.check_start() } else { Ok(()) }
    }

    /// When something is due beside steps and batches.
    fn next_due(&self) -> Option<Instant> {
        let stale = self.stale_at.keys().next().copied();
        let back = self.awaits_return().then(|| self.return_due());
        [stale, back].into_iter().flatten().min()
    }

    /// Whether there is a source that must notice a return to an older state.
    fn awaits_return(&self) -> bool {
        self.running.is_some() && self.judge.awaits_return()
    }

    /// When the source must have noticed a return to an older state.
    fn return_due(&self) -> Instant {
        let healthy = self.server.state().faults.healthy_at();
        self.bounds.return_due(healthy, self.judge.began())
    }

    /// Checks what is due.
    fn settle(&mut self) -> Result<(), Violation> {
        let now = Instant::now();
        // The next requests that are refused may come long after the step that says so.
        if let Some(refused) = self.server.state().faults.refused() {
            self.bounds.rough(refused);
        }
        while let Some(entry) = self.stale_at.first_entry()
            && *entry.key() <= now
        {
            let stale = entry.remove();
            self.check_stale(stale)?;
        }
        if self.awaits_return() && self.return_due() <= now {
            self.note("the return to an older state must have been noticed");
            self.judge.settle_return()?;
        }
        Ok(())
    }

    /// Waits until the source says what the server has, which it must in time.
    async fn quiet(&mut self) -> Result<(), Violation> {
        if self.running.is_none() {
            return Ok(());
        }
        let healthy = self.server.state().faults.healthy_at();
        if let Some(healthy) = healthy {
            self.run_until(healthy.max(Instant::now())).await?;
        }
        self.server.state().faults.forget_next();
        let (now, began) = (Instant::now(), self.judge.began());
        let deadline = self.bounds.quiet_until(now, began);
        self.note(format!("quiet; {} s for the source", (deadline - now).as_secs()));
        let mut current_since = None;
        loop {
            let now = Instant::now();
            match self.is_current() {
                // What is on its way may still be of before.
                Err(violation) if now >= deadline => return Err(violation),
                Err(_) => current_since = None,
                Ok(()) if now >= *current_since.get_or_insert(now) + STAYS => break,
                Ok(()) => {}
            }
            self.run_until(now + LOOK).await?;
        }
        self.note("what is published is what there is");
        self.check_requests()?;
        self.bounds.settled();
        Ok(())
    }

    fn is_current(&self) -> Result<(), Violation> {
        self.judge.is_current()?;
        if let Some(running) = &self.running {
            self.judge.has_custom(&running.custom.borrow())?;
        }
        let problems = self.judge.other_problems();
        let stale = self.running.as_ref().is_some_and(|running| running.metric("smc_source_stale") != 0);
        if stale || !problems.is_empty() {
            let seen = format!("stale {stale}, problems: {problems}");
            return Err(Violation::new(Rule::SaysFresh, seen));
        }
        Ok(())
    }

    fn check_stale(&mut self, stale: Stale) -> Result<(), Violation> {
        let Some(running) = &self.running else { return Ok(()) };
        if stale.run != self.runs || self.judge.batches() == 0 {
            return Ok(());
        }
        if let Some(kind) = stale.kind {
            let state = self.server.state();
            // There are none of a kind whose definition seems to be gone.
            if !state.has_served(kind, Instant::now()) {
                return Ok(());
            }
            let since = state.tally.forbidden.get(&kind);
            if since.is_none_or(|since| since.elapsed() < Duration::from_secs(5)) {
                return Ok(());
            }
        }
        if running.metric("smc_source_stale") == 1 && !self.judge.other_problems().is_empty() {
            return Ok(());
        }
        Err(Violation::new(Rule::SaysStale, format!("{stale:?}: neither a problem nor the metric says so")))
    }
}

/// The actions of a story, one a line.
pub fn describe(story: &Story) -> Vec<String> {
    let mut lines = vec![
        format!("{:?}", story.setup),
        format!(
            "{} namespaces, {} objects each, prelude {}, a batch is taken every {} ms",
            story.namespaces, story.objects, story.prelude, story.consumer_pause
        ),
    ];
    for (index, step) in story.steps.iter().enumerate() {
        let action: &Action = &step.action;
        lines.push(format!("{index:>3}. after {:?}: {action:?}", step.wait));
    }
    lines
}
