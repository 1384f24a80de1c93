//! How many proxies a replica serves (`sidecar.maxDataPlaneConnections` of the MeshConfig).
//!
//! Owns the rule: a limit takes nothing from proxies that are served, and lets no other in.

use std::num::NonZeroU32;

use smc_host::sync::lock;
use thiserror::Error;

use super::{Proxies, Table};

/// A replica serves no more proxies. A retry succeeds once another has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "this controller serves {0} sidecars, the most that sidecar.maxDataPlaneConnections of the MeshConfig allows"
)]
pub(in crate::xds) struct Full(NonZeroU32);

/// How many proxies are served, and how many may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    served: usize,
    most: Option<NonZeroU32>,
}

impl Room {
    /// How many more proxies may come; `None` means any number.
    fn left(self) -> Option<u64> {
        let served = u64::try_from(self.served).unwrap_or(u64::MAX);
        self.most.map(|most| u64::from(most.get()).saturating_sub(served))
    }

    /// Whether one more may come.
    pub(super) fn check(self) -> Result<(), Full> {
        match (self.most, self.left()) {
            (Some(most), Some(0)) => Err(Full(most)),
            _ => Ok(()),
        }
    }
}

impl Proxies {
    pub(super) fn room(&self, table: &Table) -> Room {
        Room { served: table.streams.len(), most: self.settings.borrow().max_proxies }
    }

    /// How many more proxies the replica may serve; `None` means any number.
    pub(super) fn room_left(&self) -> Option<u64> {
        self.room(&lock(&self.table)).left()
    }
}

#[test]
fn a_limit_takes_nothing_from_those_that_are_served_and_lets_no_other_in() {
    for (served, most, left) in [
        (0, 0, None),
        (7, 0, None),
        (0, 1, Some(1)),
        (1, 1, Some(0)),
        (4, 5, Some(1)),
        (5, 5, Some(0)),
        // The limit fell.
        (7, 5, Some(0)),
    ] {
        let most = NonZeroU32::new(most);
        let room = Room { served, most };
        assert_eq!(room.left(), left, "{served} of {most:?}");
        assert_eq!(room.check().err(), most.filter(|_| left == Some(0)).map(Full), "{served} of {most:?}");
    }
}
