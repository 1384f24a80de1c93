//! One open stream of an admitted proxy, as the administration sees it and as others can end it.
//!
//! Owns its state and the word that ends it. Refuses to end it itself: the stream's own task does, so that every end is
//! logged and counted in one place.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, OnceLock};

use smc_mesh::pki::{Admission, SerialNumber};
use smc_mesh::resource::ResourceType;
use smc_mesh::session::{Scope, Session, SessionStatus, Variant};
use smc_mesh::time::Timestamp;
use smc_mesh::world::World;
use tokio_util::sync::CancellationToken;

use super::lock;

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
    /// The latest root of which it has taken that it is to trust it.
    trusts: Option<SerialNumber>,
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
    /// A newer stream of the proxy took its place. Envoy closes the old one before it opens a new one, so the old one
    /// is half-open and its end just has not been noticed.
    Superseded,
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
            trusts: None,
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

    /// Notes it if the proxy has taken that it is to trust `root`, as the secrets in `world` say. Once it has, it has for
    /// good: what it is sent later says so, too.
    pub(super) fn look_for_trust(&self, root: SerialNumber, world: &World) {
        let mut state = self.state();
        if state.trusts == Some(root) {
            return;
        }
        let taken = |view| state.session.has_taken(ResourceType::Secret, &view);
        if world.view(&self.admission.proxy).is_some_and(taken) {
            state.trusts = Some(root);
        }
    }

    /// Whether the proxy was seen to trust `root`. A stream that carries no secrets has nothing to say to that.
    pub(super) fn trusts(&self, root: SerialNumber) -> bool {
        let speaks = matches!(self.scope, Scope::Aggregated | Scope::Only(ResourceType::Secret));
        !speaks || self.state().trusts == Some(root)
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

    pub(super) fn stop(&self, why: Stop) {
        // The first reason stands.
        let _ = self.why.set(why);
        self.stopped.cancel();
    }
}
