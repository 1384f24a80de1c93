//! How far a source has come with each kind, and what of it a resource version says to other replicas.
//!
//! Owns the version of a resource on the wire: `<content hash>@<versions>` ([`suffix`]). The hash decides
//! whether the client holds what a replica would send. The versions tell a replica that lags behind that
//! the client has been sent something newer, so that no client goes back in time. Each kind is compared by
//! itself: a source follows each with a watch of its own, and one of them may lag while the others do not.
//! A source without comparable versions, such as a directory, gives none, and its resources have no suffix.

mod suffix;

use std::fmt;
use std::str::FromStr;

use smc_types::object_ref::Kind;

use crate::resource::{InvalidVersion, Version};

/// A version of the platform for each kind; 0 where there is none. All replicas of a mesh see the same
/// platform, and the versions of a kind only grow, so those of two replicas can be compared.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Versions([u64; Kind::ALL.len()]);

impl Versions {
    /// The version of this kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// Sets the version of this kind, also to an earlier one.
    pub fn set(&mut self, kind: Kind, version: u64) {
        self.0[kind as usize] = version;
    }

    /// Raises the version of this kind to at least this one.
    pub fn raise(&mut self, kind: Kind, version: u64) {
        self.set(kind, self.of(kind).max(version));
    }

    /// Raises the version of each kind to at least that in `other`.
    pub fn raise_all(&mut self, other: &Self) {
        for (version, other) in self.0.iter_mut().zip(other.0) {
            *version = (*version).max(other);
        }
    }

    /// Returns true if these are of every kind at least as far as `other`.
    pub fn covers(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(version, other)| *version >= other)
    }

    /// Returns true if there is no version of any kind.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The kinds that have a version, with it.
    pub fn each(&self) -> impl Iterator<Item = (Kind, u64)> {
        Kind::ALL.iter().copied().zip(self.0).filter(|(_, version)| *version > 0)
    }
}

/// Short, for every response and for other replicas; empty if there is no version.
impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&suffix::write(self))
    }
}

/// Reads what [`Versions`] are displayed as, by this or another version of SMC. Takes time in proportion to
/// the length of the text, and that is bounded.
impl FromStr for Versions {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        match text.strip_prefix(suffix::MARK) {
            Some(text) => suffix::read(text),
            None if text.is_empty() => Ok(Self::default()),
            None => Err(InvalidVersion),
        }
    }
}

impl FromIterator<(Kind, u64)> for Versions {
    fn from_iter<T: IntoIterator<Item = (Kind, u64)>>(versions: T) -> Self {
        let mut all = Self::default();
        versions.into_iter().for_each(|(kind, version)| all.raise(kind, version));
        all
    }
}

impl fmt::Debug for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.each()).finish()
    }
}

/// How far a source has come, in the versions of its platform.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Revision {
    /// Of each kind, the highest version of a change that the source has sent.
    pub changed: Versions,
    /// Of each kind, all changes up to here have been sent, as far as the source can tell. Less than
    /// `changed` while the source knows that it may have missed another change. Of a kind that the platform
    /// does not serve, as far as that is known: proxies may hold versions from when it did.
    pub known: Versions,
    /// While the source serves the last known mesh in place of what it has not read since its start: how far
    /// that went. Of no kind, if that is not known.
    pub copy: Option<Box<Versions>>,
}

impl Revision {
    /// The suffix of the versions that are sent now; empty before the first change.
    pub(crate) fn suffix(&self) -> String {
        self.changed.to_string()
    }

    /// Returns true if the source serves a last known mesh that may lack a change which a peer has read,
    /// whose [`Self::changed`] are these.
    pub fn may_lack(&self, changed: &Versions) -> bool {
        self.copy.as_ref().is_some_and(|copy| {
            let mut covered = Versions::clone(copy);
            covered.raise_all(&self.known);
            !covered.covers(changed)
        })
    }
}

/// Reads the versions that a client states, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Stated<'a> {
    /// The suffix that was read last. Most resources of a client were sent in a few responses, so the next
    /// one often has the same.
    latest: Option<&'a str>,
}

