//! Requests and their answers.
//!
//! Owns discovery, lists and refusals. A watch is in `watching`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use http::header::{CONTENT_TYPE, DATE, RETRY_AFTER};
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use tokio::time::{Instant, sleep, sleep_until};

use super::faults::{Fault, Refusal};
use super::history::{Held, Key, Objects};
use super::random::Random;
use super::resources::{self, Resource};
use super::routes::{Place, Route, parameters, route};
use super::server::{Asked, Server, Streaming};
use super::watching::{self, From};

/// A body, and an error where it breaks.
pub(super) type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, io::Error>>>;

/// How long a list waits for the watch cache before it is read from the store.
const CACHE_WAIT: Duration = Duration::from_secs(3);

/// How long a watch lasts that does not say so.
const WATCH_SECONDS: u64 = 1800;

/// An answer that is no refusal.
pub(super) enum Answer {
    Whole(String),
    Events(watching::Watch),
}

/// A refusal, as the API says it.
pub(super) struct Refused {
    pub(super) status: u16,
    reason: &'static str,
    message: String,
    retry_after: Option<u8>,
}

impl Refused {
    fn new(status: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into(), retry_after: None }
    }

    /// The version is not in the history any more.
    pub(super) fn expired(version: u64, compacted: u64) -> Self {
        let message = format!("too old resource version: {version} ({compacted})");
        Self::new(410, "Expired", message)
    }

    fn too_large(version: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {version}, current: {current}");
        Self { retry_after: Some(1), ..Self::new(504, "Timeout", message) }
    }

    fn not_found() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// One that the story wants.
    pub(super) fn drawn(refusal: Refusal) -> Self {
        let Refusal { status, retry_after } = refusal;
        let reason = match status {
            401 => "Unauthorized",
            410 => "Expired",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        };
        Self { retry_after, ..Self::new(status, reason, "drawn") }
    }

    /// The object that says it.
    pub(super) fn object(&self) -> String {
        let Self { status, reason, message, .. } = self;
        format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"{reason}","code":{status}}}"#
        )
    }
}

pub(super) async fn answer(server: Server, request: Request<Incoming>) -> Response<Body> {
    let answer = find(&server, request.uri().path(), request.uri().query().unwrap_or_default()).await;
    let mut response =
        Response::builder().header(DATE, server.clock().date()).header(CONTENT_TYPE, "application/json");
    let body = match answer {
        Ok(Answer::Whole(body)) => pieces(&server, body),
        Ok(Answer::Events(watch)) => watch.body(),
        Err(refused) => {
            response = response.status(refused.status);
            if let Some(seconds) = refused.retry_after {
                response = response.header(RETRY_AFTER, u64::from(seconds));
            }
            pieces(&server, refused.object())
        }
    };
    let body = body.map_ok(Frame::data).boxed();
    response.body(StreamBody::new(body)).expect("valid headers")
}

async fn find(server: &Server, path: &str, query: &str) -> Result<Answer, Refused> {
    let setup = server.setup();
    let route = route(server, path);
    let kind = if let Route::Objects(resource, _) = route { Some(resource.kind) } else { None };
    let parameters = parameters(query);
    let asked = count(server, route, &parameters);
    let usual = kind.and_then(|kind| setup.delays.get(&kind)).copied().unwrap_or_default();
    sleep(Duration::from_millis(usual + server.random().below(4))).await;
    loop {
        let ends = server.state().faults.ends(Fault::Hang, Instant::now());
        let Some(ends) = ends else { break };
        sleep_until(ends).await;
    }
    if let Some(refusal) = refusal(server, route, asked) {
        let mut state = server.state();
        match kind {
            Some(kind) => state.tally.excuse(kind),
            None => state.tally.looks_excused += 1,
        }
        return Err(refusal);
    }
    match route {
        Route::Groups => Ok(Answer::Whole(groups(server))),
        Route::Group(version) => group(server, version).map(Answer::Whole),
        Route::Health => Ok(Answer::Whole("ok".to_owned())),
        Route::Nothing => Err(Refused::not_found()),
        Route::Objects(resource, place) => objects(server, resource, place, &parameters).await,
    }
}

/// Counts a request, and says what it asks for.
fn count(server: &Server, route: Route<'_>, parameters: &BTreeMap<String, String>) -> Asked {
    let mut state = server.state();
    let Route::Objects(resource, _) = route else {
        state.tally.others += 1;
        return Asked::Probe;
    };
    let has = |name: &str| parameters.contains_key(name);
    let asked = if has("watch") && !has("sendInitialEvents") {
        Asked::Watch
    } else if has("continue") {
        Asked::Page
    } else if parameters.get("limit").is_some_and(|limit| limit == "1") {
        Asked::Probe
    } else {
        Asked::List
    };
    state.tally.count(resource.kind, asked);
    asked
}

