//! Who is connected to this replica, and what each stream was sent, acknowledged and rejected.
//!
//! Owns the table of open streams and the word that ends one from outside. Refuses to end it itself: a stream's
//! own task does, so that every end is logged and counted in one place.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use smc_mesh::ids::ProxyName;
use smc_mesh::pki::{Admission, SerialNumber};
use smc_mesh::problem::Problem;
use smc_mesh::session::{Scope, Session, SessionStatus, Variant};
use smc_mesh::time::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::telemetry::Metrics;

/// Streams one proxy may have open at once, over all its connections: one for ADS, or one per type and per
/// secret for a proxy on the separate services. More is not Envoy.
const MAX_STREAMS_PER_PROXY: usize = 64;

/// The open streams of one replica. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Proxies {
    table: Arc<Mutex<Table>>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Table {
    /// The next stream's number.
    next: u64,
    /// Streams by proxy, in the order they were opened.
    streams: BTreeMap<ProxyName, BTreeMap<u64, Arc<OpenStream>>>,
}

/// One open stream of an admitted proxy.
#[derive(Debug)]
pub struct OpenStream {
    /// Whose it is.
    pub admission: Admission,
    /// The protocol's variant.
    pub variant: Variant,
    /// Which types it carries.
    pub scope: Scope,
    /// The proxy's address.
    pub peer: SocketAddr,
    /// When it was opened.
    pub opened_at: Timestamp,
    state: Mutex<StreamState>,
    stopped: CancellationToken,
    why: OnceLock<Stop>,
}

/// What changes while a stream is open.
#[derive(Debug)]
pub(super) struct StreamState {
    /// The protocol's state.
    pub(super) session: Session,
    /// The latest acknowledgement.
    pub(super) acked_at: Option<Timestamp>,
    /// Rejected updates.
    pub(super) rejections: u64,
    /// What Envoy says about its build.
    pub(super) user_agent: String,
}

/// A stream as it looks at one moment.
#[derive(Debug, Clone)]
pub struct StreamReport {
    /// The latest acknowledgement.
    pub acked_at: Option<Timestamp>,
    /// Rejected updates so far.
    pub rejections: u64,
    /// What Envoy says about its build.
    pub user_agent: String,
    /// What was sent, acknowledged and rejected.
    pub status: SessionStatus,
}

/// Why a stream was told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The proxy's certificate was released.
    Released,
    /// The proxy opened a newer ADS stream. Envoy closes the old one before it opens a new one, so the old
    /// one is half-open and its end just has not been noticed.
    Superseded,
}

/// A proxy has too many streams open; trying again helps once others have closed.
#[derive(Debug, thiserror::Error)]
#[error("the proxy already has {MAX_STREAMS_PER_PROXY} streams open")]
pub(super) struct TooManyStreams;

impl Proxies {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { table: Arc::default(), metrics }
    }

    /// All open streams, by proxy, oldest first.
    pub fn streams(&self) -> BTreeMap<ProxyName, Vec<Arc<OpenStream>>> {
        let table = lock(&self.table);
        table
            .streams
            .iter()
            .map(|(proxy, streams)| (proxy.clone(), streams.values().cloned().collect()))
            .collect()
    }

    /// The open streams of one proxy, oldest first.
    pub fn streams_of(&self, proxy: &ProxyName) -> Vec<Arc<OpenStream>> {
        lock(&self.table)
            .streams
            .get(proxy)
            .map(|streams| streams.values().cloned().collect())
            .unwrap_or_default()
    }

    /// Tells the streams to end whose certificate was released. Costs a look at every stream.
    pub(crate) fn release(&self, released: impl Fn(&SerialNumber) -> bool) {
        for stream in self.streams().into_values().flatten() {
            if released(&stream.admission.serial) {
                stream.stop(Stop::Released);
            }
        }
    }

    /// What proxies rejected and still do not have, as problems of the mesh.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for stream in self.streams().into_values().flatten() {
            let object = format!("Proxy {}", stream.admission.workload);
            for (kind, status) in &stream.report().status.types {
                for (name, rejected) in &status.rejected {
                    let field = format!("{}/{name}", kind.short());
                    problems.push(Problem::error(&object, field, format!("rejected: {}", rejected.message)));
                }
            }
        }
        problems.sort();
        problems.dedup();
        problems
    }

    /// Enters a stream. A newer ADS stream ends the older one. The entry is gone when the guard is dropped.
    pub(super) fn enter(&self, stream: OpenStream) -> Result<Entered, TooManyStreams> {
        let proxy = stream.admission.proxy.clone();
        let stream = Arc::new(stream);
        let mut table = lock(&self.table);
        let number = table.next;
        table.next += 1;
        let streams = table.streams.entry(proxy.clone()).or_default();
        if streams.len() >= MAX_STREAMS_PER_PROXY {
            return Err(TooManyStreams);
        }
        if stream.scope == Scope::Aggregated {
            for older in streams.values().filter(|older| older.scope == Scope::Aggregated) {
                older.stop(Stop::Superseded);
            }
        }
        streams.insert(number, Arc::clone(&stream));
        self.metrics.proxies_connected(table.streams.len());
        self.metrics.stream_opened(stream.variant);
        drop(table);
        Ok(Entered { proxies: self.clone(), proxy, number, stream })
    }

    fn leave(&self, proxy: &ProxyName, number: u64) {
        let mut table = lock(&self.table);
        if let Some(streams) = table.streams.get_mut(proxy) {
            streams.remove(&number);
            if streams.is_empty() {
                table.streams.remove(proxy);
            }
        }
        self.metrics.proxies_connected(table.streams.len());
    }
}

impl OpenStream {
    pub(super) fn new(
        admission: Admission,
        variant: Variant,
        scope: Scope,
        peer: SocketAddr,
        opened_at: Timestamp,
    ) -> Self {
        let state = StreamState {
            session: Session::new(variant, scope),
            acked_at: None,
            rejections: 0,
            user_agent: String::new(),
        };
        Self {
            admission,
            variant,
            scope,
            peer,
            opened_at,
            state: Mutex::new(state),
            stopped: CancellationToken::new(),
            why: OnceLock::new(),
        }
    }

    /// The stream as it looks now.
    pub fn report(&self) -> StreamReport {
        let state = self.state();
        StreamReport {
            acked_at: state.acked_at,
            rejections: state.rejections,
            user_agent: state.user_agent.clone(),
            status: state.session.status(),
        }
    }

    /// The state, for one step. Never held across an await.
    pub(super) fn state(&self) -> MutexGuard<'_, StreamState> {
        lock(&self.state)
    }

    /// Resolves when somebody told the stream to end.
    pub(super) async fn stopped(&self) -> Stop {
        self.stopped.cancelled().await;
        // Set before the token is cancelled.
        self.why.get().copied().unwrap_or(Stop::Superseded)
    }

    fn stop(&self, why: Stop) {
        // The first reason stands.
        let _ = self.why.set(why);
        self.stopped.cancel();
    }
}

/// A stream's place in the table, given back when dropped.
#[derive(Debug)]
pub(super) struct Entered {
    proxies: Proxies,
    proxy: ProxyName,
    number: u64,
    /// The stream itself.
    pub(super) stream: Arc<OpenStream>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.proxies.leave(&self.proxy, self.number);
    }
}

/// Takes a lock. A panic elsewhere while it was held leaves plain data behind, which is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
