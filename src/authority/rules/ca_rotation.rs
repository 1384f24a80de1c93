//! The schedule of CA rotation: when an issuing CA or a root is replaced, and the next step of a
//! replacement.
//!
//! Owns the schedule and the order of steps, as a function of the ledger, the group's members and
//! the time. Does not guarantee safety: the ledger checks the conditions of each step when it is
//! applied.

use std::collections::BTreeSet;
use std::time::Duration;

use super::clock_stability::STEADY_AFTER;
use super::declared_roots::DeclaredRoots;
use crate::ledger::{Authority, Ledger, MAX_FORMER_ISSUING, PRUNE_MARGIN};
use crate::pki::{IssuerEnding, Lifetimes, SerialNumber, Validity};
use smc_types::ids::NamespacedName;
use smc_types::time::Timestamp;

/// One step, conditional on the state that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaStep {
    /// Replace the issuing CA by a new one under the same root.
    RotateIssuing {
        /// The issuing CA that signs.
        replaces: SerialNumber,
    },
    /// Make a root, and trust it beside the one that signs.
    TrustRoot {
        /// The root that signs.
        beside: SerialNumber,
    },
    /// Make an issuing CA under the next root, and sign with it.
    SignWithNextRoot {
        /// The next root.
        root: SerialNumber,
        /// The group's members, all of which have acknowledged the root.
        replicas: BTreeSet<u64>,
    },
    /// End the signing for controllers under the former root.
    EndControllerIssuer {
        /// The issuing CA under that root.
        issuing: SerialNumber,
    },
    /// Delete a former CA.
    RetireCa(SerialNumber),
    /// Give up the next root, which is not declared any more.
    CancelRoot {
        /// The next root.
        root: SerialNumber,
    },
    /// Record which object declares a root.
    NameRoot {
        /// The root.
        root: SerialNumber,
        /// The object.
        object: NamespacedName,
    },
}

/// The due step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CaPlan {
    /// The step to take now.
    pub step: Option<CaStep>,
    /// The latest time to plan again; `None` if only a change of the ledger or of the members makes
    /// a step due.
    pub next: Option<Timestamp>,
}

/// The inputs of a plan besides the ledger.
#[derive(Debug, Clone, Copy)]
pub struct RotationInputs<'a> {
    /// The lifetimes of CAs and certificates.
    pub lifetimes: &'a Lifetimes,
    /// The group's members.
    pub replicas: &'a BTreeSet<u64>,
    /// The time.
    pub now: Timestamp,
    /// Whether the clock can be trusted with irreversible steps ([`super::ClockStability`]):
    /// beginning a scheduled rotation, and deleting CAs.
    pub steady: bool,
    /// The roots that a person declares.
    pub declared: &'a DeclaredRoots,
}

/// The remaining lifetime at which a CA is replaced: a twelfth more than the longest lifetime of
/// what it signs. So no certificate is shortened, and an operator has a month (for the issuing CA;
/// three for the root) to mend a stuck rotation before the first warning.
fn lead(signs: Duration) -> Duration {
    signs + signs / 12
}

/// Plans the next step.
pub fn plan_ca_rotation(ledger: &Ledger, inputs: RotationInputs<'_>) -> CaPlan {
    let Some(authority) = ledger.authority() else { return CaPlan::default() };
    let plans = [
        inputs.declared.plan(ledger, authority, inputs.now),
        introduce(authority, ledger, inputs),
        replace_root(authority, inputs),
        replace_issuing(authority, inputs),
        retire(authority, ledger, inputs),
    ];
    let next = plans.iter().filter_map(|plan| plan.next).min();
    CaPlan { step: plans.into_iter().find_map(|plan| plan.step), next }
}

/// A plan with a step that is due from `due` on.
pub(super) fn from(due: Timestamp, now: Timestamp, step: impl FnOnce() -> CaStep) -> CaPlan {
    if due <= now {
        CaPlan { step: Some(step()), next: None }
    } else {
        CaPlan { step: None, next: Some(due) }
    }
}

/// Whether the root is due for another one by the schedule. From then on no declaration holds a step back.
fn is_due(authority: &Authority, inputs: RotationInputs<'_>) -> bool {
    due(&authority.root.validity, inputs.lifetimes.issuing, inputs.now) <= inputs.now
}

/// Signs with the next root once the proxies of every replica trust it, and the certificates of all
/// others have ended.
fn introduce(authority: &Authority, ledger: &Ledger, inputs: RotationInputs<'_>) -> CaPlan {
    let Some(next) = &authority.next_root else { return CaPlan::default() };
    let replicas = inputs.replicas;
    // After a jump of the clock this step would cut off valid peers, and it deletes the old root's
    // key.
    let long = next.old_trust_ends.since(next.trusted_since) >= STEADY_AFTER;
    if (long && !inputs.steady && !next.hastened)
        || !next.ca.validity.contains(inputs.now)
        || replicas.is_empty()
        || !replicas.is_subset(&next.acknowledged)
    {
        return CaPlan::default();
    }
    if inputs.declared.holds_next(ledger, authority) && !is_due(authority, inputs) {
        let due = due(&authority.root.validity, inputs.lifetimes.issuing, inputs.now);
        return CaPlan { step: None, next: Some(due) };
    }
    let step = || CaStep::SignWithNextRoot { root: next.ca.serial, replicas: replicas.clone() };
    let due = if next.hastened { inputs.now } else { next.old_trust_ends.plus(Duration::from_secs(1)) };
    from(due, inputs.now, step)
}

