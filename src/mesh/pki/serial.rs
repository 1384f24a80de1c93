//! Serial numbers of certificates.
//!
//! Owns their shape and their text. Refuses to draw randomness: it comes in.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{decode_hex, encode_hex};

/// The serial number of a certificate that SMC issued: 16 octets with the top bits `01`, so that it is
/// positive, is its own DER content, and stays under the 20 octets of RFC 5280 §4.1.2.2. The other 126 bits
/// are random: among 2^40 certificates two share a serial with a probability below 2^-46, and the ledger
/// would refuse the second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SerialNumber([u8; 16]);

/// A text that is not a serial number.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not a serial number of this mesh: 32 hexadecimal digits, the first of 4 to 7")]
pub struct InvalidSerial;

impl SerialNumber {
    /// The serial number made of these random octets.
    pub fn draw(mut random: [u8; 16]) -> Self {
        random[0] = (random[0] & 0x3f) | 0x40;
        Self(random)
    }

    /// The serial number whose DER content octets are these; `None` if SMC would not have drawn it, so
    /// that certificate is not ours.
    pub fn from_der(content: &[u8]) -> Option<Self> {
        let octets: [u8; 16] = content.try_into().ok()?;
        (octets[0] & 0xc0 == 0x40).then_some(Self(octets))
    }

    /// The DER content octets.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// A number that is spread evenly over all serials and fixed for each, for jitter that must come out
    /// the same on every replica.
    pub(crate) fn spread(&self) -> u64 {
        let mut low = [0; 8];
        low.copy_from_slice(&self.0[8..]);
        u64::from_be_bytes(low)
    }
}

impl fmt::Display for SerialNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode_hex(&self.0))
    }
}

impl fmt::Debug for SerialNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for SerialNumber {
    type Err = InvalidSerial;

    fn from_str(text: &str) -> Result<Self, InvalidSerial> {
        decode_hex(text).as_deref().and_then(Self::from_der).ok_or(InvalidSerial)
    }
}

impl TryFrom<String> for SerialNumber {
    type Error = InvalidSerial;

    fn try_from(text: String) -> Result<Self, InvalidSerial> {
        text.parse()
    }
}

impl From<SerialNumber> for String {
    fn from(serial: SerialNumber) -> Self {
        serial.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drawn_serial_is_positive_has_sixteen_octets_and_reads_back() {
        for random in [[0; 16], [0xff; 16], [0x80; 16], [0x42; 16]] {
            let serial = SerialNumber::draw(random);
            assert!(serial.as_bytes()[0] & 0x80 == 0 && serial.as_bytes()[0] != 0, "{serial}");
            assert_eq!(SerialNumber::from_der(serial.as_bytes()), Some(serial));
            assert_eq!(serial.to_string().parse(), Ok(serial));
        }
    }

    #[test]
    fn serials_that_we_would_not_draw_are_not_ours() {
        for bad in [&[][..], &[1], &[0x40; 15], &[0x40; 17], &[0x00; 16], &[0x80; 16]] {
            assert_eq!(SerialNumber::from_der(bad), None, "{bad:?}");
        }
    }
}
