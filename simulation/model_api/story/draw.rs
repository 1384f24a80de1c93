//! What a seed draws.

use std::collections::BTreeMap;
use std::time::Duration;

use smc_types::object_ref::Kind;

use super::{Action, Back, Step, Story};
use crate::model_api::faults::{Command, Refusal};
use crate::model_api::history::OWN;
use crate::model_api::random::Random;
use crate::model_api::server::{Setup, Streaming};

/// The least time for which an API server and its etcd are away that are given another copy.
const RESTORE: Duration = Duration::from_secs(3);

/// What a story is about, beside changes. Few at once, so that each is met often, alone and with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theme {
    Namespaces,
    Restarts,
    Watches,
    Refusals,
    Outages,
    Lags,
    Rights,
    Definitions,
    Returns,
    Hostile,
}

const THEMES: [Theme; 10] = [
    Theme::Namespaces,
    Theme::Restarts,
    Theme::Watches,
    Theme::Refusals,
    Theme::Outages,
    Theme::Lags,
    Theme::Rights,
    Theme::Definitions,
    Theme::Returns,
    Theme::Hostile,
];

impl Story {
    /// The story of a seed.
    pub fn draw(seed: u64) -> Self {
        let random = Random::new(seed);
        let namespaces = match random.below(100) {
            0..30 => 1,
            30..75 => 3,
            75..97 => u16::try_from(random.between(4, 12)).unwrap_or(4),
            _ => u16::try_from(random.between(50, 200)).unwrap_or(50),
        };
        let objects = if namespaces > 12 { 2 } else { u16::try_from(random.between(1, 8)).unwrap_or(1) };
        let setup = setup(&random, namespaces);
        let mut themes = Vec::new();
        for _ in 0..random.between(0, 3) {
            themes.push(*random.one(&THEMES));
        }
        let steps = random.between(2, 18);
        let mut steps: Vec<Step> = (0..steps).map(|_| step(&random, &themes, namespaces)).collect();
        steps.push(Step { wait: Duration::ZERO, action: Action::Quiet });
        let prelude = if random.percent(70) { 0 } else { random.index(3.min(steps.len())) };
        let consumer_pause = if random.percent(80) { 0 } else { random.below(100) };
        Self { seed, setup, namespaces, objects, consumer_pause, prelude, steps }
    }
}

fn setup(random: &Random, namespaces: u16) -> Setup {
    let streaming = match random.below(100) {
        0..72 => Streaming::Served,
        72..84 => Streaming::Refused(400),
        84..96 => Streaming::Refused(422),
        _ => Streaming::Ignored,
    };
    let mut delays = BTreeMap::new();
    let mut lags = BTreeMap::new();
    if random.percent(50) {
        let longest = *random.one(&[5, 20, 100, 1000]);
        for kind in Kind::ALL {
            delays.insert(*kind, random.below(longest));
        }
    }
    if random.percent(50) {
        let longest = *random.one(&[5, 20, 100, 1000, 2500]);
        for kind in Kind::ALL {
            lags.insert(*kind, random.below(longest));
        }
    }
    Setup {
        http2: random.percent(70),
        streaming,
        bookmarks: random.percent(80),
        progress: random.percent(70),
        cached: random.percent(70),
        page: if random.percent(70) { 500 } else { usize::from(namespaces / 4).max(random.index(3) + 1) },
        delays,
        lags,
        cut: *random.one(&[0, 0, 10, 40]),
        pause: if namespaces > 12 { random.below(3) } else { *random.one(&[0, 0, 3, 20]) },
        expires_in_stream: random.percent(50),
        warming: if random.percent(60) { 0 } else { random.below(1200) },
        warming_status: *random.one(&[404, 429, 503]),
    }
}