/// Why a request is refused, if it is.
fn refusal(server: &Server, route: Route<'_>, asked: Asked) -> Option<Refused> {
    let now = Instant::now();
    let mut state = server.state();
    let Route::Objects(Resource { kind, .. }, _) = route else {
        return state.faults.refusal(None, now).map(Refused::drawn);
    };
    if state.faults.holds(Fault::Forbidden(*kind), now) {
        if asked != Asked::Probe {
            state.tally.forbidden.entry(*kind).or_insert(now);
        }
        return Some(Refused::new(403, "Forbidden", "no"));
    }
    if let Some(refusal) = state.faults.refusal(Some(*kind), now) {
        return Some(Refused::drawn(refusal));
    }
    if !state.serves(*kind, now) {
        if state.faults.holds(Fault::Gone(*kind), now) || server.setup().warming_status == 404 {
            return Some(Refused::not_found());
        }
        let refusal = Refusal { status: server.setup().warming_status, retry_after: Some(1) };
        return Some(Refused::drawn(refusal));
    }
    if asked != Asked::Probe {
        state.tally.forbidden.remove(kind);
    }
    None
}

fn groups(server: &Server) -> String {
    let (now, state) = (Instant::now(), server.state());
    let served = resources::all().iter().filter(|resource| state.serves(resource.kind, now));
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for resource in served.filter(|resource| !resources::group(resource.api_version).is_empty()) {
        let versions = groups.entry(resources::group(resource.api_version)).or_default();
        if !versions.contains(&resource.api_version) {
            versions.push(resource.api_version);
        }
    }
    let one = |(name, versions): (&str, Vec<&str>)| {
        let versions: Vec<String> =
            versions.into_iter().map(|version| format!(r#"{{"groupVersion":"{version}"}}"#)).collect();
        format!(r#"{{"name":"{name}","versions":[{}]}}"#, versions.join(","))
    };
    let groups: Vec<String> = groups.into_iter().map(one).collect();
    format!(r#"{{"kind":"APIGroupList","apiVersion":"v1","groups":[{}]}}"#, groups.join(","))
}

fn group(server: &Server, version: &str) -> Result<String, Refused> {
    let (now, state) = (Instant::now(), server.state());
    let of = resources::all().iter().filter(|resource| resource.api_version == version);
    let served: Vec<String> =
        of.filter(|resource| state.serves(resource.kind, now)).map(Resource::describe).collect();
    if served.is_empty() {
        return Err(Refused::not_found());
    }
    Ok(format!(
        r#"{{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"{version}","resources":[{}]}}"#,
        served.join(",")
    ))
}

async fn objects(
    server: &Server,
    resource: &'static Resource,
    place: Option<Place>,
    parameters: &BTreeMap<String, String>,
) -> Result<Answer, Refused> {
    let number = |name: &str| parameters.get(name).and_then(|text| text.parse::<u64>().ok());
    let is = |name: &str, value: &str| parameters.get(name).is_some_and(|found| found == value);
    let version = number("resourceVersion").filter(|version| *version > 0);
    if !is("watch", "true") && !is("watch", "1") {
        return list(server, resource, place, parameters, version).await.map(Answer::Whole);
    }
    let span = Duration::from_secs(number("timeoutSeconds").unwrap_or(WATCH_SECONDS));
    let bookmarks = is("allowWatchBookmarks", "true");
    let from = if is("sendInitialEvents", "true") {
        match server.setup().streaming {
            Streaming::Served => From::Stream(version),
            Streaming::Ignored => {
                server.state().tally.excuse(resource.kind);
                version.map_or(From::Anything, From::Version)
            }
            Streaming::Refused(status) => {
                let message =
                    "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
                server.state().tally.excuse(resource.kind);
                return Err(Refused::new(status, "Invalid", message));
            }
        }
    } else {
        version.map_or(From::Anything, From::Version)
    };
    watching::Watch::open(server, resource, place, from, span, bookmarks).map(Answer::Events)
}

/// A list, or a page of one.
async fn list(
    server: &Server,
    resource: &'static Resource,
    place: Option<Place>,
    parameters: &BTreeMap<String, String>,
    version: Option<u64>,
) -> Result<String, Refused> {
    let kind = resource.kind;
    let text = |name: &str| parameters.get(name).map_or("", String::as_str);
    let after = match text("continue") {
        "" => None,
        token => Some(read_token(token).ok_or(Refused::new(400, "BadRequest", "continue"))?),
    };
    let (at, first) = if let Some((at, first)) = after {
        (at, Some(first))
    } else if text("resourceVersionMatch") == "Exact" {
        (version.ok_or(Refused::new(400, "BadRequest", "resourceVersion"))?, None)
    } else {
        let any = version.is_none() && text("resourceVersion") == "0";
        (fresh(server, resource, version, any).await?, None)
    };
    let mut state = server.state();
    let (latest, compacted) = (state.history.version(), state.history.compacted());
    if at > latest {
        state.tally.excuse(kind);
        return Err(Refused::too_large(at, latest));
    }
    if at < compacted {
        state.tally.excuse(kind);
        return Err(Refused::expired(at, compacted));
    }
    let limit = parameters.get("limit").and_then(|text| text.parse().ok()).unwrap_or(usize::MAX);
    let limit = if limit == usize::MAX { limit } else { limit.min(server.setup().page) };
    let objects = state.history.objects_at(kind, at);
    let page: Vec<(Key, Held)> = after_key(objects, first)
        .filter(|(key, _)| Place::has(place, *key))
        .take(limit.saturating_add(1))
        .collect();
    let more = page.len() > limit;
    let page = &page[..page.len().min(limit)];
    let next = page.last().filter(|_| more).map(|(key, _)| token(at, *key)).unwrap_or_default();
    if !more && Place::is_all_of(place, kind) {
        state.note_listed(kind, Instant::now());
    }
    state.note_sent(at);
    let version = resource.api_version;
    let mut body = format!(
        r#"{{"kind":"{kind}List","apiVersion":"{version}","metadata":{{"resourceVersion":"{at}","continue":"{next}"}},"items":["#
    );
    for (index, (key, held)) in page.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        // Writing to a string does not fail.
        let _ = write!(body, "{comma}{}", server.json(resource, *key, *held, resource.is_custom()));
    }
    body.push_str("]}");
    Ok(body)
}

fn after_key(objects: &Objects, first: Option<Key>) -> Box<dyn Iterator<Item = (Key, Held)> + '_> {
    use std::ops::Bound::{Excluded, Unbounded};
    let objects = match first {
        Some(first) => objects.range((Excluded(first), Unbounded)),
        None => objects.range::<_, Key>(..),
    };
    Box::new(objects.map(|(key, held)| (*key, *held)))
}

/// The version of a list: the latest one, or any if that will do.
async fn fresh(
    server: &Server,
    resource: &Resource,
    at_least: Option<u64>,
    any: bool,
) -> Result<u64, Refused> {
    let kind = resource.kind;
    let latest = server.state().history.version();
    if any {
        return Ok(server.state().read(kind, Instant::now()));
    }
    if at_least.is_none() && !server.setup().cached {
        return Ok(latest);
    }
    let wanted = at_least.unwrap_or(latest);
    let gives_up = Instant::now() + CACHE_WAIT;
    let mut signal = server.signal(kind);
    loop {
        signal.borrow_and_update();
        let (read, next) = {
            let (now, mut state) = (Instant::now(), server.state());
            let read = state.read(kind, now);
            (read, state.reads_at(kind, wanted, now).unwrap_or(gives_up))
        };
        if read >= wanted {
            return Ok(read);
        }
        let now = Instant::now();
        if now >= gives_up {
            let mut state = server.state();
            let latest = state.history.version();
            if at_least.is_some() {
                state.tally.excuse(kind);
                return Err(Refused::too_large(wanted, latest));
            }
            return Ok(latest);
        }
        tokio::select! {
            // The sender is a part of the server.
            _ = signal.changed() => {}
            () = sleep_until(next.min(gives_up).max(now + Duration::from_millis(1))) => {}
        }
    }
}

/// What the next page is asked for with. Its characters need encoding in a query.
fn token(version: u64, key: Key) -> String {
    format!("{version}/{}+{}=", key.0, key.1)
}

fn read_token(token: &str) -> Option<(u64, Key)> {
    let (version, key) = token.strip_suffix('=')?.split_once('/')?;
    let (namespace, object) = key.split_once('+')?;
    Some((version.parse().ok()?, (namespace.parse().ok()?, object.parse().ok()?)))
}

/// A body in pieces, some of them late.
fn pieces(server: &Server, body: String) -> BoxStream<'static, Result<Bytes, io::Error>> {
    let setup = server.setup();
    let body = Bytes::from(body);
    if !server.random().percent(setup.cut) {
        return stream::once(async { Ok(body) }).boxed();
    }
    let pause = server.random().below(setup.pause + 1);
    stream::iter(cut(server.random(), &body))
        .then(move |piece| async move {
            sleep(Duration::from_millis(pause)).await;
            Ok(piece)
        })
        .boxed()
}

/// Cuts bytes at random places.
pub(super) fn cut(random: &Random, bytes: &Bytes) -> Vec<Bytes> {
    let mut places: Vec<usize> =
        (0..random.between(1, 4)).map(|_| random.index(bytes.len().max(1))).collect();
    places.sort_unstable();
    let mut pieces = Vec::new();
    let mut from = 0;
    for place in places.into_iter().chain([bytes.len()]) {
        if place > from {
            pieces.push(bytes.slice(from..place));
            from = place;
        }
    }
    pieces
}
