//! The id of a group, and which of two groups replaces the other.
//!
//! Owns the id's form. It is a UUID (RFC 9562): of version 4, random, where a group was founded; of version
//! 7, which begins with the time, where a person restored or recovered one. So members of the former group
//! that meet the new one know that their group is over, without any record of it.

use std::fmt;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use smc_host::env::{Entropy, NoEntropy};
use smc_types::time::Timestamp;
use uuid::{Builder, Uuid, Variant};

/// The latest time that an id has, in milliseconds since 1970: the year 2200. Versions before this form
/// drew all bits at random, and one in some thousands of those looks like an id with a time before that.
const LATEST: u64 = 7_258_118_400_000;

/// The id of a group, so that replicas of two meshes never mix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId(pub(crate) [u8; 16]);

impl GroupId {
    /// The id of a group that is founded.
    pub(crate) fn founded(entropy: &dyn Entropy) -> Result<Self, NoEntropy> {
        let mut random = [0; 16];
        entropy.fill(&mut random)?;
        Ok(Self(Builder::from_random_bytes(random).into_uuid().into_bytes()))
    }

    /// The id of a group that a person makes at `now` in place of `former`. It replaces that one also if
    /// the clock went back since then.
    pub(crate) fn replacing(
        former: Option<Self>,
        now: Timestamp,
        entropy: &dyn Entropy,
    ) -> Result<Self, NoEntropy> {
        let mut random = [0; 10];
        entropy.fill(&mut random)?;
        let now = u64::try_from(now.0).unwrap_or(0).saturating_mul(1000);
        let after = former.and_then(Self::made_at).map_or(0, |former| former.saturating_add(1));
        let id = Builder::from_unix_timestamp_millis(now.max(after).min(LATEST), &random);
        Ok(Self(id.into_uuid().into_bytes()))
    }

    /// Whether the members of `other` are to end where they meet this group: a person made this one, and
    /// later than that one. A group that was founded replaces none, since nothing says that a person meant
    /// it to.
    pub(crate) fn replaces(self, other: Self) -> bool {
        self.made_at().is_some() && self.made_at() > other.made_at()
    }

    /// When a person made the group, in milliseconds since 1970; `None` if it was founded.
    pub(crate) fn made_at(self) -> Option<u64> {
        let id = Uuid::from_bytes(self.0);
        let has_time = id.get_version_num() == 7 && id.get_variant() == Variant::RFC4122;
        let (seconds, nanos) = id.get_timestamp().filter(|_| has_time)?.to_unix();
        let made = seconds.saturating_mul(1000).saturating_add(u64::from(nanos / 1_000_000));
        Some(made).filter(|made| *made <= LATEST)
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Reads what [`fmt::Display`] writes.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        HEXLOWER.decode(text).ok().and_then(|bytes| Self::read(&bytes))
    }

    pub(crate) fn bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use smc_host::env::fixed::SeededEntropy;

    use super::*;

    #[test]
    fn a_group_that_a_person_made_replaces_what_was_before_and_nothing_else() {
        let entropy = SeededEntropy::new(1);
        let founded = || GroupId::founded(&entropy).unwrap();
        let made = |former, now| GroupId::replacing(former, Timestamp(now), &entropy).unwrap();
        let first = founded();
        let restored = made(Some(first), 1_800_000_000);
        let again = made(Some(first), 1_800_000_001);
        let clock_went_back = made(Some(again), 1_700_000_000);
        let no_clock = made(Some(clock_went_back), -5);
        let groups = [first, restored, again, clock_went_back, no_clock];
        for (n, newer) in groups.iter().enumerate() {
            assert!(!newer.replaces(*newer), "{n}");
            for (m, older) in groups.iter().enumerate().take(n) {
                assert!(newer.replaces(*older), "{n} replaces {m}");
                assert!(!older.replaces(*newer), "{m} does not replace {n}");
            }
        }
        let begun_again = founded();
        assert!(!begun_again.replaces(first) && !begun_again.replaces(restored), "it was only founded");
        assert_eq!(GroupId::parse(restored.to_string().as_bytes()), Some(restored));
        assert_eq!(GroupId::parse(b"00"), None);
        // Of an earlier version, whose bits look like version 7 and a time far ahead, or another variant.
        let mut drawn = [0x42; 16];
        drawn[6] = 0x72;
        assert_eq!(GroupId(drawn).made_at(), None);
        let mut other_variant = restored.0;
        other_variant[8] = 0;
        assert_eq!(GroupId(other_variant).made_at(), None);
    }
}
