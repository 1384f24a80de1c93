//! The mutating webhook: gives a Pod its sidecar.
//!
//! Owns the order of the steps: the certificate is committed to the ledger, then the Secret with the
//! bootstrap is written, then the patch is answered. [`smc_sidecar::injection`] decides what the Pod becomes.
//! The answer holds the name of the Secret and never its content, so a peer that is no API server gains
//! nothing by asking.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use serde_json::Value;
use smc_host::accept::Turns;
use smc_host::env::Env;
use smc_host::log_limit::LogLimits;
use smc_model::topology::Namespace;
use smc_server::enroll::{Applicant, Enroller};
use smc_server::metrics::Metrics;
use smc_sidecar::injection::{self, Decision, Drawn, Settings, Sidecar};
use smc_types::causes::causes;
use smc_types::ids::{ProxyName, ServiceAccountId};
use smc_types::text::truncated;
use smc_xds::served_state::ServedState;
use smc_xds::session::Variant;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use super::body::{Bodies, BodyError, MAX_REVIEW, Peer, Text};
use super::bootstrap_secret;
use super::decoded::Budget;
use super::namespaces::Namespaces;
use super::review::{Admission, ReviewResponse};
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
    /// The Secrets in each pod's namespace with which they are pulled.
    pub pull_secrets: Vec<String>,
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
    /// The turns in which sidecars are made.
    pub(crate) places: Turns,
    /// What is logged of pods without a sidecar: any peer may ask for one.
    pub(crate) refusals: LogLimits,
}

/// The warning for the author of a Pod about an annotation that means nothing.
const UNREADABLE: &str = "openservicemesh.io/sidecar-injection is none of enabled, yes, true, disabled, no, false: \
                          read as disabled, so without sidecar";

/// The longest name of a namespace or a Pod in the log (RFC 1123), in characters.
const MAX_NAME: usize = 253;

