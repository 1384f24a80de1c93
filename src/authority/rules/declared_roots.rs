//! The roots of the mesh as a person declares them, with OSM's MeshRootCertificates.
//!
//! Owns which declared root each root on record is, what the roles ask of the rotation, and what they hold
//! back. A role asks, and the ledger's conditions for each step stay what they are: a root signs once every
//! sidecar trusts it, and is retired once nothing that it signed is valid. OSM has no such condition, and two
//! active roots sign by chance there; here the newer one does.
//!
//! What is declared never lets the mesh end: a root that is due by the schedule is replaced, whatever a
//! forgotten object says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smc_types::ids::NamespacedName;
use smc_types::time::Timestamp;
use thiserror::Error;

use super::ca_rotation::{CaPlan, CaStep, from};
use crate::ledger::{Authority, Ledger, Rules};
use crate::pki::SerialNumber;

/// The most roots that may be declared and not inactive: OSM's bound, and the ledger's, which rotates one
/// root at a time.
const MOST_IN_USE: usize = 2;

/// How long a root is trusted at least before it is given up. Objects that come and go make every sidecar
/// take new roots, and do so once in this time at most.
const KEPT: Duration = Duration::from_mins(1);

/// What is asked of a declared root (OSM's `role`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootRole {
    /// Sidecars trust it, and it signs nothing new.
    Passive,
    /// It signs, once every sidecar trusts it.
    Active,
    /// It is retired.
    Inactive,
}

/// The roots that are declared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DeclaredRoots {
    /// It is not known what is declared: no root is introduced or retired if the group knows of declared
    /// ones.
    #[default]
    Unknown,
    /// What is declared cannot be obeyed: no root is introduced or retired.
    Contradicting,
    /// The role of each, by its object. Without any, roots are rotated by the schedule alone.
    Roles(BTreeMap<NamespacedName, RootRole>),
}

/// Why what is declared cannot be obeyed. Nothing changes as long as it cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Contradiction {
    /// Too many roots.
    #[error(
        "{0} MeshRootCertificates are passive or active, and at most 2 may be: no root changes as long as that is so"
    )]
    TooMany(usize),
    /// Nothing would sign.
    #[error("no MeshRootCertificate is active, and one has to be: no root changes as long as that is so")]
    NoneActive,
}

impl Contradiction {
    /// Whether an object of this role is part of it.
    pub fn is_of(self, role: RootRole) -> bool {
        role != RootRole::Inactive || self == Self::NoneActive
    }
}

/// What keeps a declared root from being what its role asks for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RootObstacle {
    /// A controller does not know declared roots yet.
    #[error("waits until every controller runs a version that obeys MeshRootCertificates")]
    Rules,
    /// There is no root for it yet, since the one before the signing one is still trusted.
    #[error("has no root yet: the root {0} is retired first, once nothing that it signed is valid")]
    Retiring(SerialNumber),
    /// There is no root for it yet.
    #[error("has no root yet: the leading controller makes it")]
    Unmade,
    /// Sidecars may not trust it yet.
    #[error("does not sign yet: replicas {} have sidecars that do not trust it", list(.0))]
    Unacknowledged(BTreeSet<u64>),
    /// Certificates from before its trust may be in use.
    #[error(
        "does not sign before {} (seconds since 1970), when the last certificate from before its trust ends; `smc ca \
         rotate --hasten` does not wait for that",
        .0.0
    )]
    OldTrust(Timestamp),
    /// It signed before the root that signs now.
    #[error(
        "signs no more: a newer root does, and its key is deleted; for another root, declare a MeshRootCertificate of \
         another name"
    )]
    Superseded,
    /// It signs.
    #[error("signs until the root of an active MeshRootCertificate does")]
    Signing,
    /// It is trusted.
    #[error("is trusted until nothing that it signed is valid")]
    StillTrusted,
}

fn list(replicas: &BTreeSet<u64>) -> String {
    let numbers: Vec<_> = replicas.iter().map(u64::to_string).collect();
    numbers.join(", ")
}

impl DeclaredRoots {
    /// Nothing is declared.
    pub fn none() -> Self {
        Self::Roles(BTreeMap::new())
    }

    /// What these objects declare.
    pub fn of(roles: BTreeMap<NamespacedName, RootRole>) -> Self {
        if contradiction(roles.values().copied()).is_some() {
            Self::Contradicting
        } else {
            Self::Roles(roles)
        }
    }

