//! Bytes as lower-case hexadecimal digits, the one text form that fixed-size values of this package have.

const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];

/// Two lower-case digits per byte.
pub fn encode(bytes: &[u8]) -> String {
    // Without the formatter's machinery: each record of a certificate has hundreds of them.
    let digit = |half: u8| DIGITS[usize::from(half & 0xf)];
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(*byte));
    }
    text
}

/// The bytes that [`encode`] made `text` from; `None` for any other text, upper-case digits included, so
/// that every value has one text form.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.last()?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_and_other_texts_are_refused() {
        assert_eq!(encode(&[0, 0x7f, 0xff]), "007fff");
        assert_eq!(decode("007fff").unwrap(), [0, 0x7f, 0xff]);
        for bad in ["0", "0g", "FF", "é", "0 "] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}
