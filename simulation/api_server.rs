//! A model of an API server: lists, watches and bookmarks over the objects of a cluster, and its faults.
//!
//! Owns what a client is sent, and when: an API server may be away, or have read less of the objects than
//! another one. Each replica has its own. Neither HTTP nor the simulated network is between.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};
use smc::kubernetes::api::{self, Answer, Unreachable};
use smc_host::env::fixed::SeededEntropy;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::kubernetes::{Objects, Resource};

/// The longest delay of an answer and of an event, in milliseconds.
const DELAY: u64 = 6;

/// How often a watch that asks for bookmarks gets one.
const BOOKMARKS: Duration = Duration::from_mins(1);

/// What its clients see of it.
#[derive(Debug, Clone, Copy)]
struct Condition {
    /// It refuses connections.
    away: bool,
    /// Grows when all connections break.
    generation: u64,
    /// How far it has read the objects, if it lags.
    lags_at: Option<u64>,
}

/// An API server. Clones are the same one.
#[derive(Debug, Clone)]
pub struct ApiServer {
    objects: Objects,
    condition: watch::Sender<Condition>,
    random: Arc<SeededEntropy>,
}

impl ApiServer {
    /// An API server of these objects, with delays that follow from the seed.
    pub fn new(objects: Objects, seed: u64) -> Self {
        let condition = Condition { away: false, generation: 0, lags_at: None };
        Self { objects, condition: watch::Sender::new(condition), random: Arc::new(SeededEntropy::new(seed)) }
    }

    /// Ends all connections, and refuses new ones.
    pub fn stop(&self) {
        self.condition.send_modify(|condition| {
            condition.away = true;
            condition.generation += 1;
        });
    }

    /// Reads no further changes: its watches are silent, and its lists, which must be of the latest version,
    /// wait.
    pub fn lag(&self) {
        let version = *self.objects.version().borrow();
        self.condition.send_modify(|condition| condition.lags_at = Some(version));
    }

    /// Ends all connections once; new ones are accepted.
    pub fn break_connections(&self) {
        self.condition.send_modify(|condition| condition.generation += 1);
    }

    /// Works again.
    pub fn recover(&self) {
        self.condition.send_modify(|condition| {
            condition.away = false;
            condition.lags_at = None;
        });
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(1 + self.random.draw() % DELAY)
    }

    /// Whether a connection of this generation stands.
    fn stands(&self, generation: u64) -> Result<(), Unreachable> {
        let now = *self.condition.borrow();
        let stands = now.generation == generation && !now.away;
        if stands { Ok(()) } else { Err(Unreachable("the connection broke".into())) }
    }

    /// The version up to which it has read the objects.
    fn has_read(&self) -> u64 {
        let version = *self.objects.version().borrow();
        self.condition.borrow().lags_at.map_or(version, |lags_at| lags_at.min(version))
    }

    /// The objects in the latest version, which it waits for.
    async fn list(&self, resource: &Resource, namespace: Option<&str>) -> (u64, Vec<Value>) {
        let mut condition = self.condition.subscribe();
        // The sender is a part of this.
        let _ = condition.wait_for(|now| now.lags_at.is_none()).await;
        self.objects.list(resource, namespace)
    }