/// Introduces another root early enough that an issuing CA under the old one is never shortened.
/// One at a time.
fn replace_root(authority: &Authority, inputs: RotationInputs<'_>) -> CaPlan {
    let RotationInputs { lifetimes, now, steady, .. } = inputs;
    let coming = authority.next_root.as_ref().is_some_and(|next| next.ca.validity.contains(now));
    if !steady || coming || authority.former_root.is_some() {
        return CaPlan::default();
    }
    let due = due(&authority.root.validity, lifetimes.issuing, now);
    from(due, now, || CaStep::TrustRoot { beside: authority.root.serial })
}

/// The step without which a replica that starts can sign nothing: another issuing CA, if the one on
/// record has ended while no replica ran, or is not valid yet since a clock that was ahead made it.
/// `Err` if the root cannot sign one, either.
///
/// It waits for no steady clock. Every peer trusts the root already, what the replaced CA signed stays
/// trusted for as long as it is valid, and a wrong clock's CA is replaced in the same way once the
/// clock is right.
pub fn revive_issuing(
    authority: &Authority,
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Result<Option<CaStep>, IssuerEnding> {
    let Authority { root, issuing, .. } = authority;
    // As for the certificate of the controller itself.
    if lifetimes.service_validity(now, &issuing.validity, 0).is_ok() {
        return Ok(None);
    }
    lifetimes.issuing_validity(now, &root.validity)?;
    Ok(Some(CaStep::RotateIssuing { replaces: issuing.serial }))
}

/// Replaces the issuing CA early enough that a proxy certificate is never shortened. Only if the
/// new one would last longer: it cannot outlive its root. One that is not valid yet, which a clock made that
/// was ahead, is replaced at once: it signs nothing that a peer accepts.
fn replace_issuing(authority: &Authority, inputs: RotationInputs<'_>) -> CaPlan {
    let RotationInputs { lifetimes, now, steady, .. } = inputs;
    let current = &authority.issuing;
    let early = now < current.validity.not_before;
    if !(steady || early) || authority.former_issuing.len() >= MAX_FORMER_ISSUING {
        return CaPlan::default();
    }
    let due = due(&current.validity, lifetimes.proxy, now).max(now);
    let lasts = lifetimes.issuing_validity(due, &authority.root.validity);
    let longer = current.validity.not_after.plus(lifetimes.proxy / 12);
    if !lasts.is_ok_and(|validity| early || validity.not_after > longer) {
        return CaPlan::default();
    }
    from(due, now, || CaStep::RotateIssuing { replaces: current.serial })
}

/// The time at which a CA is replaced whose certificates live for `signs`. At once if the CA is not
/// valid.
fn due(validity: &Validity, signs: Duration, now: Timestamp) -> Timestamp {
    if validity.contains(now) { validity.not_after.minus(lead(signs)) } else { now }
}

/// Retires former CAs: first ends the signing under the former root, then deletes the issuing CAs
/// without a live certificate, then the root.
fn retire(authority: &Authority, ledger: &Ledger, inputs: RotationInputs<'_>) -> CaPlan {
    let RotationInputs { now, steady, .. } = inputs;
    if !steady || (authority.former_issuing.is_empty() && authority.former_root.is_none()) {
        return CaPlan::default();
    }
    let after = |end: Timestamp| end.plus(PRUNE_MARGIN).plus(Duration::from_secs(1));
    let mut next: Option<Timestamp> = None;
    let mut wait = |until: Timestamp| next = Some(next.map_or(until, |earlier| earlier.min(until)));
    if let (Some(issuer), Some(root)) = (&authority.controller_issuer, &authority.former_root) {
        let Some(end) = ledger.last_proxy_end_under(root.serial, now) else {
            let step = CaStep::EndControllerIssuer { issuing: issuer.serial };
            return CaPlan { step: Some(step), next: None };
        };
        wait(after(end));
    }
    let signed = ledger.signed(now);
    for former in &authority.former_issuing {
        let still_signs = authority.is_controller_issuer(former.serial);
        match signed.get(&former.serial).and_then(|signed| signed.last_end) {
            _ if still_signs => {}
            Some(end) => wait(after(end)),
            None => return CaPlan { step: Some(CaStep::RetireCa(former.serial)), next: None },
        }
    }
    let held = inputs.declared.holds_former(ledger, authority) && !is_due(authority, inputs);
    let root = authority.former_root.as_ref().filter(|_| !held);
    let root = root.filter(|root| !authority.former_issuing.iter().any(|former| former.root == root.serial));
    CaPlan { step: root.map(|root| CaStep::RetireCa(root.serial)), next }
}

#[cfg(test)]
mod tests;
