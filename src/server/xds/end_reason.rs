//! The reasons why an xDS stream ends, and the gRPC status of each.
//!
//! A stream that the server ends without a fault of the proxy ends with OK: Envoy then reconnects
//! without a warning.

use smc_xds::connections::Excess;
use smc_xds::session::ProtocolError;
use thiserror::Error;
use tonic::{Code, Status};

use super::open_stream::StopReason;
use super::proxies::room::Full;
use crate::registry::admission::NotAdmitted;

/// The reason why a stream ended.
#[derive(Debug, Error)]
pub(super) enum EndReason {
    #[error("the proxy closed it")]
    Closed,
    #[error("the connection broke: {}", .0.message())]
    Broken(Status),
    #[error("a request cannot be read: {}", .0.message())]
    Unreadable(Status),
    #[error("the server is shutting down")]
    Draining,
    #[error("refused: {}", smc_types::causes::causes(.0))]
    NotAdmitted(#[from] NotAdmitted),
    #[error("the proxy's certificate was released")]
    Released,
    #[error("the proxy opened a newer stream")]
    Superseded,
    #[error("another replica serves the proxy from now on")]
    Moved,
    #[error("the proxy's pod has another name now")]
    Renamed,
    #[error("the proxy broke the protocol: {0}")]
    Protocol(#[from] ProtocolError),
    #[error("the proxy does not read, or does not answer")]
    Stalled,
    #[error(transparent)]
    LimitExceeded(#[from] Excess),
    #[error(transparent)]
    Full(#[from] Full),
}

impl EndReason {
    /// The gRPC status for the proxy; `None` is OK.
    pub(super) fn status(&self) -> Option<Status> {
        let text = self.to_string();
        match self {
            Self::Closed | Self::Draining | Self::Moved | Self::Renamed => None,
            Self::Broken(status) | Self::Unreadable(status) => Some(Status::new(status.code(), text)),
            Self::NotAdmitted(refused) => Some(refused.status()),
            Self::Released => Some(Status::permission_denied(text)),
            Self::Superseded => Some(Status::aborted(text)),
            Self::Protocol(_) => Some(Status::invalid_argument(text)),
            Self::Stalled | Self::LimitExceeded(_) | Self::Full(_) => Some(Status::resource_exhausted(text)),
        }
    }

    /// Why a stream was refused before it was served, as the metric of refusals names it; `None` if it was
    /// not refused.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        match self {
            Self::NotAdmitted(refused) => Some(refused.reason()),
            Self::Full(_) => Some(self.reason()),
            _ => None,
        }
    }

    /// The label of the metric.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Broken(_) => "broken",
            Self::Unreadable(_) => "unreadable",
            Self::Draining => "draining",
            Self::NotAdmitted(_) => "refused",
            Self::Released => "released",
            Self::Superseded => "superseded",
            Self::Moved => "moved",
            Self::Renamed => "renamed",
            Self::Protocol(_) => "protocol",
            Self::Stalled => "stalled",
            Self::LimitExceeded(_) => "too_much",
            Self::Full(_) => "full",
        }
    }
}

/// An error of the transport or the codec in place of a request.
impl From<Status> for EndReason {
    fn from(status: Status) -> Self {
        match status.code() {
            // It exceeds the bound on its length, is no request or compressed, takes too long to arrive, or
            // too much is unhandled already.
            Code::OutOfRange
            | Code::InvalidArgument
            | Code::Unimplemented
            | Code::DeadlineExceeded
            | Code::ResourceExhausted => Self::Unreadable(status),
            _ => Self::Broken(status),
        }
    }
}

impl From<StopReason> for EndReason {
    fn from(reason: StopReason) -> Self {
        match reason {
            StopReason::Released => Self::Released,
            StopReason::Superseded => Self::Superseded,
            StopReason::Moved => Self::Moved,
        }
    }
}