impl<'a> Stated<'a> {
    /// The content that the client holds. Raises `newest` to how far the replica had come that sent it.
    pub(crate) fn read(&mut self, text: &'a str, newest: &mut Versions) -> Result<Version, InvalidVersion> {
        let Some((version, suffix)) = text.split_once(suffix::MARK) else { return text.parse() };
        let version = version.parse()?;
        if self.latest != Some(suffix) {
            newest.raise_all(&suffix::read(suffix)?);
            self.latest = Some(suffix);
        }
        Ok(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(of: &[(Kind, u64)]) -> Versions {
        of.iter().copied().collect()
    }

    #[test]
    fn versions_cover_others_if_they_are_as_far_of_every_kind() {
        let (pod, split) = (Kind::Pod, Kind::TrafficSplit);
        let some = versions(&[(pod, 5), (split, 7)]);
        for (other, covered) in [
            (&[][..], true),
            (&[(pod, 5)], true),
            (&[(pod, 5), (split, 7)], true),
            (&[(pod, 6)], false),
            (&[(pod, 1), (split, 8)], false),
            (&[(Kind::Service, 1)], false),
        ] {
            assert_eq!(some.covers(&versions(other)), covered, "{other:?}");
        }
    }

    #[test]
    fn versions_are_raised_and_set() {
        let mut some = versions(&[(Kind::Pod, 5)]);
        assert!(!some.is_empty() && Versions::default().is_empty());
        some.raise(Kind::Pod, 3);
        some.raise(Kind::Service, 1);
        assert_eq!(some, versions(&[(Kind::Pod, 5), (Kind::Service, 1)]));
        some.raise_all(&versions(&[(Kind::Pod, 8), (Kind::Egress, 2)]));
        some.set(Kind::Service, 0);
        assert_eq!(some, versions(&[(Kind::Pod, 8), (Kind::Egress, 2)]));
        assert_eq!(format!("{some:?}"), "{Pod: 8, Egress: 2}");
    }

    #[test]
    fn what_is_known_is_not_said_to_others_and_what_changed_is() {
        let known = versions(&[(Kind::Pod, 9)]);
        let of = |changed| Revision { changed, known: known.clone(), copy: None }.suffix();
        assert_eq!(of(Versions::default()), "");
        assert_eq!(of(versions(&[(Kind::Pod, 7)])), "@P7");
    }

    #[test]
    fn a_copy_may_lack_what_a_peer_read_until_the_source_has_read_as_much() {
        let (pod, split) = (Kind::Pod, Kind::TrafficSplit);
        let of = |copy: Option<&[_]>, known| Revision {
            changed: Versions::default(),
            known: versions(known),
            copy: copy.map(versions).map(Box::new),
        };
        let peer = versions(&[(pod, 5), (split, 7)]);
        for (revision, lacks) in [
            (of(None, &[]), false),
            (of(Some(&[]), &[]), true),
            (of(Some(&[(pod, 5), (split, 6)]), &[]), true),
            (of(Some(&[(pod, 5), (split, 7)]), &[]), false),
            (of(Some(&[(pod, 9), (split, 6)]), &[(pod, 5)]), true),
            (of(Some(&[(pod, 2), (split, 9)]), &[(pod, 5)]), false),
        ] {
            assert_eq!(revision.may_lack(&peer), lacks, "{revision:?}");
            assert!(!revision.may_lack(&Versions::default()), "a peer that has read nothing");
        }
    }

    #[test]
    fn versions_are_read_as_they_are_displayed() {
        for of in [versions(&[]), versions(&[(Kind::Pod, 7), (Kind::Service, u64::MAX)])] {
            assert_eq!(of.to_string().parse(), Ok(of));
        }
        for text in ["P7", "@", " ", "@p"] {
            assert_eq!(text.parse::<Versions>(), Err(InvalidVersion), "{text}");
        }
    }

    #[test]
    fn a_stated_version_is_read_with_and_without_its_suffix() {
        let version = Version::of(b"content");
        for (suffix, read) in [
            ("", Some(Versions::default())),
            ("@P7", Some(versions(&[(Kind::Pod, 7)]))),
            ("@1234567", Some(Versions::default())),
            ("@", None),
            ("@p7", None),
            ("@P7@P8", None),
        ] {
            let (text, mut newest) = (format!("{version}{suffix}"), Versions::default());
            let stated = Stated::default().read(&text, &mut newest);
            assert_eq!(stated, read.as_ref().map(|_| version).ok_or(InvalidVersion), "{suffix}");
            assert_eq!(newest, read.unwrap_or_default(), "{suffix}");
        }
        let (mut newest, hash) = (Versions::default(), "0".repeat(31));
        assert_eq!(Stated::default().read(&format!("{hash}@P7"), &mut newest), Err(InvalidVersion));
        assert!(newest.is_empty(), "SMC never said so");
    }

    #[test]
    fn the_newest_of_all_stated_versions_counts_for_each_kind() {
        let version = Version::of(b"content");
        let texts = ["@P7", "@P7", "@P3S4", "@x", "@P7", ""].map(|suffix| format!("{version}{suffix}"));
        let (mut stated, mut newest) = (Stated::default(), Versions::default());
        let read = texts.each_ref().map(|text| stated.read(text, &mut newest).is_ok());
        assert_eq!(read, [true, true, true, false, true, true]);
        assert_eq!(newest, versions(&[(Kind::Pod, 7), (Kind::Service, 7)]));
    }
}
