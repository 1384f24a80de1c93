//! What a follower asks for, and in which order, of an API server whose answers are written down.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use smc_host::sync::lock;
use smc_types::ids::MeshNamespace;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::*;
use crate::api::{Answer, ApiServer, Unreachable};
use crate::source::failure::Trouble;
use crate::source::resources::{Served, choose};

/// How a body ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// It stays open, and says nothing more.
    Open,
    /// Its last line comes again and again.
    Repeated,
    /// It ends.
    Ended,
    /// Its connection breaks.
    Broken,
}

/// An answer: how long it stays, its status and its lines.
type Said = (u16, &'static [&'static str], Duration, End);

/// An API server that gives these answers in turn, and then none.
struct Script {
    answers: Mutex<VecDeque<Said>>,
    requests: Mutex<Vec<String>>,
}

impl ApiServer for Script {
    fn get(&self, path: &str) -> BoxFuture<'static, Result<Answer, Unreachable>> {
        lock(&self.requests).push(path.split("&timeoutSeconds").next().unwrap_or_default().to_owned());
        let Some((status, lines, stays, end)) = lock(&self.answers).pop_front() else {
            return std::future::pending().boxed();
        };
        let last = Bytes::from(format!("{}\n", lines.last().unwrap_or(&"")));
        let lines = stream::iter(lines.iter().map(|line| Ok(Bytes::from(format!("{line}\n")))));
        let end: BoxStream<'static, Result<Bytes, Unreachable>> = match end {
            End::Open => stream::pending().boxed(),
            End::Repeated => stream::repeat(last).then(move |line| sleep(stays).map(|()| Ok(line))).boxed(),
            End::Ended => stream::once(sleep(stays)).filter_map(async |()| None).boxed(),
            End::Broken => {
                stream::once(sleep(stays)).map(|()| Err(Unreachable("the connection broke".into()))).boxed()
            }
        };
        let body = lines.chain(end).boxed();
        async move { Ok(Answer { status, retry_after: None, date: None, body }) }.boxed()
    }
}

const LIST: &str = "/api/v1/serviceaccounts?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&\
                    resourceVersionMatch=NotOlderThan";
const ACCOUNT: &str =
    r#"{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"shop","resourceVersion":"5"}}}"#;
const OUTSIDE: &str =
    r#"{"type":"ADDED","object":{"metadata":{"name":"b","namespace":"out","resourceVersion":"6"}}}"#;
const END_AT_7: &str = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
const AT_9: &str = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#;
const AT_8: &str = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"8"}}}"#;
const HEAD_AT_9: &str = r#"{"metadata":{"resourceVersion":"9"},"items":[]}"#;
const HEAD_AT_8: &str = r#"{"metadata":{"resourceVersion":"8"},"items":[]}"#;
const GONE: &str = r#"{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}"#;
const PAGE: &str = r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","namespace":"shop","resourceVersion":"5"}}]}"#;

/// Longer than any watch is asked for.
const LONG: Duration = Duration::from_secs(WATCH_SECONDS + WATCH_SPREAD);

