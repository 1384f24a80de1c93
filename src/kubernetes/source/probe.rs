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

/// An answer.
#[derive(Debug)]
struct Head {
    kind: Kind,
    /// What the reader of the kind had come to before the request.
    known: Version,
    /// The version of the kind's list.
    version: Version,
}

/// The highest versions that the API server has named of kinds, since an order to list.
#[derive(Debug, Default)]
pub(super) struct Heads {
    epoch: u64,
    versions: BTreeMap<Kind, Version>,
}

impl Heads {
    /// Takes note of an answer. Returns whether the API server had come further with the kind.
    ///
    /// The version of a list is that of the whole API server. Where no kind has changed that a reader knows
    /// of, it shows a return all the same; the API server's own watches may be beyond the older state.
    fn went_back(&mut self, epoch: u64, answer: &Head) -> bool {
        if std::mem::replace(&mut self.epoch, epoch) != epoch {
            self.versions.clear();
        }
        let head = self.versions.entry(answer.kind).or_insert(answer.version);
        let before = answer.known.max(*head);
        *head = answer.version.max(*head);
        answer.version.is_before(before)
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
    /// which no reader knows, or whose kind is not served any more. One of the two answers is enough.
    async fn ask(&mut self) -> Result<Option<(Kind, u64, Change)>, Failure> {
        // What is known before the request is asked, the answer cannot lack.
        let Position { epoch, mut furthest } = self.position.borrow().clone();
        // One kind is asked for once: two answers may come in any order.
        let known = furthest.iter().position(|(kind, _)| *kind == Kind::Namespace);
        let known = known.map_or(Version::NONE, |at| furthest.remove(at).1);
        let (furthest, namespaces) =
            tokio::join!(self.head_of_furthest(furthest), self.head(Kind::Namespace, known, NAMESPACES));
        let mut answered = false;
        for head in [&namespaces, &furthest].into_iter().flatten().flatten() {
            answered = true;
            if self.heads.went_back(epoch, head) {
                return Ok(Some((head.kind, epoch, Change::WentBack(head.version))));
            }
        }
        match namespaces.and(furthest) {
            Err(failure) if !answered || failure.is_unreachable() => Err(failure),
            _ => Ok(None),
        }
    }

    /// The version of the first of these kinds that may be read, if one of the first few may.
    async fn head_of_furthest(&self, furthest: Vec<(Kind, Version)>) -> Result<Option<Head>, Failure> {
        let mut refused = None;
        for (kind, known) in furthest.into_iter().take(KINDS) {
            let place = self.places.borrow().get(&kind).cloned();
            let Some(Place::Served(resource)) = place else { continue };
            match self.head(kind, known, &resource.path()).await {
                Err(failure @ Failure::Refused { .. }) => {
                    debug!(%kind, %failure, "a version cannot be asked for");
                    refused = Some(failure);
                }
                head => return head,
            }
        }
        refused.map_or(Ok(None), Err)
    }

    async fn head(&self, kind: Kind, known: Version, path: &str) -> Result<Option<Head>, Failure> {
        let version = Version::new(&self.reader.head_version(path).await?);
        Ok(Some(Head { kind, known, version }))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use futures_util::stream::{self, StreamExt};
    use smc_types::ids::MeshNamespace;

    use super::*;
    use crate::api::{Answer, ApiServer, Unreachable};
    use crate::source::resources::{Served, choose};

    /// What an API server says of the namespaces and of the pods: a version, a status, or nothing.
    #[derive(Debug, Clone, Copy)]
    struct Says([Result<u64, Option<u16>>; 2]);

    impl ApiServer for Says {
        fn get(&self, path: &str) -> BoxFuture<'static, Result<Answer, Unreachable>> {
            let of = usize::from(path.contains("/pods"));
            let (status, body) = match self.0[of] {
                Ok(version) => {
                    (200, format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#))
                }
                Err(Some(status)) => (status, String::new()),
                Err(None) => return async { Err(Unreachable("no connection".into())) }.boxed(),
            };
            let body = stream::once(async { Ok(body.into()) }).boxed();
            async move { Ok(Answer { status, retry_after: None, date: None, body }) }.boxed()
        }
    }

    /// A probe that knows of namespaces and pods up to version 8.
    fn probe(says: Says) -> Probe {
        let served = Served::from([("v1".to_owned(), [("Pod".to_owned(), "pods".to_owned())].into())]);
        let pods = choose(Kind::Pod, &served, &MeshNamespace::default()).unwrap();
        let furthest = [Kind::Pod, Kind::Namespace].map(|kind| (kind, Version::new("8"))).to_vec();
        Probe {
            reader: Reader(std::sync::Arc::new(says)),
            places: watch::channel([(Kind::Pod, Place::Served(pods))].into()).1,
            position: watch::channel(Position { epoch: 0, furthest }).1,
            changes: mpsc::channel(1).0,
            reachable: watch::channel(true).0,
            uptime: watch::channel(Uptime::default()).0,
            env: Env::system(),
            heads: Heads::default(),
        }
    }

    #[tokio::test]
    async fn one_answer_is_enough_to_notice_a_return() {
        let (refused, nothing) = (Err(Some(403)), Err(None));
        for (sentence, says, expected) in [
            ("both are as far", [Ok(9), Ok(8)], "as far"),
            ("the namespaces are behind", [Ok(7), Ok(8)], "Namespace"),
            ("the pods are behind", [Ok(9), Ok(7)], "Pod"),
            ("the namespaces may not be read", [refused, Ok(9)], "as far"),
            ("and the pods are behind", [refused, Ok(7)], "Pod"),
            ("the pods may not be read", [Ok(9), refused], "as far"),
            ("and the namespaces are behind", [Ok(7), refused], "Namespace"),
            ("nothing may be read", [refused, refused], "unknown"),
            ("one is not answered", [Ok(9), nothing], "unknown"),
            ("and the other is behind", [Ok(7), nothing], "Namespace"),
            ("the other one is not answered", [nothing, Ok(7)], "Pod"),
        ] {
            let answer = match probe(Says(says)).ask().await {
                Ok(Some((kind, ..))) => kind.to_string(),
                Ok(None) => "as far".to_owned(),
                Err(_) => "unknown".to_owned(),
            };
            assert_eq!(answer, expected, "{sentence}");
        }
    }

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
            let head = Head { kind, known: Version::new(known), version: Version::new(version) };
            assert_eq!(heads.went_back(epoch, &head), expected, "{sentence}");
        }
    }
}
