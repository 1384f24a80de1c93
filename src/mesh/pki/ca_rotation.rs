//! What is to be done next with the CAs: when one is to be replaced, and how a root that is being replaced goes on.
//!
//! Owns the schedule and the order, as a function of what the ledger holds, who the replicas are, and the time. Refuses to
//! make CAs, and is not what keeps the mesh safe: the ledger checks each step again when it is applied.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Lifetimes, SerialNumber, Validity};
use crate::ledger::{Authority, Ledger, MAX_FORMER_ISSUING, PRUNE_MARGIN};
use crate::time::Timestamp;

/// One step, conditional on what was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaStep {
    /// Make an issuing CA under the root that signs, in the place of this one.
    RotateIssuing {
        /// The one that signs.
        replaces: SerialNumber,
    },
    /// Make a root, to be trusted beside this one.
    TrustRoot {
        /// The one that signs.
        beside: SerialNumber,
    },
    /// Make an issuing CA under the next root, and sign with it.
    SignWithNextRoot {
        /// The next root.
        root: SerialNumber,
        /// The replicas, all of which have acknowledged it.
        replicas: BTreeSet<u64>,
    },
    /// Let nothing be signed under the former root any more.
    EndVouching {
        /// The issuing CA under it that signs for controllers.
        issuing: SerialNumber,
    },
    /// Forget a former CA.
    RetireCa(SerialNumber),
}

/// What is due.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CaPlan {
    /// What to do now.
    pub step: Option<CaStep>,
    /// When to look again at the latest; `None` if nothing but a change of the ledger or the replicas brings a step.
    pub next: Option<Timestamp>,
}

/// What the plan depends on besides the ledger.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// How long CAs and certificates live.
    pub lifetimes: &'a Lifetimes,
    /// The group's members.
    pub replicas: &'a BTreeSet<u64>,
    /// The time.
    pub now: Timestamp,
    /// Whether the clock can be trusted with what cannot be undone ([`super::Steadiness`]): beginning a rotation that
    /// nobody asked for, and forgetting CAs.
    pub steady: bool,
}

/// How much of its life a CA is to have left when it is replaced, given the longest life of what it signs: a twelfth
/// more than that. So nothing is shortened, and there is a month (for the issuing CA; three for the root) in which
/// somebody can see to a rotation that does not get on, before the first warning.
fn lead(signs: Duration) -> Duration {
    signs + signs / 12
}

/// Plans the next step.
pub fn plan_ca_rotation(ledger: &Ledger, circumstances: Circumstances<'_>) -> CaPlan {
    let Some(authority) = ledger.authority() else { return CaPlan::default() };
    let plans = [
        introduce(authority, circumstances),
        replace_root(authority, circumstances),
        replace_issuing(authority, circumstances),
        retire(authority, ledger, circumstances),
    ];
    let next = plans.iter().filter_map(|plan| plan.next).min();
    CaPlan { step: plans.into_iter().find_map(|plan| plan.step), next }
}

/// A step that is due from a moment on.
fn from(due: Timestamp, now: Timestamp, step: impl FnOnce() -> CaStep) -> CaPlan {
    if due <= now {
        CaPlan { step: Some(step()), next: None }
    } else {
        CaPlan { step: None, next: Some(due) }
    }
}

/// Signs with the next root once every replica's proxies trust it, and nobody else's certificate is good any more.
fn introduce(authority: &Authority, circumstances: Circumstances<'_>) -> CaPlan {
    let Some(next) = &authority.next_root else { return CaPlan::default() };
    let replicas = circumstances.replicas;
    if !next.ca.validity.contains(circumstances.now)
        || replicas.is_empty()
        || !replicas.is_subset(&next.acknowledged)
    {
        return CaPlan::default();
    }
    let step = || CaStep::SignWithNextRoot { root: next.ca.serial, replicas: replicas.clone() };
    from(next.untold_until.plus(Duration::from_secs(1)), circumstances.now, step)
}

/// Brings in another root early enough that an issuing CA under the old one is never shortened. One at a time.
fn replace_root(authority: &Authority, circumstances: Circumstances<'_>) -> CaPlan {
    let Circumstances { lifetimes, now, steady, .. } = circumstances;
    let coming = authority.next_root.as_ref().is_some_and(|next| next.ca.validity.contains(now));
    if !steady || coming || authority.former_root.is_some() {
        return CaPlan::default();
    }
    let due = due(&authority.root.validity, lifetimes.issuing, now);
    from(due, now, || CaStep::TrustRoot { beside: authority.root.serial })
}

/// Makes another issuing CA early enough that a proxy certificate is never shortened, if it would last longer: it cannot
/// outlive its root.
fn replace_issuing(authority: &Authority, circumstances: Circumstances<'_>) -> CaPlan {
    let Circumstances { lifetimes, now, steady, .. } = circumstances;
    if !steady || authority.former_issuing.len() >= MAX_FORMER_ISSUING {
        return CaPlan::default();
    }
    let current = &authority.issuing;
    let due = due(&current.validity, lifetimes.proxy, now).max(now);
    let lasts = lifetimes.issuing_validity(due, &authority.root.validity);
    let longer = current.validity.not_after.plus(lifetimes.proxy / 12);
    if !lasts.is_ok_and(|validity| validity.not_after > longer) {
        return CaPlan::default();
    }
    from(due, now, || CaStep::RotateIssuing { replaces: current.serial })
}

/// When a CA is to be replaced that signs what lives for `signs`. At once if it is not valid.
fn due(validity: &Validity, signs: Duration, now: Timestamp) -> Timestamp {
    if validity.contains(now) { validity.not_after.minus(lead(signs)) } else { now }
}

/// Takes leave of former CAs: first no more signatures under the former root, then those that signed nothing that is
/// alive, then the root.
fn retire(authority: &Authority, ledger: &Ledger, circumstances: Circumstances<'_>) -> CaPlan {
    let Circumstances { now, steady, .. } = circumstances;
    if !steady || (authority.former_issuing.is_empty() && authority.former_root.is_none()) {
        return CaPlan::default();
    }
    let after = |end: Timestamp| end.plus(PRUNE_MARGIN).plus(Duration::from_secs(1));
    let mut next: Option<Timestamp> = None;
    let mut wait = |until: Timestamp| next = Some(next.map_or(until, |earlier| earlier.min(until)));
    if let (Some(vouching), Some(root)) = (&authority.vouching, &authority.former_root) {
        let Some(end) = ledger.last_proxy_end_under(root.serial, now) else {
            let step = CaStep::EndVouching { issuing: vouching.serial };
            return CaPlan { step: Some(step), next: None };
        };
        wait(after(end));
    }
    let signed = ledger.signed(now);
    for former in &authority.former_issuing {
        let vouches = authority.vouching.as_ref().is_some_and(|vouching| vouching.serial == former.serial);
        match signed.get(&former.serial).and_then(|signed| signed.last_end) {
            _ if vouches => {}
            Some(end) => wait(after(end)),
            None => return CaPlan { step: Some(CaStep::RetireCa(former.serial)), next: None },
        }
    }
    let root = authority.former_root.as_ref();
    let root = root.filter(|root| !authority.former_issuing.iter().any(|former| former.root == root.serial));
    CaPlan { step: root.map(|root| CaStep::RetireCa(root.serial)), next }
}

#[cfg(test)]
#[path = "ca_rotation_tests.rs"]
mod tests;
