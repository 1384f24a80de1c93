//! One open stream of an admitted proxy, as the rest of the replica sees it: its state, and the request
//! to end it.
//!
//! Does not end the stream itself: the stream's own task does, so that every end is logged and counted
//! in one place.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, OnceLock};

use smc_authority::pki::SerialNumber;
use smc_authority::rules::Admission;
use smc_host::sync::lock;
use smc_types::time::Timestamp;
use smc_xds::resource::ResourceType;
use smc_xds::served_state::ServedState;
use smc_xds::session::{Scope, Session, SessionStatus, Variant};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// One open stream of an admitted proxy.
#[derive(Debug)]
pub struct OpenStream {
    /// The proxy, and the certificate that admitted it.
    pub admission: Admission,
    /// The variant of the protocol.
    pub variant: Variant,
    /// The types that it carries.
    pub scope: Scope,
    /// The proxy's address.
    pub peer: SocketAddr,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// The same on a clock that never jumps.
    pub(super) began: Instant,
    state: Mutex<OpenState>,
    stopped: CancellationToken,
    /// Set before `stopped` is cancelled.
    stop_reason: OnceLock<StopReason>,
}

/// The part of a stream that changes while it is open.
#[derive(Debug)]
pub(super) struct OpenState {
    /// The state of the protocol.
    pub(super) session: Session,
    /// The time of the latest ACK.
    pub(super) acked_at: Option<Timestamp>,
    /// The number of NACKs.
    pub(super) rejections: u64,
    /// Envoy's name and version, as it states them.
    pub(super) user_agent: String,
    /// The newest root CA whose trust bundle this proxy has ACKed.
    trusts: Option<SerialNumber>,
    /// The generation of the latest served state all of which this proxy is known to have answered.
    answered: u64,
}

/// The state of a stream at one moment.
#[derive(Debug, Clone)]
pub struct StreamReport {
    /// The time of the latest ACK.
    pub acked_at: Option<Timestamp>,
    /// The number of NACKs so far.
    pub rejections: u64,
    /// Envoy's name and version, as it states them.
    pub user_agent: String,
    /// The versions sent, ACKed and rejected.
    pub status: SessionStatus,
}

/// Why another part of the replica ends a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The proxy's certificate was released.
    Released,
    /// A newer stream of the proxy takes its place. Envoy closes the old stream before it opens a new
    /// one, so the old one is half-open and its end has not been noticed yet.
    Superseded,
    /// Another replica serves the proxy from now on: a drain or a hand-off. The stream ends with OK,
    /// and its connection is closed.
    Moved,
}

impl OpenStream {
    pub(super) fn new(
        admission: Admission,
        variant: Variant,
        scope: Scope,
        peer: SocketAddr,
        opened_at: Timestamp,
    ) -> Self {
        let state = OpenState {
            session: Session::new(variant, scope),
            acked_at: None,
            rejections: 0,
            user_agent: String::new(),
            trusts: None,
            answered: 0,
        };
        Self {
            admission,
            variant,
            scope,
            peer,
            opened_at,
            began: Instant::now(),
            state: Mutex::new(state),
            stopped: CancellationToken::new(),
            stop_reason: OnceLock::new(),
        }
    }

    /// The state of the stream now.
    pub fn report(&self) -> StreamReport {
        let state = self.state();
        StreamReport {
            acked_at: state.acked_at,
            rejections: state.rejections,
            user_agent: state.user_agent.clone(),
            status: state.session.status(),
        }
    }

    /// The generation of the latest served state of which the proxy is known to have answered all; 0 if there
    /// is none. Whether it has answered all of `served` is known after this call.
    pub(super) fn answered(&self, served: &ServedState) -> u64 {
        let mut state = self.state();
        let whole = |view| state.session.has_answered(&view);
        // A proxy whose pod is gone is sent nothing more.
        if served.view(&self.admission.proxy).is_none_or(whole) {
            state.answered = state.answered.max(served.generation);
        }
        state.answered
    }

    /// Records that the proxy trusts `root` if it has ACKed the secrets of `served`, whose trust bundle
    /// contains `root`. It stays recorded, because later bundles contain `root`, too.
    pub(super) fn update_trust(&self, root: SerialNumber, served: &ServedState) {
        let mut state = self.state();
        if state.trusts == Some(root) {
            return;
        }
        let acked = |view| state.session.has_acked(ResourceType::Secret, &view);
        if served.view(&self.admission.proxy).is_some_and(acked) {
            state.trusts = Some(root);
        }
    }

    /// Returns true if the proxy is recorded to trust `root`, or if this stream carries no secrets and
    /// so cannot show it.
    pub(super) fn trusts(&self, root: SerialNumber) -> bool {
        let carries_secrets = matches!(self.scope, Scope::Aggregated | Scope::Only(ResourceType::Secret));
        !carries_secrets || self.state().trusts == Some(root)
    }

    /// Locks the state for one step. The guard is never held across an await.
    pub(super) fn state(&self) -> MutexGuard<'_, OpenState> {
        lock(&self.state)
    }

    /// Resolves when the stream is to end, with the reason.
    pub(super) async fn stopped(&self) -> StopReason {
        self.stopped.cancelled().await;
        self.stop_reason.get().copied().unwrap_or(StopReason::Superseded)
    }

    /// Requests the end of the stream. The first reason stands.
    pub(super) fn stop(&self, reason: StopReason) {
        let _ = self.stop_reason.set(reason);
        self.stopped.cancel();
    }
}
