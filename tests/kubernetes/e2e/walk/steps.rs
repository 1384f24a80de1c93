//! What may happen to an installation.
//!
//! Owns the steps, how a seed draws them, and in which of them calls may fail.

use smc_host::env::fixed::SeededEntropy;

/// The ways of installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The program: `smc install`, `smc upgrade`, `smc uninstall`.
    Smc,
    /// The charts.
    Helm,
    /// What `smc install --dry-run` prints, applied by kubectl.
    Manifests,
}

impl Way {
    fn drawn(random: &SeededEntropy) -> Self {
        [Self::Smc, Self::Helm, Self::Manifests][usize::try_from(random.draw() % 3).unwrap()]
    }

    /// Another one.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Smc => Self::Helm,
            Self::Helm => Self::Manifests,
            Self::Manifests => Self::Smc,
        }
    }
}

/// What may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// `kubectl scale`, from one controller to three, or from three to one.
    Scale,
    /// The pod of one controller is deleted.
    LosePod(u64),
    /// The pods of all are.
    LosePods,
    /// The volume of one controller is lost, with its pod.
    LoseVolume(u64),
    /// The volumes of all controllers but this one are.
    LoseVolumesBut(u64),
    /// All volumes are.
    LoseVolumes,
    /// Another way of installation takes over what is there.
    Install(Way),
    /// An uninstallation, and an installation of this number of controllers over what it keeps.
    Reinstall(Way, u64),
    /// The controllers get another image.
    Upgrade,
    /// The controllers get an image that cannot be pulled, and what there was before.
    RollBack,
    /// A flag of the controllers changes.
    ChangeFlag,
    /// The namespace of the control plane is deleted, and all that is in it.
    LoseNamespace,
    /// The application's namespace leaves the mesh, and comes back.
    LeaveAndJoin,
    /// The key-encryption key takes the place of another, step by step.
    ChangeKey,
    /// etcd is put back to a copy. The controllers were scaled since.
    PutEtcdBack,
    /// The API server ends, and starts again.
    RestartApiServer,
}

/// How many kinds of steps there are.
const KINDS: u64 = 16;

impl Step {
    fn drawn(random: &SeededEntropy) -> Self {
        match random.draw() % KINDS {
            0 => Self::Scale,
            1 => Self::LosePod(random.draw() % 3),
            2 => Self::LosePods,
            3 => Self::LoseVolume(random.draw() % 3),
            4 => Self::LoseVolumesBut(random.draw() % 3),
            5 => Self::LoseVolumes,
            6 => Self::Install(Way::drawn(random)),
            7 => Self::Reinstall(Way::drawn(random), 1 + 2 * (random.draw() % 2)),
            8 => Self::Upgrade,
            9 => Self::RollBack,
            10 => Self::ChangeFlag,
            11 => Self::LoseNamespace,
            12 => Self::LeaveAndJoin,
            13 => Self::ChangeKey,
            14 => Self::PutEtcdBack,
            _ => Self::RestartApiServer,
        }
    }

    /// Whether calls may fail during this step: the application's pods are replaced, which ends calls that
    /// they answer. In all others sidecars go on with what they have, whatever becomes of the control
    /// plane. With its namespace the MeshConfig is lost that allows the calls, but only after the
    /// controllers: Kubernetes deletes pods first (KEP-5080).
    pub(super) fn replaces_the_application(self) -> bool {
        self == Self::LeaveAndJoin
    }
}

/// A walk, as its seed draws it: how SMC is installed, and the steps.
pub(super) fn drawn(seed: u64, count: u64) -> (Way, Vec<Step>) {
    let random = SeededEntropy::new(seed);
    let way = Way::drawn(&random);
    (way, (0..count).map(|_| Step::drawn(&random)).collect())
}

#[test]
fn the_walks_of_make_walk_take_every_step() {
    let steps: Vec<_> = (1..=20).flat_map(|seed| drawn(seed, 10).1).collect();
    let mut kinds: Vec<_> = steps.iter().map(std::mem::discriminant).collect();
    kinds.dedup();
    let mut known = Vec::new();
    for kind in kinds {
        if !known.contains(&kind) {
            known.push(kind);
        }
    }
    assert_eq!(u64::try_from(known.len()).unwrap(), KINDS);
}
