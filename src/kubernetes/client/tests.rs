//! What the client reads, and what it speaks.

mod bursts;
mod losses;

use std::path::PathBuf;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join_all;
use smc_types::causes::causes;

use super::stand_in::{CHUNK, TlsServer};
use super::*;
use crate::api::{Answer, ApiServer, Unreachable};

/// The answer to a request, and the first part of its body.
async fn begun(client: &Client, path: &str) -> Result<(Answer, Bytes), Unreachable> {
    let mut answer = client.get(path).await?;
    assert_eq!(answer.status, 200);
    let first = answer.body.next().await.unwrap()?;
    Ok((answer, first))
}

/// `count` requests at once, whose answers never end; all of them began.
async fn endless(client: &Client, count: usize) -> Vec<Answer> {
    let begun = join_all((0..count).map(|_| begun(client, "/endless"))).await;
    begun.into_iter().map(|begun| begun.unwrap().0).collect()
}

/// How many bytes the answer has.
async fn length(client: &Client, path: &str) -> usize {
    let answer = client.get(path).await.unwrap();
    answer.body.fold(0, async |length, part| length + part.unwrap().len()).await
}

async fn connected(path: PathBuf) -> Client {
    connect(Some(&path.into())).await.unwrap()
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let refused = async || causes(&connect(Some(&path.clone().into())).await.err().unwrap());
    assert!(refused().await.contains(&path.display().to_string()));
    std::fs::write(&path, "{apiVersion: v1, kind: Config}").unwrap();
    let error = refused().await;
    assert!(error.contains(&path.display().to_string()) && error.contains("context"), "{error}");
}

#[tokio::test]
async fn of_several_kubeconfigs_the_first_value_counts() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    std::fs::write(&one, "{apiVersion: v1, kind: Config, current-context: a}").unwrap();
    let text = "{apiVersion: v1, kind: Config, current-context: b, contexts: [{name: a, context: {cluster: c, \
                namespace: here}}], clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}";
    std::fs::write(&two, text).unwrap();
    let paths = std::env::join_paths([one, two]).unwrap();
    assert_eq!(connect(Some(&paths)).await.unwrap().default_namespace(), "here");
}

/// The kubeconfig names another server than the address of this one, a token, and a user to act as.
#[tokio::test(flavor = "multi_thread")]
async fn forty_endless_answers_share_two_connections_at_most() {
    let server = TlsServer::start(&["h2", "http/1.1"]).await;
    let client = connected(server.kubeconfig()).await;
    let _answers = endless(&client, 40).await;
    assert_eq!(length(&client, "/bytes/40").await, 40 * CHUNK);
    assert!(server.book.connections() <= 2, "{}", server.book.connections());
    assert_eq!(server.book.versions(), [("HTTP/2.0".to_owned(), 41)].into());
    let headers = server.book.headers("/endless");
    assert_eq!(headers["authorization"], "Bearer secret");
    assert_eq!(headers["impersonate-user"], "another");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_speaks_http_1_only_answers_as_well() {
    for protocols in [&["http/1.1"][..], &[]] {
        let server = TlsServer::start(protocols).await;
        let client = connected(server.kubeconfig()).await;
        let _answers = endless(&client, 20).await;
        assert_eq!(length(&client, "/bytes/40").await, 40 * CHUNK);
        assert_eq!(server.book.versions(), [("HTTP/1.1".to_owned(), 21)].into());
        assert_eq!(server.book.connections(), 21);
    }
}

/// kube was built without proxies, and says so.
#[tokio::test]
async fn a_proxy_is_not_passed_by() {
    let server = TlsServer::start(&["h2"]).await;
    let text = std::fs::read_to_string(server.kubeconfig()).unwrap();
    let text = text.replace("tls-server-name", "proxy-url: 'http://127.0.0.1:1', tls-server-name");
    std::fs::write(server.kubeconfig(), text).unwrap();
    let refused = connect(Some(&server.kubeconfig().into())).await.err().unwrap();
    assert!(causes(&refused).contains("proxy"), "{}", causes(&refused));
}