    /// The objects whose roots are trusted.
    fn in_use(&self) -> impl Iterator<Item = &NamespacedName> + '_ {
        let in_use = self.roles().into_iter().flatten().filter(|(_, role)| **role != RootRole::Inactive);
        in_use.map(|(object, _)| object)
    }

    fn role(&self, object: &NamespacedName) -> Option<RootRole> {
        self.roles()?.get(object).copied()
    }

    fn roles(&self) -> Option<&BTreeMap<NamespacedName, RootRole>> {
        match self {
            Self::Unknown | Self::Contradicting => None,
            Self::Roles(roles) => Some(roles),
        }
    }

    /// Whether all steps are held back, so that none is taken against what is declared.
    fn holds_all(&self, authority: &Authority) -> bool {
        match self {
            Self::Unknown => authority.has_declared_roots(),
            Self::Contradicting => true,
            Self::Roles(_) => false,
        }
    }

    /// The objects that are in use and have no root.
    fn without_root<'a>(&'a self, authority: &'a Authority) -> impl Iterator<Item = &'a NamespacedName> + 'a {
        self.in_use().filter(|object| authority.root_declared_by(object).is_none())
    }

    /// The step that is due because of what is declared. Nothing is due before [`Rules::Fifth`], which every
    /// member of the group has to know.
    pub(super) fn plan(&self, ledger: &Ledger, authority: &Authority, now: Timestamp) -> CaPlan {
        if ledger.rules() < Rules::Fifth {
            return CaPlan::default();
        }
        let signing = authority.root.serial;
        if let Some(object) = self.signing_object(authority) {
            return from(now, now, || CaStep::NameRoot { root: signing, object });
        }
        let wanted = self.without_root(authority).next();
        if let Some(next) = &authority.next_root {
            let root = next.ca.serial;
            return match (authority.declared_by(root), wanted) {
                (None, Some(object)) => from(now, now, || CaStep::NameRoot { root, object: object.clone() }),
                // Nothing is signed under it, so that nothing loses its trust.
                (Some(object), _) if self.roles().is_some() && !self.in_use().any(|used| used == object) => {
                    from(next.trusted_since.plus(KEPT), now, || CaStep::CancelRoot { root })
                }
                _ => CaPlan::default(),
            };
        }
        // As where a person asks for it by a command, this waits for no steady clock.
        if authority.former_root.is_none() && wanted.is_some() {
            return from(now, now, || CaStep::TrustRoot { beside: signing });
        }
        CaPlan::default()
    }

    /// The active object that means the root that signs, where that has no object yet. It is the first one
    /// whose own root does not sign later: at the first declaration, and where the schedule has replaced the
    /// root of an object.
    fn signing_object(&self, authority: &Authority) -> Option<NamespacedName> {
        if authority.declared_by(authority.root.serial).is_some() {
            return None;
        }
        let next = authority.next_root.as_ref().map(|next| next.ca.serial);
        let mut active = self.in_use().filter(|object| self.role(object) == Some(RootRole::Active));
        active.find(|object| next.is_none() || authority.root_declared_by(object) != next).cloned()
    }

    /// Whether the next root does not sign because of what is declared.
    pub(super) fn holds_next(&self, ledger: &Ledger, authority: &Authority) -> bool {
        let Some(next) = authority.next_root.as_ref().filter(|_| ledger.rules() >= Rules::Fifth) else {
            return false;
        };
        match authority.declared_by(next.ca.serial) {
            _ if self.holds_all(authority) => true,
            Some(object) => self.role(object) != Some(RootRole::Active),
            // It gets its object first.
            None => self.without_root(authority).next().is_some(),
        }
    }

    /// Whether the former root stays trusted because of what is declared.
    pub(super) fn holds_former(&self, ledger: &Ledger, authority: &Authority) -> bool {
        let Some(former) = authority.former_root.as_ref().filter(|_| ledger.rules() >= Rules::Fifth) else {
            return false;
        };
        let object = authority.declared_by(former.serial);
        self.holds_all(authority) || object.is_some_and(|object| self.in_use().any(|used| used == object))
    }

    /// What keeps declared roots from being what their roles ask for, by object. `replicas` are the group's
    /// members.
    pub fn obstacles(
        &self,
        ledger: &Ledger,
        replicas: &BTreeSet<u64>,
        now: Timestamp,
    ) -> Vec<(NamespacedName, RootObstacle)> {
        let (Self::Roles(roles), Some(authority)) = (self, ledger.authority()) else { return Vec::new() };
        let obstacles = roles.iter().filter_map(|(object, role)| {
            let obstacle = if ledger.rules() < Rules::Fifth {
                Some(RootObstacle::Rules)
            } else {
                obstacle(authority, object, *role, replicas, now)
            };
            Some((object.clone(), obstacle?))
        });
        obstacles.collect()
    }
}

/// Why objects with these roles cannot be obeyed together. Without any, nothing is declared.
pub fn contradiction(roles: impl Iterator<Item = RootRole> + Clone) -> Option<Contradiction> {
    let in_use = roles.clone().filter(|role| *role != RootRole::Inactive).count();
    if in_use > MOST_IN_USE {
        return Some(Contradiction::TooMany(in_use));
    }
    let has_some = roles.clone().next().is_some();
    (has_some && !roles.into_iter().any(|role| role == RootRole::Active)).then_some(Contradiction::NoneActive)
}

fn obstacle(
    authority: &Authority,
    object: &NamespacedName,
    role: RootRole,
    replicas: &BTreeSet<u64>,
    now: Timestamp,
) -> Option<RootObstacle> {
    let Some(root) = authority.root_declared_by(object) else {
        let retiring = authority.former_root.as_ref().map(|former| former.serial);
        let unmade = || retiring.map_or(RootObstacle::Unmade, RootObstacle::Retiring);
        return (role != RootRole::Inactive).then(unmade);
    };
    if root == authority.root.serial {
        return (role != RootRole::Active).then_some(RootObstacle::Signing);
    }
    let Some(next) = authority.next_root.as_ref().filter(|next| next.ca.serial == root) else {
        return match role {
            RootRole::Active => Some(RootObstacle::Superseded),
            RootRole::Passive => None,
            RootRole::Inactive => Some(RootObstacle::StillTrusted),
        };
    };
    if role != RootRole::Active {
        return None;
    }
    let missing: BTreeSet<_> = replicas.difference(&next.acknowledged).copied().collect();
    if !missing.is_empty() {
        return Some(RootObstacle::Unacknowledged(missing));
    }
    let waits = !next.hastened && next.old_trust_ends >= now;
    waits.then_some(RootObstacle::OldTrust(next.old_trust_ends))
}
