//! How far a source has come, and what of it a resource version says to other replicas.
//!
//! Owns the suffix of a version on the wire: `<content hash>@<revision>`. The hash decides whether the
//! client holds what a replica would send. The revision tells a replica that lags behind that the client has
//! been sent something newer, so that no client goes back in time. A source without comparable revisions,
//! such as a directory, gives none, and its versions have no suffix.

use std::str::FromStr;

use crate::resource::{InvalidVersion, Version};

/// What stands between the hash and the revision.
const MARK: char = '@';

/// How far a source has come, in the numbers of its platform. All replicas of a mesh see the same platform,
/// and the numbers only grow, so those of two replicas can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Revision {
    /// The highest revision of a change that the source has sent.
    pub changed: u64,
    /// All changes up to here, as far as the source can tell, have been sent. Less than `changed` while the
    /// source knows that it may have missed another change.
    pub known: u64,
}

impl Revision {
    /// The suffix of the versions that are sent now; `None` before the first change.
    pub(crate) fn suffix(self) -> Option<String> {
        (self.changed > 0).then(|| format!("{MARK}{}", self.changed))
    }
}

/// A version as a client states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stated {
    /// The content that the client holds.
    pub(crate) version: Version,
    /// The revision that the replica had come to which sent it; 0 if it said none.
    pub(crate) revision: u64,
}

impl FromStr for Stated {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        let (version, revision) = match text.split_once(MARK) {
            Some((version, revision)) => (version, revision.parse().map_err(|_| InvalidVersion)?),
            None => (text, 0),
        };
        Ok(Self { version: version.parse()?, revision })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_with_and_without_its_revision() {
        let version = Version::of(b"content");
        for (suffix, revision) in [("", Some(0)), ("@7", Some(7)), ("@", None), ("@x", None), ("@7@8", None)]
        {
            let stated = format!("{version}{suffix}").parse::<Stated>();
            assert_eq!(stated.ok(), revision.map(|revision| Stated { version, revision }), "{suffix}");
        }
    }

    #[test]
    fn what_is_known_without_a_change_is_not_said_to_others() {
        for (changed, known, suffix) in [(0, 9, None), (7, 9, Some("@7")), (12, 9, Some("@12"))] {
            assert_eq!(Revision { changed, known }.suffix().as_deref(), suffix);
        }
    }
}
