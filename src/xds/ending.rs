//! Why an xDS stream ended, and what the proxy is told.
//!
//! Owns the mapping to gRPC statuses. A stream that ends for a reason of ours and without anybody's fault ends
//! with OK: Envoy then comes back without a warning.

use smc_mesh::connections::Excess;
use smc_mesh::session::ProtocolError;
use thiserror::Error;
use tonic::{Code, Status};

use super::admission::NotAdmitted;
use super::open_stream::Stop;

/// The end of a stream.
#[derive(Debug, Error)]
pub(super) enum Ending {
    #[error("the proxy closed it")]
    Closed,
    #[error("the connection broke: {}", .0.message())]
    Broken(Status),
    #[error("a request cannot be read: {}", .0.message())]
    Unreadable(Status),
    #[error("the server is shutting down")]
    Draining,
    #[error("refused: {}", crate::error::causes(.0))]
    NotAdmitted(#[from] NotAdmitted),
    #[error("the proxy's certificate was released")]
    Released,
    #[error("the proxy opened a newer stream")]
    Superseded,
    #[error("the proxy's pod has another name now")]
    Renamed,
    #[error("the proxy broke the protocol: {0}")]
    Protocol(#[from] ProtocolError),
    #[error("the proxy does not read, or does not answer")]
    Stalled,
    #[error(transparent)]
    TooMuch(#[from] Excess),
}

impl Ending {
    /// What the proxy is told; `None` is OK.
    pub(super) fn status(&self) -> Option<Status> {
        let text = self.to_string();
        match self {
            Self::Closed | Self::Draining | Self::Renamed => None,
            Self::Broken(status) | Self::Unreadable(status) => Some(Status::new(status.code(), text)),
            Self::NotAdmitted(refused) => Some(refused.status()),
            Self::Released => Some(Status::permission_denied(text)),
            Self::Superseded => Some(Status::aborted(text)),
            Self::Protocol(_) => Some(Status::invalid_argument(text)),
            Self::Stalled | Self::TooMuch(_) => Some(Status::resource_exhausted(text)),
        }
    }

    /// The label it is counted under.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Broken(_) => "broken",
            Self::Unreadable(_) => "unreadable",
            Self::Draining => "draining",
            Self::NotAdmitted(_) => "refused",
            Self::Released => "released",
            Self::Superseded => "superseded",
            Self::Renamed => "renamed",
            Self::Protocol(_) => "protocol",
            Self::Stalled => "stalled",
            Self::TooMuch(_) => "too_much",
        }
    }
}

/// What came instead of a request.
impl From<Status> for Ending {
    fn from(status: Status) -> Self {
        match status.code() {
            // It is too long, or not what it should be.
            Code::OutOfRange | Code::InvalidArgument => Self::Unreadable(status),
            _ => Self::Broken(status),
        }
    }
}

impl From<Stop> for Ending {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Released => Self::Released,
            Stop::Superseded => Self::Superseded,
        }
    }
}
