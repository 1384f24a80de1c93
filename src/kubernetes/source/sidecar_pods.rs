//! Which sidecars have a pod, asked of the API server for all namespaces at once.
//!
//! Owns the list of the pods that carry a sidecar's label. Anybody may give a pod that label, so a pod costs
//! a look at its name, and one of a namespace that is asked about a look at its labels: nothing of it is
//! decoded or kept beyond that.

use std::collections::BTreeSet;
use std::sync::Arc;

use smc_sidecar::injection::PROXY_UUID_LABEL;
use smc_types::ids::ProxyName;
use thiserror::Error;

use super::failure::Failure;
use super::object::Object;
use super::paging::PageLimit;
use super::reader::Reader;
use crate::api::ApiServer;

/// The pods cannot be listed.
#[derive(Debug, Error)]
pub(crate) enum PodsError {
    /// The API server does not say, for this reason.
    #[error("{0}")]
    List(String),
    /// A pod has no name that can be read, and may be any.
    #[error("the API server names a pod that cannot be read")]
    Unnamed,
}

/// Those of `wanted` that have a pod.
pub(crate) async fn with_pods(
    api: Arc<dyn ApiServer>,
    wanted: &BTreeSet<ProxyName>,
) -> Result<BTreeSet<ProxyName>, PodsError> {
    let (reader, query) = (Reader(api), format!("labelSelector={PROXY_UUID_LABEL}"));
    let namespaces: BTreeSet<&str> = wanted.iter().map(|proxy| &*proxy.namespace).collect();
    let (mut found, mut next, mut limit) = (BTreeSet::new(), None::<String>, PageLimit::new());
    loop {
        let page = match reader.page("/api/v1/pods", next.as_deref(), limit.get(), &query).await {
            Err(Failure::TooLarge { .. }) if limit.too_large() => continue,
            page => page.map_err(|failure| PodsError::List(failure.to_string()))?,
        };
        limit.fitted();
        if page.unnamed > 0 {
            return Err(PodsError::Unnamed);
        }
        let ours = page.items.iter().filter(|pod| namespaces.contains(pod.namespace()));
        found.extend(ours.filter_map(proxy).filter(|proxy| wanted.contains(proxy)));
        next = page.next;
        if next.is_none() {
            return Ok(found);
        }
    }
}

/// The proxy that a pod names by its label.
fn proxy(pod: &Object) -> Option<ProxyName> {
    ProxyName::new(pod.label(PROXY_UUID_LABEL)?.parse().ok()?, pod.namespace()).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bytes::Bytes;
    use futures_util::future::BoxFuture;
    use futures_util::{FutureExt, StreamExt, stream};
    use smc_host::sync::lock;

    use super::*;
    use crate::api::{Answer, Unreachable};

    /// Answers with these pods, one page after the other, of which the first is of this length at least.
    struct Pods {
        pages: Vec<Vec<String>>,
        asked: Mutex<Vec<String>>,
        too_long: bool,
    }

    impl ApiServer for Pods {
        fn get(&self, path: &str) -> BoxFuture<'static, Result<Answer, Unreachable>> {
            lock(&self.asked).push(path.to_owned());
            let at = path.split("continue=").nth(1).map_or(0, |at| at.parse().unwrap());
            let token = if at + 1 < self.pages.len() { (at + 1).to_string() } else { String::new() };
            let items = self.pages[at].join(",");
            let filling = " ".repeat(if self.too_long && path.contains("limit=500") { 9 << 20 } else { 0 });
            let body = format!(
                r#"{{"metadata":{{"resourceVersion":"9","continue":"{token}"}},"items":[{items}{filling}]}}"#
            );
            let body = stream::iter([Ok(Bytes::from(body))]).boxed();
            std::future::ready(Ok(Answer { status: 200, retry_after: None, date: None, body })).boxed()
        }
    }

    fn uuid(number: u32) -> String {
        format!("00000000-0000-4000-8000-{number:012}")
    }

    fn pod(namespace: &str, number: u32, rest: &str) -> String {
        format!(
            r#"{{"metadata":{{"name":"p{number}","namespace":"{namespace}"{rest},"labels":{{"osm-proxy-uuid":"{}"}}}}}}"#,
            uuid(number)
        )
    }

    async fn found(pods: &Arc<Pods>, wanted: &[(&str, u32)]) -> Result<Vec<String>, PodsError> {
        let wanted =
            wanted.iter().map(|(of, number)| ProxyName::new(uuid(*number).parse().unwrap(), of).unwrap());
        let found = with_pods(Arc::clone(pods) as Arc<dyn ApiServer>, &wanted.collect()).await?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    /// Pods whose other metadata no reader of values could read.
    fn hostile() -> Vec<String> {
        let deep = "[".repeat(1 << 20) + &"]".repeat(1 << 20);
        vec![
            pod("outside", 1, &format!(r#","annotations":{deep}"#)),
            pod("outside", 1, r#","labels":7"#),
            format!(
                r#"{{"metadata":{{"name":"x","namespace":"shop","managedFields":{deep},"labels":{{"osm-proxy-uuid":7}}}}}}"#
            ),
            r#"{"metadata":{"name":"y","namespace":"shop","labels":[]}}"#.to_owned(),
        ]
    }

    #[tokio::test]
    async fn hostile_pods_of_any_namespace_hide_none_that_is_asked_about() {
        let (first, second) = (pod("shop", 1, ""), pod("shop", 2, ""));
        let pages = vec![[hostile(), vec![first]].concat(), [hostile(), vec![second]].concat()];
        for too_long in [false, true] {
            let pods = Arc::new(Pods { pages: pages.clone(), asked: Mutex::default(), too_long });
            let both = [format!("{}.shop", uuid(1)), format!("{}.shop", uuid(2))];
            assert_eq!(
                found(&pods, &[("shop", 1), ("shop", 2), ("shop", 3), ("more", 1)]).await.unwrap(),
                both
            );
            let (half, next) = if too_long { ("250", "281") } else { ("500", "500") };
            let query = "labelSelector=osm-proxy-uuid";
            let asked = [
                format!("/api/v1/pods?limit={half}&{query}"),
                format!("/api/v1/pods?limit={next}&{query}&continue=1"),
            ];
            assert_eq!(lock(&pods.asked)[usize::from(too_long)..], asked);
        }
    }

    #[tokio::test]
    async fn a_pod_without_a_readable_name_may_be_any() {
        let pages = vec![vec![r#"{"metadata":{"namespace":"shop"}}"#.to_owned()]];
        let pods = Arc::new(Pods { pages, asked: Mutex::default(), too_long: false });
        assert!(matches!(found(&pods, &[("shop", 1)]).await, Err(PodsError::Unnamed)));
    }
}
