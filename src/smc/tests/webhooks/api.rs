//! A stand-in for the API that the webhooks use: it answers a few requests, and remembers all.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// A request that was made.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Value,
}

/// The stand-in. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Api {
    made: Arc<Mutex<Vec<Made>>>,
    /// The statuses of the next answers about Secrets, instead of 201.
    failures: Arc<Mutex<VecDeque<u16>>>,
}

impl Api {
    pub(super) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { api.answer(request).await }
        });
        Client::new(service, "default")
    }

    pub(super) fn fail_next_secret(&self, status: u16) {
        self.failures.lock().unwrap().push_back(status);
    }

    /// The requests with this method to paths that contain `part`.
    pub(super) fn made(&self, method: &Method, part: &str) -> Vec<Made> {
        let made = self.made.lock().unwrap();
        made.iter().filter(|made| made.method == *method && made.path.contains(part)).cloned().collect()
    }

    /// The roots in the `caBundle`, once the leader has written it.
    pub(super) async fn trusted(&self) -> Vec<u8> {
        loop {
            if let Some(patch) = self.made(&Method::PATCH, "smc-injector-smc").first() {
                let hook = &patch.body["webhooks"][0];
                assert_eq!(hook["name"], "injector.smc.dev");
                let bundle = hook["clientConfig"]["caBundle"].as_str().unwrap();
                return data_encoding::BASE64.decode(bundle.as_bytes()).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let (head, body) = request.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let path = head.uri.path().to_owned();
        let (status, answer) = self.decide(&head.method, &path, &body);
        self.made.lock().unwrap().push(Made { method: head.method, path, body });
        let answer = Body::from(serde_json::to_vec(&answer)?);
        Ok(Response::builder().status(status).header("content-type", "application/json").body(answer)?)
    }

    fn decide(&self, method: &Method, path: &str, body: &Value) -> (u16, Value) {
        let hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/smc-injector-smc";
        let late =
            json!({"metadata": {"name": "late", "labels": {"openservicemesh.io/monitored-by": "smc"}}});
        let service =
            json!({"service": {"name": "smc-webhook", "namespace": "smc-system", "path": "/mutate"}});
        let hook = json!({"name": "injector.smc.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": service});
        let failure = || self.failures.lock().unwrap().pop_front();
        match (method, path) {
            (&Method::GET | &Method::PATCH, path) if path == hooks => {
                (200, json!({"metadata": {"name": "smc-injector-smc"}, "webhooks": [hook]}))
            }
            (&Method::GET, "/api/v1/namespaces/late") => (200, late),
            // The roots for gateways, which the leader writes once it leads.
            (&Method::POST, path) if path.ends_with("/smc-system/secrets") => (201, body.clone()),
            (&Method::POST, path) if path.ends_with("/secrets") => match failure() {
                Some(code) => (code, status(code)),
                None => (201, body.clone()),
            },
            _ => (404, status(404)),
        }
    }
}

fn status(code: u16) -> Value {
    let reason = if code == 404 { "NotFound" } else { "Forbidden" };
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "a test", "reason": reason,
        "code": code})
}
