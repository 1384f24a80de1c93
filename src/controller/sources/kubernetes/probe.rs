//! Asks the API server again and again which version it is at.
//!
//! Owns the requests and when they are made. An answer shows that the API server can be reached, and its
//! version whether it went back to an older state, also while all watches stay open and say nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use smc_host::env::Env;
use smc_types::object_ref::Kind;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::failure::Failure;
use super::reader::Reader;
use super::resources::Place;
use super::store::{Change, Version};
use super::uptime::Uptime;

/// How often to ask: what goes back is to be noticed within two seconds. Two requests for one object each,
/// which the API server answers from memory in half a millisecond.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How long an answer may take. Longer, and the API server counts as one that does not answer.
const LIMIT: Duration = Duration::from_secs(5);

/// How many kinds are asked for until one may be read.
const KINDS: usize = 2;

/// Every replica may list the namespaces.
const NAMESPACES: &str = "/api/v1/namespaces";

/// How far the API server has come, as far as is known: the order to list that readers follow, and the
/// version of each kind, the highest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Position {
    /// The number of the order.
    pub(super) epoch: u64,
    /// The kinds and their versions.
    pub(super) furthest: Vec<(Kind, Version)>,
}

/// Asks the API server which version it is at.
pub(super) struct Probe {
    /// Asks the API server.
    pub(super) reader: Reader,
    /// Where each kind is.
    pub(super) places: watch::Receiver<BTreeMap<Kind, Place>>,
    /// How far the API server has come.
    pub(super) position: watch::Receiver<Position>,
    /// Takes that it went back.
    pub(super) changes: mpsc::Sender<(Kind, u64, Change)>,
    /// Takes whether the API server answers.
    pub(super) reachable: watch::Sender<bool>,
    /// Takes since when it has answered without a gap, and has not gone back.
    pub(super) uptime: watch::Sender<Uptime>,
    /// Draws the jitter of waits.
    pub(super) env: Env,
    /// What it was answered.
    pub(super) heads: Heads,
}

/// The highest versions that the API server has named of kinds, since an order to list.
#[derive(Debug, Default)]
pub(super) struct Heads {
    epoch: u64,
    versions: BTreeMap<Kind, Version>,
}

impl Heads {
    /// Takes note of the version of a kind's list. `known` is what its reader has come to. Returns whether
    /// the API server had come further with the kind.
    ///
    /// The version of a list is that of the whole API server. Where no kind has changed that a reader knows
    /// of, it shows a return all the same; the API server's own watches may be beyond the older state.
    fn went_back(&mut self, epoch: u64, kind: Kind, known: Version, version: Version) -> bool {
        if std::mem::replace(&mut self.epoch, epoch) != epoch {
            self.versions.clear();
        }
        let head = self.versions.entry(kind).or_insert(version);
        let before = known.max(*head);
        *head = version.max(*head);
        version.is_before(before)
    }
}

impl Probe {
    /// Asks for ever, until the receiver of changes is gone.
    pub(super) async fn run(mut self) {
        // A connection that has just broken is no sign that the next one fails.
        let mut failed = false;
        while !self.changes.is_closed() {
            let asked = Instant::now();
            let answer = timeout(LIMIT, self.ask()).await.unwrap_or(Err(Failure::NoAnswer));
            let answers = !answer.as_ref().is_err_and(Failure::is_unreachable);
            let reachable = answers || !failed;
            failed = !answers;
            self.reachable.send_if_modified(|known| std::mem::replace(known, reachable) != reachable);
            match answer {
                Ok(Some(went_back)) => {
                    self.uptime.send_replace(Uptime::default());
                    if self.changes.send(went_back).await.is_err() {
                        return;
                    }
                }
                Ok(None) => self.uptime.send_modify(|uptime| uptime.answered(asked, Instant::now())),
                Err(failure) => debug!(%failure, "the API server does not say which version it is at"),
            }
            // Replicas that began together do not ask together.
            let spread = self.env.random_u64().unwrap_or_default() % 200;
            sleep(ASK_EVERY.saturating_sub(Duration::from_millis(spread))).await;
        }
    }

    /// Asks for the version of the kind with which the API server has come furthest, and of the namespaces.
    /// Returns what follows if the API server is not as far any more.
    ///
    /// The kind is the one whose reader has come to the highest version; if it may not be read, the next one
    /// has to do. The version of the namespaces' list is that of the whole API server, and shows a return of
    /// which no reader knows, or whose kind is not served any more.
    async fn ask(&mut self) -> Result<Option<(Kind, u64, Change)>, Failure> {
        // What is known before the request is asked, the answer cannot lack.
        let Position { epoch, mut furthest } = self.position.borrow().clone();
        // One kind is asked for once: two answers may come in any order.
        let known = furthest.iter().position(|(kind, _)| *kind == Kind::Namespace);
        let known = known.map_or(Version::NONE, |at| furthest.remove(at).1);
        let (furthest, namespaces) =
            tokio::join!(self.head_of_furthest(furthest), self.reader.head_version(NAMESPACES));
        let namespaces = (Kind::Namespace, known, Version::new(&namespaces?));
        let mut answers = furthest?.into_iter().chain([namespaces]);
        Ok(answers.find_map(|(kind, known, version)| {
            let went_back = self.heads.went_back(epoch, kind, known, version);
            went_back.then_some((kind, epoch, Change::WentBack(version)))
        }))
    }

    /// The version of the first of these kinds that may be read.
    async fn head_of_furthest(
        &self,
        furthest: Vec<(Kind, Version)>,
    ) -> Result<Option<(Kind, Version, Version)>, Failure> {
        for (kind, known) in furthest.into_iter().take(KINDS) {
            let place = self.places.borrow().get(&kind).cloned();
            let Some(Place::Served(resource)) = place else { continue };
            match self.reader.head_version(&resource.path()).await {
                Err(failure @ Failure::Refused { .. }) => {
                    debug!(%kind, %failure, "a version cannot be asked for");
                }
                version => return Ok(Some((kind, known, Version::new(&version?)))),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_server_went_back_if_it_had_come_further_with_the_kind() {
        let (pod, service) = (Kind::Pod, Kind::Service);
        let mut heads = Heads::default();
        for (sentence, epoch, kind, known, version, expected) in [
            ("it is where the reader is", 0, pod, "5", "5", false),
            ("it goes on, and the kind does not change", 0, pod, "5", "9", false),
            ("another kind is compared with itself", 0, service, "3", "7", false),
            ("it is behind what it said, and not behind the reader", 0, pod, "5", "8", true),
            ("it is behind the reader", 0, service, "8", "7", true),
            ("everything is listed again", 1, pod, "", "8", false),
            ("and it goes back once more", 1, pod, "", "6", true),
            ("a version that is no number proves nothing", 1, pod, "9", "x", false),
        ] {
            let (known, version) = (Version::new(known), Version::new(version));
            assert_eq!(heads.went_back(epoch, kind, known, version), expected, "{sentence}");
        }
    }
}
