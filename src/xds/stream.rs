//! The driver of one xDS stream: carries requests and worlds to the session, and its responses to the proxy.
//!
//! Owns the stream's bounds in time and rate, and the reasons why it ends. Refuses to know the protocol: that is
//! [`smc_mesh::session`].

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use prost::Message;
use smc_mesh::resource::ResourceType;
use smc_mesh::session::{Event, ProtocolError, Response, Scope, Session, Step, Variant};
use smc_mesh::world::{Touched, View, World};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Status, Streaming};
use tracing::{Instrument, debug, info, info_span, warn};

use super::admission::{self, NotAdmitted};
use super::codec::Received;
use super::connection::Peer;
use super::ending::Ending;
use super::open_stream::OpenStream;
use super::proxies::{Entered, Proxies};
use crate::ca::CertificateManager;
use crate::env::Env;
use crate::telemetry::Metrics;

/// How often an open stream's right to be open is looked at again when nothing else gives cause: catches a
/// certificate that ended while the stream was open.
const RECHECK_INTERVAL: Duration = Duration::from_mins(10);

/// How long the last word of a stream may take to be accepted by its queue.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Names of rejected resources that are logged. There may be thousands in one response.
const MAX_NAMES: usize = 8;

/// Characters of a proxy's own words (its error messages, its build) that are kept.
const MAX_WORDS: usize = 1024;

/// What streams need of the replica.
pub(crate) struct Context {
    /// The latest world; `None` until the sources have synced.
    pub(crate) worlds: watch::Receiver<Option<Arc<World>>>,
    /// The certificate authority, whose ledger says who may connect.
    pub(crate) ca: Arc<dyn CertificateManager>,
    /// Who is connected.
    pub(crate) proxies: Proxies,
    /// The clock.
    pub(crate) env: Env,
    /// Counters.
    pub(crate) metrics: Metrics,
    /// The tasks of the open streams.
    pub(crate) tasks: TaskTracker,
    /// How long a proxy may leave a response unanswered, or the queue of responses full.
    pub(crate) answer_limit: Duration,
    /// How long a connection may be without a stream.
    pub(crate) idle_limit: Duration,
    /// Ends all streams with OK and refuses new ones.
    pub(crate) draining: CancellationToken,
}

/// A request of either variant.
pub(super) trait Discovery: Message + Default + 'static {
    /// The variant it belongs to.
    const VARIANT: Variant;

    /// Who sends it; Envoy says so in the first request only.
    fn node(&self) -> Option<&Node>;

    /// Hands it to the session.
    fn step(&self, session: &mut Session, view: Option<&View>) -> Result<Step, ProtocolError>;
}

impl Discovery for DiscoveryRequest {
    const VARIANT: Variant = Variant::Sotw;

    fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    fn step(&self, session: &mut Session, view: Option<&View>) -> Result<Step, ProtocolError> {
        session.on_sotw(self, view)
    }
}

impl Discovery for DeltaDiscoveryRequest {
    const VARIANT: Variant = Variant::Delta;

    fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    fn step(&self, session: &mut Session, view: Option<&View>) -> Result<Step, ProtocolError> {
        session.on_delta(self, view)
    }
}

/// Where a stream's responses go.
type Outbound = mpsc::Sender<Result<Response, Status>>;

/// Opens a stream for an authenticated peer: spawns its driver and returns. Refuses while draining.
pub(super) fn open<R: Discovery>(
    context: Arc<Context>,
    scope: Scope,
    request: Request<Streaming<Received<R>>>,
    outbound: Outbound,
) -> Result<(), Status> {
    if context.draining.is_cancelled() {
        return Err(NotAdmitted::Draining.status());
    }
    let peer =
        request.extensions().get::<Peer>().cloned().ok_or_else(|| NotAdmitted::NoCertificate.status())?;
    let span = info_span!("stream", peer = %peer.connection.peer, proxy = tracing::field::Empty);
    let tasks = context.tasks.clone();
    let driver = Driver { context, scope, peer, requests: request.into_inner(), outbound };
    tasks.spawn(driver.run().instrument(span));
    Ok(())
}

struct Driver<R> {
    context: Arc<Context>,
    scope: Scope,
    peer: Peer,
    requests: Streaming<Received<R>>,
    outbound: Outbound,
}

