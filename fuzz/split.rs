//! An input of the fuzzer, taken apart.

/// What is left of an input.
pub(crate) struct Rest<'a>(pub(crate) &'a [u8]);

impl<'a> Rest<'a> {
    /// The next byte.
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next bytes, after two that say how many; fewer if there are not as many.
    pub(crate) fn counted(&mut self) -> Option<&'a [u8]> {
        let length = u16::from_le_bytes([self.byte()?, self.byte()?]);
        let (bytes, rest) = self.0.split_at(usize::from(length).min(self.0.len()));
        self.0 = rest;
        Some(bytes)
    }
}