struct World {
    script: Arc<Script>,
    scope: watch::Sender<Option<Arc<Scope>>>,
    epoch: watch::Sender<u64>,
    changes: mpsc::Receiver<(Kind, u64, Change)>,
    uptime: watch::Sender<Uptime>,
    places: watch::Sender<BTreeMap<Kind, Place>>,
    /// It has to live as long as the follower does.
    _reachable: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

fn scope(namespaces: &[(&str, u64)]) -> Arc<Scope> {
    Arc::new(namespaces.iter().map(|(name, entry)| ((*name).to_owned(), *entry)).collect())
}

impl World {
    /// A follower of ServiceAccounts.
    fn of(answers: &[Said]) -> Self {
        let kind = Kind::ServiceAccount;
        let names = [("ServiceAccount".to_owned(), "serviceaccounts".to_owned())];
        let served = Served::from([("v1".to_owned(), BTreeMap::from(names))]);
        let resource = choose(kind, &served, &MeshNamespace::default()).unwrap();
        let (places_sender, places) = watch::channel(BTreeMap::from([(kind, Place::Served(resource))]));
        let (reachable_sender, reachable) = watch::channel(true);
        let ((scope, scope_receiver), (epoch, epoch_receiver)) = (watch::channel(None), watch::channel(0));
        let ((sender, changes), (uptime, uptime_receiver)) =
            (mpsc::channel(100), watch::channel(Uptime::default()));
        let answers = Mutex::new(answers.iter().copied().collect());
        let script = Arc::new(Script { answers, requests: Mutex::default() });
        let shared = Shared {
            reader: Reader(Arc::clone(&script) as Arc<dyn ApiServer>),
            places,
            look_again: Arc::default(),
            mesh_namespace: "own".into(),
            scope: scope_receiver,
            epoch: epoch_receiver,
            reachable,
            uptime: uptime_receiver,
            streams: Arc::new(AtomicBool::new(true)),
            changes: sender,
            env: Env::system(),
            metrics: SourceMetrics::default(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(Follower::new(kind, shared).run());
        Self {
            script,
            scope,
            epoch,
            changes,
            uptime,
            places: places_sender,
            _reachable: reachable_sender,
            tasks,
        }
    }

    /// From now on the API server answers without a gap.
    fn answers(&mut self) {
        let uptime = self.uptime.clone();
        self.tasks.spawn(async move {
            loop {
                uptime.send_modify(|uptime| uptime.answered(Instant::now(), Instant::now()));
                sleep(Duration::from_secs(1)).await;
            }
        });
    }

    /// What is learnt, apart from troubles, until the API server has given all its answers, and has
    /// been asked in vain for a while.
    async fn learnt(&mut self) -> Vec<String> {
        let (mut learnt, end) = (Vec::new(), Instant::now() + 3 * LONG);
        while let Ok(Some((_, epoch, change))) = timeout_at(end, self.changes.recv()).await {
            learnt.push(match change {
                Change::Trouble(_) => continue,
                Change::ListBegun(_) => "list".to_owned(),
                Change::Listed(of) => format!("listed {}", of.reference),
                Change::ListEnded(ended, scope) => {
                    format!("ended {} {scope:?} at {epoch}", ended.version.number())
                }
                Change::NamespaceEnded(ended, of, entry) => {
                    format!("{of}/{entry} {}", ended.version.number())
                }
                Change::Applied(of) => format!("applied {}", of.reference),
                Change::Passed(version) => format!("passed {}", version.number()),
                other => format!("{other:?}"),
            });
        }
        learnt
    }

    /// The first requests.
    fn requests(&self, count: usize) -> Vec<String> {
        lock(&self.script.requests).iter().take(count).cloned().collect()
    }
}

const IN_ORDER: Said = (200, &[ACCOUNT, END_AT_7, AT_9], LONG, End::Ended);

#[tokio::test(start_paused = true)]
async fn a_list_is_asked_for_at_once_and_read_when_the_namespaces_are_known() {
    let mut world = World::of(&[(200, &[ACCOUNT, OUTSIDE, END_AT_7, OUTSIDE], LONG, End::Open)]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.requests(9), [LIST]);
    assert!(world.changes.try_recv().is_err(), "nothing is known of which namespaces count");
    world.scope.send_replace(Some(scope(&[("shop", 1)])));
    let expected = ["list", "listed ServiceAccount shop/a", "ended 7 {\"shop\": 1} at 0", "passed 6"];
    assert_eq!(world.learnt().await, expected);
}

/// An object of three MiB that no reader of values could read, in this namespace.
fn hostile(namespace: &str) -> &'static str {
    let deep = "[".repeat(3 << 19) + &"]".repeat(3 << 19);
    let object = format!(
        r#"{{"metadata":{{"labels":{deep},"name":"b","namespace":"{namespace}","resourceVersion":"8"}},"secrets":"\ud800"}}"#
    );
    // A script is written down for as long as the test runs.
    Box::leak(object.into_boxed_str())
}

#[tokio::test(start_paused = true)]
async fn what_is_outside_of_the_mesh_is_passed_over_by_its_name_alone() {
    let leaked = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let event = |kind, of| leaked(format!(r#"{{"type":"{kind}","object":{}}}"#, hostile(of)));
    let page = |of| leaked(format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#, hostile(of)));
    let lines = |of| -> &'static [&'static str] {
        let after = ["ADDED", "MODIFIED", "DELETED"].map(|kind| event(kind, of));
        Vec::leak([&[ACCOUNT, event("ADDED", of), event("DELETED", of), END_AT_7][..], &after].concat())
    };
    let (listed, gone) = ("listed ServiceAccount shop/a", "ended 7 {\"shop\": 1} at 0");
    let mut world = World::of(&[(200, lines("out"), LONG, End::Open)]);
    world.scope.send_replace(Some(scope(&[("shop", 1)])));
    assert_eq!(world.learnt().await, ["list", listed, gone, "passed 8", "passed 8", "passed 8"]);
    // The same in pages.
    let refused: Said = (400, &[], Duration::ZERO, End::Ended);
    let mut world = World::of(&[refused, (200, Vec::leak(vec![page("out")]), Duration::ZERO, End::Ended)]);
    world.scope.send_replace(Some(scope(&[("shop", 1)])));
    assert_eq!(world.learnt().await[..2], ["list", gone]);
    // Of the mesh, it is read, and a problem.
    let mut world = World::of(&[(200, lines("shop"), LONG, End::Open)]);
    world.scope.send_replace(Some(scope(&[("shop", 1)])));
    let b = "ServiceAccount shop/b";
    let learnt = world.learnt().await;
    assert_eq!(learnt[2], format!("listed {b}"), "{learnt:?}");
    assert!(learnt[3].starts_with("Unlisted"), "{learnt:?}");
    assert_eq!(learnt[5..7], vec![format!("applied {b}"); 2], "{learnt:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_only_where_nothing_else_has_happened() {
    let watch_at_9 = "/api/v1/serviceaccounts?watch=true&allowWatchBookmarks=true&resourceVersion=9";
    let head = "/api/v1/serviceaccounts?limit=1";
    let (early, long) = (Duration::from_secs(30), LONG);
    let at_9: Said = (200, &[HEAD_AT_9], Duration::ZERO, End::Ended);
    let says = |status| -> Said { (status, &[], Duration::ZERO, End::Ended) };
    for (ends, same, later, expected) in [
        // It ends when it was asked to, or early, or its connection breaks, and the API server is as far.
        (IN_ORDER, true, &[at_9][..], &[LIST, head, watch_at_9][..]),
        ((200, &[END_AT_7, AT_9][..], early, End::Ended), true, &[at_9], &[LIST, head, watch_at_9]),
        ((200, &[END_AT_7, AT_9], early, End::Broken), true, &[at_9], &[LIST, head, watch_at_9]),
        // The API server repeats itself.
        ((200, &[END_AT_7, AT_9, AT_8], early, End::Broken), true, &[at_9], &[LIST, head, watch_at_9]),
        // It did not answer for a while, and may be another one.
        (IN_ORDER, false, &[at_9], &[LIST, head, LIST]),
        ((200, &[END_AT_7, AT_9], early, End::Ended), false, &[at_9], &[LIST, head, LIST]),
        ((200, &[END_AT_7, AT_9], early, End::Broken), false, &[at_9], &[LIST, head, LIST]),
        // It went back.
        (IN_ORDER, true, &[(200, &[HEAD_AT_8], Duration::ZERO, End::Ended)], &[LIST, head, LIST]),
        // It asks to be left alone for a while, or refuses.
        (IN_ORDER, true, &[says(429), at_9], &[LIST, head, head, watch_at_9]),
        (IN_ORDER, true, &[says(503)], &[LIST, head, LIST]),
        (IN_ORDER, true, &[says(403)], &[LIST, head, LIST]),
        // Its version is forgotten, or something was not understood.
        ((200, &[END_AT_7, AT_9, GONE], long, End::Open), true, &[], &[LIST, LIST]),
        ((200, &[END_AT_7, "{"], long, End::Open), true, &[], &[LIST, LIST]),
        // The list itself is not whole.
        ((200, &[ACCOUNT], Duration::from_secs(5), End::Broken), true, &[], &[LIST, LIST]),
    ] {
        let mut world = World::of(&[&[ends], later].concat());
        if same {
            world.answers();
        }
        world.scope.send_replace(Some(scope(&[("shop", 1)])));
        world.learnt().await;
        assert_eq!(world.requests(expected.len()), expected, "{ends:?} {same} {later:?}");
    }
}

/// What older API servers send of a list that is to be streamed: a watch, which has no end of a list.
#[tokio::test(start_paused = true)]
async fn a_streamed_list_that_never_ends_is_read_in_pages() {
    let page = "/api/v1/serviceaccounts?limit=500";
    for (list, seconds) in [
        // Nothing more comes.
        ((200, &[ACCOUNT][..], LONG, End::Open), 21),
        // A bookmark that does not end the list.
        ((200, &[ACCOUNT, AT_9], LONG, End::Open), 1),
        // Objects change, again and again.
        ((200, &[ACCOUNT], Duration::from_secs(15), End::Repeated), 61),
    ] {
        let mut world = World::of(&[list, (200, &[PAGE], Duration::ZERO, End::Ended)]);
        world.scope.send_replace(Some(scope(&[("shop", 1)])));
        sleep(Duration::from_secs(seconds)).await;
        assert_eq!(world.requests(2), [LIST, page], "{list:?}");
        assert!(world.learnt().await.contains(&"ended 7 {\"shop\": 1} at 0".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_trouble_is_said_again_of_a_kind_that_was_missing_meanwhile() {
    let refused: Said = (403, &[], Duration::ZERO, End::Ended);
    let mut world = World::of(&[refused; 99]);
    let places = world.places.clone();
    let served = places.borrow().clone();
    for _ in 0..2 {
        let said = world.changes.recv().await.unwrap().2;
        assert!(matches!(said, Change::Trouble(Some(Trouble::Forbidden))), "{said:?}");
        places.send_replace(BTreeMap::from([(Kind::ServiceAccount, Place::Missing(BTreeSet::new()))]));
        let said = world.changes.recv().await.unwrap().2;
        assert!(matches!(said, Change::Missing(_)), "{said:?}");
        places.send_replace(served.clone());
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_whose_list_breaks_off_is_read_again() {
    let broken: Said = (200, &[], Duration::ZERO, End::Broken);
    let head: Said = (200, &[HEAD_AT_9], Duration::ZERO, End::Ended);
    let page: Said = (200, &[PAGE], Duration::ZERO, End::Ended);
    let mut world = World::of(&[(200, &[END_AT_7, AT_9], LONG, End::Open), broken, head, IN_ORDER, page]);
    world.answers();
    world.scope.send_replace(Some(scope(&[])));
    sleep(Duration::from_secs(1)).await;
    world.scope.send_replace(Some(scope(&[("shop", 3)])));
    let learnt = world.learnt().await;
    assert!(learnt.contains(&"shop/3 7".to_owned()), "{learnt:?}");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_read_as_it_was_when_the_watch_had_come_there() {
    let mut world =
        World::of(&[(200, &[END_AT_7, AT_9], LONG, End::Open), (200, &[PAGE], Duration::ZERO, End::Ended)]);
    world.scope.send_replace(Some(scope(&[])));
    sleep(Duration::from_secs(1)).await;
    world.scope.send_replace(Some(scope(&[("shop", 3)])));
    let expected =
        ["list", "ended 7 {} at 0", "passed 9", "list", "listed ServiceAccount shop/a", "shop/3 7"];
    assert_eq!(world.learnt().await, expected);
    let exact =
        "/api/v1/namespaces/shop/serviceaccounts?limit=500&resourceVersion=9&resourceVersionMatch=Exact";
    assert_eq!(world.requests(2), [LIST, exact]);
}

#[tokio::test(start_paused = true)]
async fn many_namespaces_that_enter_cost_one_list() {
    let list: Said = (200, &[END_AT_7], LONG, End::Open);
    let mut world = World::of(&[list, list]);
    world.scope.send_replace(Some(scope(&[])));
    sleep(Duration::from_secs(1)).await;
    world.scope.send_replace(Some(scope(&[("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)])));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.requests(9), [LIST, LIST]);
    assert!(world.learnt().await.len() > 2);
}

#[tokio::test(start_paused = true)]
async fn an_order_to_list_is_followed_at_once() {
    let list: Said = (200, &[END_AT_7], LONG, End::Open);
    let unended: Said = (200, &[ACCOUNT], LONG, End::Open);
    for first in [list, unended] {
        let mut world = World::of(&[first, list]);
        world.scope.send_replace(Some(scope(&[])));
        sleep(Duration::from_secs(15)).await;
        world.epoch.send_replace(1);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.requests(9), [LIST, LIST]);
        assert_eq!(world.learnt().await.last().unwrap(), "ended 7 {} at 1");
    }
}
