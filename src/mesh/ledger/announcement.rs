//! What others want to hear of an applied command.
//!
//! Owns the step from a command and its reply to the news in it. It looks at what was applied and not at who asked, so
//! the same is announced on every replica, whether or not the one who asked still waits for the reply.

use super::command::{Operation, Reply};
use crate::ids::{ProxyName, ServiceAccountId};
use crate::pki::SerialNumber;

/// Something happened to the certificates.
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
    },
    /// Proxy certificates were released: what was opened with them is to end.
    ProxyReleased {
        /// The certificates, sorted.
        serials: Vec<SerialNumber>,
    },
    /// The CAs are others now, or are in another part of their life.
    AuthorityChanged,
    /// The state was replaced as a whole, as when a replica that fell far behind takes over a snapshot. What happened
    /// between is not told: whoever listens reads the state, as if it had lost announcements.
    Replaced,
}

impl Announcement {
    /// The news in an operation that was answered so. None if it changed nothing that anybody acts on.
    pub fn of(operation: &Operation, reply: &Reply) -> Option<Self> {
        match (operation, reply) {
            (Operation::RecordServiceCertificate { account, record, .. }, Reply::Recorded) => {
                Some(Self::ServiceIssued { account: account.clone(), serial: record.serial })
            }
            (Operation::RecordProxyCertificate { proxy, serial, .. }, Reply::Recorded) => {
                Some(Self::ProxyIssued { proxy: proxy.clone(), serial: *serial })
            }
            (Operation::ClaimProxyCertificate(serial), Reply::Claimed { first: true }) => {
                Some(Self::ProxyClaimed { serial: *serial })
            }
            (_, Reply::AuthorityChanged) => Some(Self::AuthorityChanged),
            (_, Reply::Released { serials }) if !serials.is_empty() => {
                Some(Self::ProxyReleased { serials: serials.clone() })
            }
            _ => None,
        }
    }
}