fn step(random: &Random, themes: &[Theme], namespaces: u16) -> Step {
    let wait = match random.below(100) {
        0..40 => random.below(30),
        40..70 => random.between(30, 1000),
        70..92 => random.between(1000, 8000),
        _ => random.between(8000, 40_000),
    };
    let changes = themes.is_empty() || random.percent(45);
    let action = if changes {
        Action::Changes { count: *random.one(&[1, 1, 2, 5]), seed: random.draw() }
    } else if random.percent(8) {
        Action::Quiet
    } else if random.percent(5) {
        Action::Compact
    } else {
        of_theme(random, *random.one(themes), namespaces)
    };
    Step { wait: Duration::from_millis(wait), action }
}

fn of_theme(random: &Random, theme: Theme, namespaces: u16) -> Action {
    let namespace = || u16::try_from(random.between(1, u64::from(namespaces))).unwrap_or(1);
    let or_own = |namespace| if random.percent(15) { OWN } else { namespace };
    let kind = || *random.one(Kind::ALL);
    match theme {
        Theme::Namespaces => match random.below(5) {
            0 | 1 => Action::Enter(or_own(namespace())),
            2 | 3 => Action::Leave(or_own(namespace())),
            _ => Action::Delete(namespace()),
        },
        Theme::Restarts => Action::Restart {
            kill: random.percent(70),
            keeps_directory: random.percent(70),
            pause: Duration::from_millis(*random.one(&[0, 10, 1000, 20_000])),
        },
        Theme::Watches => Action::Watches(kind(), command(random)),
        Theme::Refusals => {
            let kind = random.percent(80).then(kind);
            if random.percent(60) {
                Action::RefuseNext(kind, refusal(random), u8::try_from(random.between(1, 3)).unwrap_or(1))
            } else {
                Action::Refuse(kind, refusal(random), span(random))
            }
        }
        Theme::Outages => match random.below(10) {
            0..4 => Action::Away(span(random)),
            4 | 5 => Action::Frozen(span(random)),
            6..9 => Action::Hang(span(random)),
            _ => Action::Lose,
        },
        Theme::Lags => {
            let by = Duration::from_millis(*random.one(&[50, 500, 5000, 60_000]));
            Action::Lag { kind: kind(), by, span: span(random) }
        }
        Theme::Rights => Action::Forbid(kind(), span(random)),
        Theme::Definitions => {
            let custom: Vec<Kind> = Kind::ALL.iter().copied().filter(|kind| kind.spec().custom).collect();
            Action::Undefine(*random.one(&custom), span(random))
        }
        Theme::Returns => {
            let how = match random.below(4) {
                0 | 1 => Back::Away(span(random).max(RESTORE), u8::try_from(random.below(12)).unwrap_or(0)),
                2 => Back::Telling,
                _ => Back::Silent,
            };
            Action::GoBack { changes: u8::try_from(random.between(1, 8)).unwrap_or(1), how }
        }
        Theme::Hostile => Action::Hostile { seed: random.draw() },
    }
}

fn command(random: &Random) -> Command {
    match random.below(12) {
        0..3 => Command::Close,
        3..6 => Command::Cut { abruptly: random.percent(60) },
        6..8 => Command::Error(*random.one(&[410, 410, 500, 504])),
        8..10 => Command::Repeat(u8::try_from(random.between(1, 5)).unwrap_or(1)),
        _ => {
            let span = if random.percent(80) { Some(span(random)) } else { None };
            Command::Silence { span, ends: random.percent(50) }
        }
    }
}

fn refusal(random: &Random) -> Refusal {
    let status = *random.one(&[429, 429, 500, 503, 410, 504, 401]);
    let asks = matches!(status, 429 | 503) && random.percent(60);
    Refusal { status, retry_after: asks.then(|| u8::try_from(random.between(1, 4)).unwrap_or(1)) }
}

fn span(random: &Random) -> Duration {
    Duration::from_millis(match random.below(100) {
        0..30 => random.between(10, 1000),
        30..70 => random.between(1000, 10_000),
        70..92 => random.between(10_000, 40_000),
        _ => random.between(80_000, 120_000),
    })
}