impl<R: Discovery> Driver<R> {
    /// Runs the stream to its end, whatever that is.
    async fn run(mut self) {
        let ending = match self.enter().await {
            Err(ending) => ending,
            Ok(entered) => {
                let ending = self.drive(&entered).await;
                self.context.metrics.stream_ended(R::VARIANT, ending.reason());
                ending
            }
        };
        match &ending {
            Ending::NotAdmitted(refused) => {
                self.context.metrics.refused(refused.reason());
                warn!(%ending, "proxy refused");
            }
            Ending::Stalled | Ending::Protocol(_) | Ending::Superseded => warn!(%ending, "stream ended"),
            _ => info!(%ending, "stream ended"),
        }
        if let Some(status) = ending.status() {
            let said = timeout(LAST_WORD, self.outbound.send(Err(status))).await;
            if said.is_err() || matches!(ending, Ending::Stalled) {
                self.peer.connection.cut.cancel();
            }
        }
    }

    /// Admits the peer and enters it into the table of proxies.
    async fn enter(&mut self) -> Result<Entered, Ending> {
        let mut worlds = self.context.worlds.clone();
        let admission = tokio::select! {
            () = self.context.draining.cancelled() => return Err(Ending::Draining),
            () = self.outbound.closed() => return Err(Ending::Closed),
            admitted = admission::admitted(&self.context, &self.peer.certificate, &mut worlds) => admitted?,
        };
        tracing::Span::current().record("proxy", tracing::field::display(&admission.workload));
        let now = self.context.env.now();
        let connection = &self.peer.connection;
        let stream = OpenStream::new(admission, R::VARIANT, self.scope, connection.peer, now);
        let entered = self.context.proxies.enter(connection, stream)?.ok_or(Ending::Closed)?;
        // A release between the admission and the entry did not find this stream to end it.
        self.recheck()?;
        info!(variant = ?R::VARIANT, scope = ?self.scope, "stream opened");
        Ok(entered)
    }

    async fn drive(&mut self, entered: &Entered) -> Ending {
        let stream = &*entered.stream;
        let worlds = self.context.worlds.clone();
        let mut course = Course { worlds, seen: None, pushed: BTreeMap::new(), held: 0 };
        let pace = self.peer.connection.pace.clone();
        let mut recheck = interval(RECHECK_INTERVAL);
        let context = Arc::clone(&self.context);
        // The world may hold the proxy's view already; a session that was not asked yet sends nothing.
        course.worlds.mark_changed();
        loop {
            let ready_at = pace.ready_at(Instant::now());
            let stepped = tokio::select! {
                // The first that is ready: ends come before news, and news before further questions.
                biased;
                () = context.draining.cancelled() => return Ending::Draining,
                why = stream.stopped() => return why.into(),
                () = self.outbound.closed() => return Ending::Closed,
                () = until(course.deadline(context.answer_limit)) => return Ending::Stalled,
                _ = recheck.tick() => match self.recheck() {
                    Ok(()) => continue,
                    Err(refused) => return refused.into(),
                },
                changed = course.worlds.changed() => match changed {
                    Ok(()) => self.on_world(stream, &mut course),
                    Err(_) => return Ending::Draining,
                },
                request = next_request(&mut self.requests, ready_at) => match request {
                    Ok(Some(Received { request, bytes })) => {
                        pace.take(Instant::now(), bytes);
                        Self::on_request(stream, &mut course, &request)
                    }
                    Ok(None) => return Ending::Closed,
                    Err(status) => return status.into(),
                },
            };
            let delivered = match stepped {
                Ok(step) => self.deliver(entered, &mut course, step).await,
                Err(ending) => return ending,
            };
            if let Err(ending) = delivered {
                return ending;
            }
        }
    }

    /// A new world: what it changes for this proxy.
    fn on_world(&self, stream: &OpenStream, course: &mut Course) -> Result<Step, Ending> {
        let Some(world) = course.worlds.borrow_and_update().clone() else { return Ok(Step::default()) };
        let proxy = &stream.admission.proxy;
        let same = world.proxies.get(proxy).is_some_and(|known| {
            known.class.account == stream.admission.service_account
                && known.workload == stream.admission.workload
        });
        if !same {
            // The pod is gone, or is somebody else now, whom the certificate does not fit; or it has another name.
            self.recheck()?;
            return Err(Ending::Renamed);
        }
        let Some(view) = world.view(proxy) else { return Ok(Step::default()) };
        let touched = course.touched(&world, &view);
        let step = stream.state().session.on_view(&view, &touched);
        course.seen = Some((world.generation, view));
        Ok(step)
    }

    fn on_request(stream: &OpenStream, course: &mut Course, request: &R) -> Result<Step, Ending> {
        let mut state = stream.state();
        if let Some(node) = request.node() {
            stream.admission.check_node(&node.id).map_err(NotAdmitted::from)?;
            state.user_agent = user_agent(node);
        }
        let view = course.seen.as_ref().map(|(_, view)| view);
        Ok(request.step(&mut state.session, view)?)
    }

