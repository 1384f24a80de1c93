//! What is drawn at random for a new sidecar.
//!
//! Owns the two parts, and the token's form. The UUID names the sidecar, and is no secret: certificates, logs
//! and the names of Secrets have it. The token is one: only who may read the Pod knows it.

use std::fmt;

use smc_types::ids::ProxyUuid;

/// The part of the paths at the probes' port that strangers do not know: 128 bits, one for each pod.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ProbeToken(u128);

impl ProbeToken {
    /// Reads a token, as [`Self::path`] writes it, without the slash.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        digits.then(|| u128::from_str_radix(text, 16).ok().map(Self)).flatten()
    }

    /// This path below the token.
    pub(super) fn path(self, path: &str) -> String {
        format!("/{:032x}{path}", self.0)
    }
}

/// Without its value, which is a secret.
impl fmt::Debug for ProbeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProbeToken(..)")
    }
}

/// The random parts of a new sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn {
    /// Its UUID.
    pub uuid: ProxyUuid,
    /// The token of its pod's probes.
    pub token: ProbeToken,
}

impl Drawn {
    /// Those of these bytes, which a cryptographically secure generator drew. The UUID is of version 4
    /// (RFC 9562 §5.4).
    pub fn from_random(uuid: [u8; 16], token: [u8; 16]) -> Self {
        let mut uuid = uuid;
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        Self { uuid: ProxyUuid::from_bytes(uuid), token: ProbeToken(u128::from_be_bytes(token)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_is_written_and_never_printed() {
        let drawn = Drawn::from_random([0xff; 16], [1; 16]);
        assert_eq!(drawn.uuid.to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        let path = drawn.token.path("/ready");
        assert_eq!(path, "/01010101010101010101010101010101/ready");
        assert_eq!(ProbeToken::parse(&path[1..33]), Some(drawn.token));
        assert!(!format!("{drawn:?}").contains("0101"));
        for text in
            ["", "http", &path[1..32], "0101010101010101010101010101010G", "+1010101010101010101010101010101"]
        {
            assert_eq!(ProbeToken::parse(text), None, "{text}");
        }
    }
}
