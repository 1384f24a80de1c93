//! Serial numbers of certificates.
//!
//! Owns their form and their text. Randomness comes from the caller.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use data_encoding::HEXLOWER;

/// The serial number of a certificate that SMC issued: 16 bytes with the top bits `01`. So it is
/// positive, is its own DER content, and stays under the 20 bytes of RFC 5280 §4.1.2.2. The other
/// 126 bits are random: among 2^40 certificates two share a serial number with a probability below
/// 2^-46, and the ledger would reject the second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SerialNumber([u8; 16]);

/// A text that is not a serial number.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not a serial number of this mesh: 32 hexadecimal digits, the first of 4 to 7")]
pub struct InvalidSerial;

impl SerialNumber {
    /// Makes a serial number of random bytes.
    pub fn draw(mut random: [u8; 16]) -> Self {
        random[0] = (random[0] & 0x3f) | 0x40;
        Self(random)
    }

    /// The serial number with these DER content bytes; `None` if SMC cannot have drawn it: the
    /// certificate is another authority's.
    pub fn from_der(content: &[u8]) -> Option<Self> {
        let bytes: [u8; 16] = content.try_into().ok()?;
        (bytes[0] & 0xc0 == 0x40).then_some(Self(bytes))
    }

    /// The DER content bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// A number fixed for each serial number and evenly distributed over all, for jitter that is
    /// equal on every replica.
    pub fn spread(&self) -> u64 {
        let mut low = [0; 8];
        low.copy_from_slice(&self.0[8..]);
        u64::from_be_bytes(low)
    }
}

impl fmt::Display for SerialNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
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
        HEXLOWER.decode(text.as_bytes()).ok().as_deref().and_then(Self::from_der).ok_or(InvalidSerial)
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
    fn every_drawn_serial_is_positive_has_sixteen_bytes_and_reads_back() {
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
