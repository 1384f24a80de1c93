//! Owns another client of the API server, which reads the bytes that the source reads and decodes none of
//! them.
//!
//! What a source may take begins when this client has the news: how long an API server takes to write ten
//! objects of a mebibyte is no property of the source.

use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use futures_util::{AsyncBufReadExt, StreamExt};
use http::Request;
use kube::Client;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use smc_types::object_ref::Kind;
use tokio::time::timeout;

use super::every_kind::api_version;
use super::watcher::LIMIT;

/// The path of all objects of a kind, in one namespace or in all.
pub(super) fn path(kind: Kind, namespace: Option<&str>) -> String {
    let api_version = api_version(kind);
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let kind = GroupVersionKind::gvk(group, version, kind.as_str());
    <DynamicObject as kube::Resource>::url_path(&ApiResource::from_gvk(&kind), namespace)
}

/// Reads every object of every kind, as a source does that starts.
pub(super) async fn reads_everything(client: &Client) {
    for kind in Kind::ALL {
        let request = Request::get(path(*kind, None)).body(Vec::new()).unwrap();
        timeout(LIMIT, client.request_text(request)).await.expect("an answer in time").unwrap();
    }
}

/// Watches of objects that are about to be deleted, in all namespaces.
pub(super) struct Deletions {
    /// Of each kind, what the API server says after it named the object.
    watches: Vec<BoxStream<'static, std::io::Result<String>>>,
    object: String,
}

impl Deletions {
    /// Watches these kinds, each of which has an object of this name.
    pub(super) async fn of(
        client: &Client,
        kinds: impl Iterator<Item = Kind>,
        namespace: &str,
        name: &str,
    ) -> Self {
        // As API servers write the metadata of every kind.
        let object = format!(r#""name":"{name}","namespace":"{namespace}""#);
        let watch = async |kind| {
            let request = Request::get(format!("{}?watch=true", path(kind, None)));
            let answer = client.request_stream(request.body(Vec::new()).unwrap()).await.unwrap();
            let mut events = answer.lines().boxed();
            event(&mut events, "ADDED", &object).await;
            events
        };
        Self { watches: join_all(kinds.map(watch)).await, object }
    }

    /// Waits until all of them are deleted.
    pub(super) async fn arrive(mut self) {
        join_all(self.watches.iter_mut().map(|events| event(events, "DELETED", &self.object))).await;
    }
}

/// Reads until this happens to the object whose metadata have this text.
async fn event(events: &mut BoxStream<'static, std::io::Result<String>>, happened: &str, object: &str) {
    let start = format!(r#"{{"type":"{happened}""#);
    let next = async {
        while let Some(line) = events.next().await {
            let line = line.unwrap();
            if line.starts_with(&start) && line.contains(object) {
                return;
            }
        }
        panic!("the watch ended before {object} was {happened}");
    };
    timeout(LIMIT, next).await.unwrap_or_else(|late| panic!("{object} was not {happened}: {late}"));
}
