//! Announcements of applied commands.
//!
//! Owns the step from a command and its reply to an announcement. Both are equal on every replica,
//! so every replica announces the same, whether or not the proposer still waits for the reply.

use super::command::{Operation, RecordProxyCertificate, RecordServiceCertificate};
use super::outcome::Reply;
use crate::pki::SerialNumber;
use smc_types::ids::{ProxyName, ServiceAccountId};

/// A change of the ledger that other parts act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Announcement {
    /// An identity has a new certificate.
    ServiceIssued {
        /// The identity.
        account: ServiceAccountId,
        /// The certificate.
        serial: SerialNumber,
    },
    /// A proxy was issued a certificate.
    ProxyIssued {
        /// The proxy.
        proxy: ProxyName,
        /// The certificate.
        serial: SerialNumber,
    },
    /// A proxy connected with a certificate for the first time.
    ProxyClaimed {
        /// The certificate.
        serial: SerialNumber,
        /// Earlier certificates of the proxy, which were released with it, sorted: streams that were
        /// opened with them must end.
        released: Vec<SerialNumber>,
    },
    /// Proxy certificates were released: streams that were opened with them must end.
    ProxyReleased {
        /// The certificates, sorted.
        serials: Vec<SerialNumber>,
    },
    /// The CAs, or the state of one of them, have changed.
    AuthorityChanged,
    /// A replica came to another phase, or was forgotten.
    PlacementChanged,
    /// The state was replaced as a whole: the replica fell far behind and installed a snapshot. The
    /// changes in between are not announced. Receivers read the state, as after lost announcements.
    Replaced,
}

impl Announcement {
    /// The announcement of an applied operation and its reply; `None` if it changed nothing that
    /// other parts act on.
    pub fn of(operation: &Operation, reply: &Reply) -> Option<Self> {
        match (operation, reply) {
            (
                Operation::RecordServiceCertificate(RecordServiceCertificate { account, record, .. }),
                Reply::Recorded,
            ) => Some(Self::ServiceIssued { account: account.clone(), serial: record.serial }),
            (
                Operation::RecordProxyCertificate(RecordProxyCertificate { proxy, serial, .. }),
                Reply::Recorded,
            ) => Some(Self::ProxyIssued { proxy: proxy.clone(), serial: *serial }),
            (Operation::ClaimProxyCertificate(serial), Reply::Claimed { first: true, released }) => {
                Some(Self::ProxyClaimed { serial: *serial, released: released.clone() })
            }
            (_, Reply::PlacementChanged) => Some(Self::PlacementChanged),
            (_, Reply::AuthorityChanged) => Some(Self::AuthorityChanged),
            (_, Reply::Released { serials }) if !serials.is_empty() => {
                Some(Self::ProxyReleased { serials: serials.clone() })
            }
            _ => None,
        }
    }
}