    async fn answer(&self, path: &str, generation: u64) -> Answer {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let parameter = |name: &str| {
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        if let Some(discovered) = self.discover(path) {
            return whole(200, &discovered);
        }
        let Some((resource, namespace)) = self.find(path) else {
            return whole(404, &json!({"kind": "Status", "code": 404, "reason": "NotFound"}));
        };
        if parameter("watch").is_none() {
            let (version, items) = self.list(&resource, namespace.as_deref()).await;
            let meta = json!({"resourceVersion": version.to_string()});
            return whole(200, &json!({"metadata": meta, "items": items}));
        }
        let seconds = parameter("timeoutSeconds").and_then(|text| text.parse().ok()).unwrap_or(1800);
        let mut after = parameter("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or_default();
        let mut lines = VecDeque::new();
        if parameter("sendInitialEvents").is_some() {
            let (version, items) = self.list(&resource, namespace.as_deref()).await;
            lines.extend(items.iter().map(|object| event("ADDED", object)));
            lines.push_back(bookmark(&resource, version, true));
            after = version;
        }
        let now = Instant::now();
        let watch = Watch {
            server: self.clone(),
            resource,
            namespace,
            generation,
            after,
            lines,
            bookmark_at: now + BOOKMARKS,
            ends_at: now + Duration::from_secs(seconds),
            ended: false,
        };
        Answer { status: 200, retry_after: None, date: None, body: watch.lines() }
    }

    /// What a path of discovery says.
    fn discover(&self, path: &str) -> Option<Value> {
        let resources = self.objects.resources();
        if path == "/apis" {
            let mut groups: Vec<Value> = Vec::new();
            for resource in resources {
                let Some((group, _)) = resource.api_version.split_once('/') else { continue };
                let version = json!({"groupVersion": resource.api_version});
                match groups.iter_mut().find(|found| found["name"] == group) {
                    Some(found) => found["versions"].as_array_mut()?.push(version),
                    None => groups.push(json!({"name": group, "versions": [version]})),
                }
            }
            return Some(json!({ "groups": groups }));
        }
        let version = path.strip_prefix("/apis/").or(path.strip_prefix("/api/"))?;
        let of: Vec<_> = resources
            .iter()
            .filter(|resource| resource.api_version == version)
            .map(|resource| json!({"name": resource.plural, "kind": resource.kind, "verbs": ["list", "watch"]}))
            .collect();
        (!of.is_empty()).then(|| json!({ "resources": of }))
    }

    /// The resource at a path, and the namespace.
    fn find(&self, path: &str) -> Option<(Resource, Option<String>)> {
        let path = path.strip_prefix("/apis/").or(path.strip_prefix("/api/"))?;
        self.objects.resources().iter().find_map(|resource| {
            let rest = path.strip_prefix(&resource.api_version)?.strip_prefix('/')?;
            let (namespace, plural) = match rest.strip_prefix("namespaces/").and_then(|at| at.split_once('/'))
            {
                Some((namespace, plural)) => (Some(namespace.to_owned()), plural),
                None => (None, rest),
            };
            (plural == resource.plural).then(|| (resource.clone(), namespace))
        })
    }
}

impl api::ApiServer for ApiServer {
    fn get(&self, path: &str) -> BoxFuture<'static, Result<Answer, Unreachable>> {
        let (server, path) = (self.clone(), path.to_owned());
        let generation = server.condition.borrow().generation;
        async move {
            server.stands(generation)?;
            sleep(server.delay()).await;
            let answer = server.answer(&path, generation).await;
            server.stands(generation)?;
            Ok(answer)
        }
        .boxed()
    }
}

/// A watch.
struct Watch {
    server: ApiServer,
    resource: Resource,
    namespace: Option<String>,
    /// That of its connection.
    generation: u64,
    /// The version up to which it has sent everything, once `lines` are sent.
    after: u64,
    /// What is to be sent.
    lines: VecDeque<String>,
    bookmark_at: Instant,
    ends_at: Instant,
    /// It ends after `lines`.
    ended: bool,
}

impl Watch {
    fn lines(self) -> BoxStream<'static, Result<Bytes, Unreachable>> {
        let lines = stream::unfold(Some(self), async |watch| {
            let mut watch = watch?;
            match watch.next().await {
                Ok(line) => line.map(|line| (Ok(Bytes::from(line)), Some(watch))),
                Err(broken) => Some((Err(broken), None)),
            }
        });
        lines.boxed()
    }

    async fn next(&mut self) -> Result<Option<String>, Unreachable> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                sleep(self.server.delay()).await;
                self.server.stands(self.generation)?;
                return Ok(Some(line));
            }
            if self.ended {
                return Ok(None);
            }
            self.gather();
            if self.lines.is_empty() && !self.ended {
                self.wait().await;
                self.server.stands(self.generation)?;
            }
        }
    }

    /// Takes up what is to be sent now.
    fn gather(&mut self) {
        let (now, read) = (Instant::now(), self.server.has_read());
        let changes =
            self.server.objects.changes(&self.resource, self.namespace.as_deref(), self.after, read);
        if let Some(changes) = changes {
            self.lines.extend(changes.iter().map(|change| event(change.event, &change.object)));
        } else {
            let status = json!({"kind": "Status", "code": 410, "reason": "Expired",
                "message": "too old resource version"});
            self.lines.push_back(event("ERROR", &status));
            self.ended = true;
        }
        self.after = self.after.max(read);
        if now >= self.bookmark_at {
            self.bookmark_at = now + BOOKMARKS;
            self.lines.push_back(bookmark(&self.resource, self.after, false));
        }
        self.ended |= now >= self.ends_at;
    }

    /// Waits until there may be something to send.
    async fn wait(&self) {
        let (mut version, mut condition) = (self.server.objects.version(), self.server.condition.subscribe());
        let generation = self.generation;
        let (after, lags_at) = (self.after, condition.borrow().lags_at);
        tokio::select! {
            biased;
            // The senders are a part of this.
            _ = condition.wait_for(|now| now.generation != generation || now.lags_at != lags_at) => {}
            _ = version.wait_for(|version| *version > after && lags_at.is_none_or(|lags_at| lags_at > after)) => {}
            () = sleep_until(self.bookmark_at.min(self.ends_at)) => {}
        }
    }
}

fn whole(status: u16, body: &Value) -> Answer {
    let body = Bytes::from(body.to_string());
    Answer { status, retry_after: None, date: None, body: stream::once(async { Ok(body) }).boxed() }
}

fn event(kind: &str, object: &Value) -> String {
    // The type comes first.
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn bookmark(resource: &Resource, version: u64, initial_end: bool) -> String {
    let annotations = if initial_end { json!({"k8s.io/initial-events-end": "true"}) } else { json!({}) };
    let meta = json!({"resourceVersion": version.to_string(), "annotations": annotations});
    event("BOOKMARK", &json!({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}))
}
