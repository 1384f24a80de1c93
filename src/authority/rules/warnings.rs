//! The warnings about the authority that an operator must act on.
//!
//! Owns their conditions and their texts.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::ledger::{CaCertificate, Ledger};
use crate::pki::{Lifetimes, SerialNumber};
use smc_types::time::Timestamp;

/// How long a new root may wait for acknowledgements alone before a warning: they take seconds.
const LATE: Duration = Duration::from_hours(1);

/// One warning. `Display` is the text for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaWarning {
    /// A trusted root could sign since an hour, but for missing acknowledgements.
    RootNotSigning {
        /// The root.
        root: SerialNumber,
        /// The replicas whose proxies have acknowledged the root.
        acknowledged: BTreeSet<u64>,
    },
    /// A signing CA has ended.
    Ended {
        /// The kind of CA, as a noun.
        kind: &'static str,
        /// The CA.
        ca: SerialNumber,
    },
    /// The remaining lifetime of a signing CA is shorter than that of the certificates it signs.
    Ending {
        /// The kind of CA, as a noun.
        kind: &'static str,
        /// The CA.
        ca: SerialNumber,
        /// The remaining lifetime.
        left: Duration,
    },
}

impl fmt::Display for CaWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RootNotSigning { root, acknowledged } => {
                let replicas: Vec<_> = acknowledged.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "the root {root} is trusted and does not sign: it waits for the proxies of all replicas to \
                     acknowledge it, and those of replicas [{}] have",
                    replicas.join(", ")
                )
            }
            Self::Ended { kind, ca } => write!(f, "the {kind} {ca} has ended: nothing can be issued"),
            Self::Ending { kind, ca, left } => {
                let days = left.as_secs() / (24 * 3600);
                write!(f, "the {kind} {ca} ends in {days} days: what it signs ends with it")
            }
        }
    }
}

/// The warnings at `now`. O(CAs), so cheap enough for periodic checks.
pub fn ca_warnings(ledger: &Ledger, lifetimes: &Lifetimes, now: Timestamp) -> Vec<CaWarning> {
    let Some(authority) = ledger.authority() else { return Vec::new() };
    // One that is declared waits for its role, or says itself what it waits for.
    let next = authority.next_root.iter().filter(|next| authority.declared_by(next.ca.serial).is_none());
    let late = next.filter(|next| now.since(next.old_trust_ends) > LATE);
    let late = late.map(|next| CaWarning::RootNotSigning {
        root: next.ca.serial,
        acknowledged: next.acknowledged.clone(),
    });
    let root = ending("root CA", &authority.root, lifetimes.issuing, now);
    let issuing = ending("issuing CA", &authority.issuing, lifetimes.proxy, now);
    late.chain(root).chain(issuing).collect()
}

/// The warning about the end of a CA whose certificates live for `signs`.
fn ending(kind: &'static str, ca: &CaCertificate, signs: Duration, now: Timestamp) -> Option<CaWarning> {
    let left = ca.validity.not_after.since(now);
    let ca = ca.serial;
    if left.is_zero() {
        Some(CaWarning::Ended { kind, ca })
    } else {
        (left < signs).then_some(CaWarning::Ending { kind, ca, left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{AcknowledgeRoot, Authority, Command, Operation, TrustRoot};
    use crate::pki::{SealedKey, Validity};
    use smc_types::ids::TrustDomain;

    const START: Timestamp = Timestamp(1_800_000_000);
    const DAY: Duration = Duration::from_hours(24);
    const YEAR: Duration = Duration::from_hours(365 * 24);

    fn serial(n: u8) -> SerialNumber {
        SerialNumber::draw([n; 16])
    }

    fn ca(n: u8, life: Duration) -> CaCertificate {
        CaCertificate {
            serial: serial(n),
            validity: Validity { not_before: START, not_after: START.plus(life) },
            certificate_pem: String::new(),
            key: SealedKey { encryption_key: String::new(), sealed: vec![] },
        }
    }

    /// Root 0 for ten years and issuing CA 1 for three, both from the start on.
    fn founded() -> Ledger {
        let domain = TrustDomain::new("cluster.local").unwrap();
        let authority = Authority::new(domain, ca(0, 10 * YEAR), ca(1, 3 * YEAR));
        let mut ledger = Ledger::default();
        apply(&mut ledger, Operation::InitAuthority(Box::new(authority)));
        ledger
    }

    fn apply(ledger: &mut Ledger, operation: Operation) {
        ledger.apply(&Command { at: START, operation }).unwrap();
    }

    fn warnings(ledger: &Ledger, at: Timestamp) -> Vec<CaWarning> {
        ca_warnings(ledger, &Lifetimes::default(), at)
    }

    #[test]
    fn a_ca_that_shortens_what_it_signs_is_warned_of_and_so_is_one_that_ended() {
        let ledger = founded();
        let ending =
            |kind, n, left| CaWarning::Ending { kind, ca: serial(n), left: Duration::from_secs(left) };
        let issuing_ended = CaWarning::Ended { kind: "issuing CA", ca: serial(1) };
        let root_ended = CaWarning::Ended { kind: "root CA", ca: serial(0) };
        let year = YEAR.as_secs();
        for (age, expected) in [
            (0, vec![]),
            (2 * year, vec![]),
            (2 * year + 1, vec![ending("issuing CA", 1, year - 1)]),
            (3 * year - 1, vec![ending("issuing CA", 1, 1)]),
            (3 * year, vec![issuing_ended.clone()]),
            (7 * year, vec![issuing_ended.clone()]),
            (7 * year + 1, vec![ending("root CA", 0, 3 * year - 1), issuing_ended.clone()]),
            (10 * year, vec![root_ended, issuing_ended]),
        ] {
            assert_eq!(warnings(&ledger, START.plus(Duration::from_secs(age))), expected, "{age}");
        }
        assert_eq!(warnings(&Ledger::default(), START), []);
    }

    #[test]
    fn a_root_that_waits_for_acknowledgements_is_warned_of_after_an_hour() {
        let mut ledger = founded();
        let root = Box::new(ca(2, 10 * YEAR));
        apply(&mut ledger, Operation::TrustRoot(TrustRoot { beside: serial(0), root }));
        for replica in [1, 4] {
            apply(&mut ledger, Operation::AcknowledgeRoot(AcknowledgeRoot { replica, root: serial(2) }));
        }
        assert_eq!(warnings(&ledger, START.plus(LATE)), []);
        let late = warnings(&ledger, START.plus(LATE).plus(Duration::from_secs(1)));
        let acknowledged = BTreeSet::from([1, 4]);
        assert_eq!(late, [CaWarning::RootNotSigning { root: serial(2), acknowledged }]);
        assert!(late[0].to_string().contains("replicas [1, 4] have"), "{}", late[0]);
    }

    #[test]
    fn the_text_names_the_ca_and_its_days() {
        let warning = CaWarning::Ending { kind: "root CA", ca: serial(0), left: 9 * DAY + YEAR / 1000 };
        assert_eq!(
            warning.to_string(),
            format!("the root CA {} ends in 9 days: what it signs ends with it", serial(0))
        );
    }
}
