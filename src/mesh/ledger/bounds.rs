//! How much the ledger takes. Each bound keeps a mistake or an attack from filling memory and disk; each
//! lies well above what a large mesh needs.

use std::time::Duration;

/// The longest PEM text of one certificate chain, in bytes: two P-256 certificates take 1.5 KiB.
pub const MAX_PEM_LEN: usize = 16 * 1024;

/// The longest sealed key, in bytes: a P-256 key in PKCS#8 takes 138 and sealing adds 28; a KMS adds its
/// own envelope.
pub const MAX_SEALED_LEN: usize = 4 * 1024;

/// Identities with a service certificate. A Kubernetes cluster is built for 10,000 namespaces.
pub const MAX_SERVICE_ACCOUNTS: usize = 100_000;

/// Superseded service certificates remembered per identity. One is the rule; more come from rotations by
/// hand, and the oldest then goes first. The last to end of each issuer stays beyond that, so that an issuer is
/// trusted as long as something that it signed is alive; issuers are few, and what has ended is pruned.
pub const MAX_SUPERSEDED: usize = 4;

/// Proxy certificates on record. A Kubernetes cluster is built for 150,000 pods; a record takes about
/// 300 bytes.
pub const MAX_PROXY_CERTIFICATES: usize = 500_000;

/// Live certificates of one proxy. One is the rule; more come from bootstraps written again.
pub const MAX_CERTIFICATES_PER_PROXY: usize = 64;

/// Proxy certificates that one command releases. What is one decision is then one sync of the log, and a command stays
/// within a few kilobytes.
pub const MAX_RELEASED_TOGETHER: usize = 256;

/// Private keys that one command exchanges: a command then stays within some tens of kilobytes.
pub const MAX_RESEALED_TOGETHER: usize = 256;

/// Controller certificates on record: a handful of replicas, renewed as often as every few seconds in
/// tests. The one that ends first makes room.
pub const MAX_CONTROLLER_CERTIFICATES: usize = 256;

/// Issuing CAs that sign no more, and are kept while something that they signed is alive: up to a year. By schedule
/// there is one; more come from rotations by hand, which are refused beyond this.
pub const MAX_FORMER_ISSUING: usize = 16;

/// Replicas that say that their proxies trust a new root. A group has a handful; those that left it since stay listed.
pub const MAX_ACKNOWLEDGING: usize = 64;

/// Names and addresses on one controller certificate.
pub const MAX_NAMES: usize = 64;

/// How long after its end a record is kept: longer than clocks of replicas differ.
pub const PRUNE_MARGIN: Duration = Duration::from_hours(1);

/// How long a released certificate is remembered as released. After that its serial is unknown, and refused
/// just the same.
pub const RELEASED_KEPT: Duration = Duration::from_hours(7 * 24);