    /// Sends the responses of a step and takes note of its events, unless the proxy holds too much by now.
    async fn deliver(&self, entered: &Entered, course: &mut Course, step: Step) -> Result<(), Ending> {
        let stream = &*entered.stream;
        let held = stream.state().session.held_bytes();
        if held != course.held {
            course.held = held;
            entered.hold(held)?;
        }
        for event in step.events {
            self.note(stream, course, event);
        }
        for response in step.responses {
            let (kind, count) = (response.kind, response.resources.len() + response.removed.len());
            self.send(stream, response).await?;
            course.pushed.insert(kind, Instant::now());
            self.context.metrics.pushed(kind, count);
        }
        Ok(())
    }

    async fn send(&self, stream: &OpenStream, response: Response) -> Result<(), Ending> {
        let response = match self.outbound.try_send(Ok(response)) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => return Err(Ending::Closed),
            Err(TrySendError::Full(response)) => response,
        };
        tokio::select! {
            biased;
            () = self.context.draining.cancelled() => Err(Ending::Draining),
            why = stream.stopped() => Err(why.into()),
            sent = timeout(self.context.answer_limit, self.outbound.send(response)) => match sent {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) => Err(Ending::Closed),
                Err(_) => Err(Ending::Stalled),
            },
        }
    }

    fn note(&self, stream: &OpenStream, course: &mut Course, event: Event) {
        let proxy = &stream.admission.workload;
        match event {
            Event::Subscribed { kind } => debug!(%proxy, kind = kind.short(), "subscribed"),
            Event::Acked { kind, resources, removed, .. } => {
                let span = course.pushed.remove(&kind).map(|at| at.elapsed());
                self.context.metrics.acked(kind, span);
                stream.state().acked_at = Some(self.context.env.now());
                debug!(%proxy, kind = kind.short(), resources, removed, "update acknowledged");
            }
            Event::Rejected { kind, names, message, conclusive, .. } => {
                course.pushed.remove(&kind);
                self.context.metrics.rejected(kind);
                stream.state().rejections += 1;
                let (message, count) = (bounded(&message), names.len());
                let names = &names[..count.min(MAX_NAMES)];
                warn!(%proxy, kind = kind.short(), count, ?names, message, conclusive, "update rejected");
            }
            Event::UnknownType { url } => warn!(%proxy, url = bounded(&url), "type not served"),
        }
    }

    /// Whether the peer would still be admitted.
    fn recheck(&self) -> Result<(), NotAdmitted> {
        let world = self.context.worlds.borrow().clone();
        admission::check(&self.context, &self.peer.certificate, world.as_deref())?;
        Ok(())
    }
}

/// Where a stream stands in the course of worlds.
struct Course {
    worlds: watch::Receiver<Option<Arc<World>>>,
    /// The generation and view the session has seen last.
    seen: Option<(u64, View)>,
    /// When each type was last sent and not answered yet. The session has one response per type under way.
    pushed: BTreeMap<ResourceType, Instant>,
    /// What the names took that the session held, when that was last told.
    held: usize,
}

impl Course {
    /// When the proxy must have answered what it was sent first; `None` if it has answered everything.
    fn deadline(&self, limit: Duration) -> Option<Instant> {
        self.pushed.values().min().map(|&sent| sent + limit)
    }

    /// What the session must look at in `view` of `world`, given what it has seen.
    fn touched(&self, world: &World, view: &View) -> Touched {
        match &self.seen {
            Some((generation, seen)) if seen.class == view.class => {
                world.touched_since(*generation, &view.class)
            }
            _ => Touched::Everything,
        }
    }
}

/// Waits until a point in time, or for ever.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

/// The next request, read no earlier than `ready_at`.
async fn next_request<R>(
    requests: &mut Streaming<Received<R>>,
    ready_at: Instant,
) -> Result<Option<Received<R>>, Status> {
    sleep_until(ready_at).await;
    requests.message().await
}

/// Envoy's own name and version, as far as it says.
fn user_agent(node: &Node) -> String {
    let version = match &node.user_agent_version_type {
        Some(UserAgentVersionType::UserAgentVersion(version)) => version.clone(),
        Some(UserAgentVersionType::UserAgentBuildVersion(build)) => build
            .version
            .map(|v| format!("{}.{}.{}", v.major_number, v.minor_number, v.patch))
            .unwrap_or_default(),
        None => String::new(),
    };
    bounded(&format!("{} {version}", node.user_agent_name)).trim().to_owned()
}

/// Words of a peer, fit for a log line: bounded, without control characters.
fn bounded(words: &str) -> String {
    words.chars().take(MAX_WORDS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