/// What came of a question, for the metric and the log.
enum Outcome {
    /// Admitted as it is, for this reason, with a warning or without.
    Left(&'static str, Option<&'static str>),
    /// Admitted with a sidecar: the answer.
    Injected(Vec<u8>, &'static str),
    /// Refused for what the Pod says.
    Refused(String),
    /// Refused because no sidecar can be made now: the HTTP status and the message.
    Failed(u16, String),
}

/// What a Pod becomes.
struct Decided {
    proxy: ProxyName,
    account: ServiceAccountId,
    owner: Option<OwnerReference>,
    /// The answer, once the certificate and the Secret are made.
    answer: Vec<u8>,
}

/// The route of the injector.
pub(crate) fn routes(injector: Arc<Injector>, bodies: Bodies) -> Router {
    Router::new().route("/mutate", post(mutate)).with_state((injector, bodies))
}

async fn mutate(
    State((injector, bodies)): State<(Arc<Injector>, Bodies)>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Response {
    let mutated = async {
        let text = bodies.read(peer.0, body, MAX_REVIEW).await?;
        let Some(admission) = text.compute(Admission::read).await? else {
            return Err(BodyError::Unreadable("it is no AdmissionReview with a request"));
        };
        let answer = injector.review(&text, &Arc::new(admission)).await?;
        Ok(text.answer(answer))
    };
    mutated.await.unwrap_or_else(|error: BodyError| {
        injector.metrics.injection("malformed");
        error.into_response()
    })
}

impl Injector {
    /// How many sidecars may be made at the same time.
    pub(crate) fn places() -> Turns {
        Turns::new(CONCURRENT)
    }

    /// Answers one question, within [`LIMIT`].
    async fn review(self: &Arc<Self>, text: &Text, admission: &Arc<Admission>) -> Result<Vec<u8>, BodyError> {
        let started = Instant::now();
        let outcome = match timeout(LIMIT, self.outcome(text, admission)).await {
            Ok(outcome) => outcome?,
            Err(_) => Outcome::Failed(504, "the sidecar could not be made in time; try again".to_owned()),
        };
        let (namespace, name) =
            (truncated(&admission.namespace, MAX_NAME), truncated(&admission.name, MAX_NAME));
        let uid = admission.uid.clone();
        let (result, answer) = match outcome {
            Outcome::Left(reason, warning) => {
                debug!(namespace, name, reason, "pod admitted without a sidecar");
                let response = ReviewResponse::allowed(uid);
                (reason, warning.into_iter().fold(response, ReviewResponse::warning).json())
            }
            Outcome::Injected(answer, how) => {
                debug!(namespace, name, how, "sidecar injected");
                (how, answer)
            }
            Outcome::Refused(reason) => {
                if let Some(count) = self.refusals.note("refused") {
                    info!(namespace, name, reason, count, "pod refused");
                }
                let response =
                    ReviewResponse::denied(uid, 422, &format!("no sidecar can be added: {reason}"));
                ("refused", response.json())
            }
            Outcome::Failed(code, reason) => {
                if let Some(count) = self.refusals.note("failed") {
                    warn!(namespace, name, reason, count, "cannot make a sidecar");
                }
                let response = ReviewResponse::denied(uid, code, &format!("no sidecar now: {reason}"));
                ("failed", response.json())
            }
        };
        self.metrics.injection(result);
        self.metrics.injection_took(started.elapsed());
        Ok(answer)
    }

    async fn outcome(
        self: &Arc<Self>,
        text: &Text,
        admission: &Arc<Admission>,
    ) -> Result<Outcome, BodyError> {
        if !admission.is_of_a_new_pod() {
            return Ok(Outcome::Left("other", None));
        }
        let served = self.served.borrow().clone();
        if served.is_none() {
            let reason = "this replica has not read the mesh yet; try again".to_owned();
            return Ok(Outcome::Failed(503, reason));
        }
        let known = text.hold(0, self.namespaces.look_up(&admission.namespace, text.peer())).await?;
        let (namespace, config) = match known {
            Ok(Some(known)) => known,
            Ok(None) => return Ok(Outcome::Left("not_monitored", None)),
            Err(error) => return Ok(Outcome::Failed(503, causes(&error))),
        };
        let settings = Settings {
            envoy_image: self.images.envoy.clone(),
            init_image: self.images.init.clone(),
            pull_secrets: self.images.pull_secrets.clone(),
            local_proxy_mode: config.local_proxy_mode,
            sidecar: config.injected,
        };
        let (injector, asked) = (Arc::clone(self), Arc::clone(admission));
        let decide =
            move |text: &str| injector.decide(text, &asked, &namespace, &settings, served.as_deref());
        let decided = match text.compute(decide).await? {
            Ok(decided) => decided,
            Err(outcome) => return Ok(outcome),
        };
        let Decided { proxy, account, owner, answer } = decided;
        let made = text.hold(answer.len(), self.make(&proxy, account, owner, text.peer())).await;
        if !matches!(made, Ok(Ok(()))) {
            self.pending.withdraw(&proxy);
        }
        Ok(match made? {
            Ok(()) => Outcome::Injected(answer, "injected"),
            Err(reason) => Outcome::Failed(503, reason),
        })
    }

    /// Decodes the Pod and decides what becomes of it. `Err` is what came of the question, where nothing is
    /// to be made.
    fn decide(
        &self,
        text: &str,
        admission: &Admission,
        namespace: &Namespace,
        settings: &Settings,
        served: Option<&ServedState>,
    ) -> Result<Decided, Outcome> {
        let pod = match Admission::object(text).map(|json| Budget::new().decode(json)) {
            None => Value::Null,
            Some(Ok(pod)) => pod,
            Some(Err(error)) => return Err(Outcome::Refused(format!("the Pod: {error}"))),
        };
        if let Decision::Leave(reason) = injection::decide(namespace, &pod) {
            return Err(Outcome::Left(reason.as_str(), unreadable_annotation(&pod).then_some(UNREADABLE)));
        }
        let Some(fresh) = self.draw() else {
            return Err(Outcome::Failed(503, "the system has no randomness".to_owned()));
        };
        let now = self.env.now();
        let expects = |proxy: &ProxyName, account: &_| self.pending.expects(proxy, account, now, served);
        let sidecar = injection::sidecar(&pod, namespace, settings, fresh, expects);
        let Sidecar { pod: injected, proxy, account, is_new } =
            sidecar.map_err(|error| Outcome::Refused(causes(&error)))?;
        let patch = json_patch::diff(&pod, &injected);
        drop(injected);
        let answer = ReviewResponse::patched(admission.uid.clone(), &patch).json();
        if admission.dry_run {
            return Err(Outcome::Injected(answer, "dry_run"));
        }
        if !is_new {
            return Err(Outcome::Injected(answer, "reinvoked"));
        }
        let entered = self.pending.enter(&proxy, &account, now, served);
        entered.map_err(|full| Outcome::Failed(429, full.to_string()))?;
        Ok(Decided { proxy, account, owner: bootstrap_secret::owner(&pod), answer })
    }

    /// Issues the certificate and writes the Secret.
    async fn make(
        &self,
        proxy: &ProxyName,
        account: ServiceAccountId,
        owner: Option<OwnerReference>,
        peer: IpAddr,
    ) -> Result<(), String> {
        let _place = self.places.wait(peer).await;
        let applicant = Applicant { proxy: proxy.clone(), account, variant: Variant::Delta };
        let enrolled = self.enroller.enroll(&applicant).await.map_err(|error| causes(&error))?;
        // Without white space, which the API server and etcd would have to carry.
        let bootstrap = serde_json::to_string(&enrolled.bootstrap()).map_err(|error| error.to_string())?;
        let created = bootstrap_secret::create(&self.client, proxy, bootstrap, owner).await;
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
