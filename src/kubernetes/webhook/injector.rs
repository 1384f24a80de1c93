//! The mutating webhook: gives a Pod its sidecar.
//!
//! Owns the order of the steps: the certificate is committed to the ledger, then the Secret with the
//! bootstrap is written, then the patch is answered. [`smc_sidecar::injection`] decides what the Pod becomes.
//! The answer holds the name of the Secret and never its content, so a peer that is no API server gains
//! nothing by asking.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::post;
use kube::Client;
use serde_json::Value;
use smc_host::env::Env;
use smc_model::topology::Namespace;
use smc_server::enroll::{Applicant, Enroller};
use smc_server::metrics::Metrics;
use smc_sidecar::injection::{self, Decision, Drawn, Settings, Sidecar};
use smc_types::causes::causes;
use smc_types::ids::{ProxyName, ServiceAccountId};
use smc_xds::served_state::ServedState;
use smc_xds::session::Variant;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use super::body::{Bodies, MAX_REVIEW};
use super::bootstrap_secret;
use super::namespaces::Namespaces;
use super::review::{Admission, ReviewRequest, ReviewResponse};
use super::unclaimed_sidecars::Pending;

/// How long an answer may take in all. The API server gives up after the webhook's `timeoutSeconds` (10) and
/// refuses the Pod without a reason.
const LIMIT: Duration = Duration::from_secs(8);

/// Sidecars that are made at the same time. Each waits for the ledger and for the API; more would only wait
/// longer.
const CONCURRENT: usize = 128;

/// The images of sidecars, unless MeshConfig says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarImages {
    /// The image of Envoy.
    pub envoy: String,
    /// The image with `smc`.
    pub init: String,
}

/// The mutating webhook.
pub(crate) struct Injector {
    pub(crate) images: SidecarImages,
    pub(crate) namespaces: Namespaces,
    pub(crate) enroller: Enroller,
    pub(crate) client: Client,
    pub(crate) served: watch::Receiver<Option<Arc<ServedState>>>,
    pub(crate) pending: Pending,
    pub(crate) env: Env,
    pub(crate) metrics: Metrics,
    pub(crate) places: Semaphore,
}

/// The warning for the author of a Pod about an annotation that means nothing.
const UNREADABLE: &str = "openservicemesh.io/sidecar-injection is none of enabled, yes, true, disabled, no, false: \
                          read as disabled, so without sidecar";

