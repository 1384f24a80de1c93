//! The road from a source to its API server, which a test can cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use kube::Client;
use smc_kubernetes::api::{Answer, ApiServer, Unreachable};
use tokio::sync::watch;

/// An API server behind a gate. Clones share the gate.
#[derive(Clone)]
pub(super) struct Gate {
    client: Client,
    open: watch::Sender<bool>,
    requests: Arc<AtomicU64>,
}

impl Gate {
    /// An open gate.
    pub(super) fn over(client: Client) -> Self {
        Self { client, open: watch::Sender::new(true), requests: Arc::default() }
    }

    /// Cuts every connection, and lets none through from now on.
    pub(super) fn close(&self) {
        self.open.send_replace(false);
    }

    /// Lets connections through again.
    pub(super) fn open(&self) {
        self.open.send_replace(true);
    }

    /// How many requests have come so far, without those that the API server put off: one that has not served
    /// a custom resource yet asks for a second (429).
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

fn cut() -> Unreachable {
    Unreachable("the gate is closed".into())
}

impl ApiServer for Gate {
    fn get(&self, path: &str) -> BoxFuture<'static, Result<Answer, Unreachable>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.subscribe();
        let (answer, requests) = (self.client.get(path), Arc::clone(&self.requests));
        async move {
            if !*open.borrow_and_update() {
                return Err(cut());
            }
            let Answer { status, retry_after, date, body } = answer.await?;
            if status == 429 {
                requests.fetch_sub(1, Ordering::Relaxed);
            }
            let closed = async move {
                // Any change since the request cuts it.
                let _ = open.changed().await;
                Err(cut())
            };
            let closed = closed.into_stream();
            // After the error, the reader asks for nothing more.
            let body = futures_util::stream::select(
                body.map(Some).chain(futures_util::stream::iter([None])),
                closed.map(Some),
            );
            let body =
                body.take_while(|piece| std::future::ready(piece.is_some())).filter_map(std::future::ready);
            Ok(Answer { status, retry_after, date, body: body.boxed() })
        }
        .boxed()
    }
}