/// What came of a question, for the metric and the log.
enum Outcome {
    /// Admitted as it is, for this reason.
    Left(&'static str),
    /// Admitted with a sidecar.
    Injected(json_patch::Patch, &'static str),
    /// Refused for what the Pod says.
    Refused(String),
    /// Refused because no sidecar can be made now: the HTTP status and the message.
    Failed(u16, String),
}

/// The route of the injector.
pub(crate) fn routes(injector: Arc<Injector>, bodies: Bodies) -> Router {
    Router::new().route("/mutate", post(mutate)).with_state((injector, bodies))
}

async fn mutate(State((injector, bodies)): State<(Arc<Injector>, Bodies)>, body: Body) -> Response {
    let read = match bodies.read::<ReviewRequest>(body, MAX_REVIEW).await {
        Ok(read) => read,
        Err(error) => {
            injector.metrics.injection("malformed");
            return error.into_response();
        }
    };
    Json(injector.review(read.value.request).await).into_response()
}

impl Injector {
    /// How many sidecars may be made at the same time.
    pub(crate) fn places() -> Semaphore {
        Semaphore::new(CONCURRENT)
    }

    /// Answers one question, within [`LIMIT`].
    async fn review(&self, admission: Admission) -> ReviewResponse {
        let started = Instant::now();
        let outcome = timeout(LIMIT, self.outcome(&admission)).await;
        let outcome = outcome.unwrap_or_else(|_| {
            Outcome::Failed(504, "the sidecar could not be made in time; try again".to_owned())
        });
        let (namespace, name) = (&admission.namespace, name_of(&admission.object));
        let uid = admission.uid.clone();
        let (result, response) = match outcome {
            Outcome::Left(reason) => {
                debug!(namespace, name, reason, "pod admitted without a sidecar");
                let response = ReviewResponse::allowed(uid);
                let unreadable = unreadable_annotation(&admission.object);
                (reason, if unreadable { response.warning(UNREADABLE) } else { response })
            }
            Outcome::Injected(patch, how) => {
                debug!(namespace, name, how, "sidecar injected");
                (how, ReviewResponse::patched(uid, &patch))
            }
            Outcome::Refused(reason) => {
                info!(namespace, name, reason, "pod refused");
                ("refused", ReviewResponse::denied(uid, 422, &format!("no sidecar can be added: {reason}")))
            }
            Outcome::Failed(code, reason) => {
                warn!(namespace, name, reason, "cannot make a sidecar");
                ("failed", ReviewResponse::denied(uid, code, &format!("no sidecar now: {reason}")))
            }
        };
        self.metrics.injection(result);
        self.metrics.injection_took(started.elapsed());
        response
    }

    async fn outcome(&self, admission: &Admission) -> Outcome {
        let kind = (admission.kind.group.as_str(), admission.kind.kind.as_str());
        let whole = admission.sub_resource.as_deref().unwrap_or_default().is_empty();
        if kind != ("", "Pod") || admission.operation != "CREATE" || !whole {
            return Outcome::Left("other");
        }
        let served = self.served.borrow().clone();
        if served.is_none() {
            return Outcome::Failed(503, "this replica has not read the mesh yet; try again".to_owned());
        }
        let (namespace, config) = match self.namespaces.look_up(&admission.namespace).await {
            Ok(Some(known)) => known,
            Ok(None) => return Outcome::Left("not_monitored"),
            Err(error) => return Outcome::Failed(503, causes(&error)),
        };
        let pod = &admission.object;
        if let Decision::Leave(reason) = injection::decide(&namespace, pod) {
            return Outcome::Left(reason.as_str());
        }
        let settings = Settings {
            envoy_image: self.images.envoy.clone(),
            init_image: self.images.init.clone(),
            local_proxy_mode: config.local_proxy_mode,
            sidecar: config.injected,
        };
        self.inject(admission, &namespace, &settings, served.as_deref()).await
    }

    async fn inject(
        &self,
        admission: &Admission,
        namespace: &Namespace,
        settings: &Settings,
        served: Option<&ServedState>,
    ) -> Outcome {
        let Some(fresh) = self.draw() else {
            return Outcome::Failed(503, "the system has no randomness".to_owned());
        };
        let now = self.env.now();
        let expects = |proxy: &ProxyName, account: &_| self.pending.expects(proxy, account, now, served);
        let sidecar = injection::sidecar(&admission.object, namespace, settings, fresh, expects);
        let Sidecar { pod, proxy, account, is_new } = match sidecar {
            Ok(sidecar) => sidecar,
            Err(error) => return Outcome::Refused(causes(&error)),
        };
        let patch = json_patch::diff(&admission.object, &pod);
        if admission.dry_run == Some(true) {
            return Outcome::Injected(patch, "dry_run");
        }
        if !is_new {
            return Outcome::Injected(patch, "reinvoked");
        }
        if let Err(full) = self.pending.enter(&proxy, &account, now, served) {
            return Outcome::Failed(429, full.to_string());
        }
        let made = self.make(&proxy, account, &admission.object).await;
        if let Err(reason) = made {
            self.pending.withdraw(&proxy);
            return Outcome::Failed(503, reason);
        }
        Outcome::Injected(patch, "injected")
    }

    /// Issues the certificate and writes the Secret.
    async fn make(&self, proxy: &ProxyName, account: ServiceAccountId, pod: &Value) -> Result<(), String> {
        // Closed never.
        let _place = self.places.acquire().await;
        let applicant = Applicant { proxy: proxy.clone(), account, variant: Variant::Delta };
        let enrolled = self.enroller.enroll(&applicant).await.map_err(|error| causes(&error))?;
        // Without white space, which the API server and etcd would have to carry.
        let bootstrap = serde_json::to_string(&enrolled.bootstrap()).map_err(|error| error.to_string())?;
        let created = bootstrap_secret::create(&self.client, proxy, bootstrap, pod).await;
        created.map_err(|error| causes(&error))
    }

    fn draw(&self) -> Option<Drawn> {
        Some(Drawn::from_random(self.env.random().ok()?, self.env.random().ok()?))
    }
}

/// Whether the Pod's own annotation about its sidecar cannot be read.
fn unreadable_annotation(pod: &Value) -> bool {
    let text = pod["metadata"]["annotations"][injection::INJECTION_ANNOTATION].as_str();
    text.is_some_and(|text| injection::switch(text).is_none())
}

/// The name of a Pod, or the beginning of one that the API server has yet to complete.
fn name_of(pod: &Value) -> &str {
    let meta = &pod["metadata"];
    meta["name"].as_str().or(meta["generateName"].as_str()).unwrap_or_default()
}
