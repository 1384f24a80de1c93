//! Parts of an expression while it is written.

use std::fmt::Write as _;
use std::rc::Rc;

/// The bytes of header values: those of ASCII one by one, but for NUL, CR and LF, and all others as one. An
/// expression that SMC takes does not tell the others apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bytes(u128, bool);

/// Stands for every byte outside ASCII.
const OTHER: u8 = 0xff;

impl Bytes {
    pub(super) fn all() -> Self {
        Self(!(1 | 1 << b'\r' | 1 << b'\n'), true)
    }

    pub(super) fn insert(&mut self, byte: u8) {
        if byte.is_ascii() {
            self.0 |= 1 << byte;
        } else {
            self.1 = true;
        }
    }

    pub(super) fn join(&mut self, other: Self) {
        *self = Self(self.0 | other.0, self.1 | other.1);
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u8> {
        let other = self.1.then_some(OTHER);
        (0..0x80).filter(move |byte| self.0 >> byte & 1 == 1).chain(other)
    }

    /// A class of RE2. What does not exclude the bytes outside ASCII is written as an exclusion: that means
    /// the same where RE2 reads bytes (Envoy from 1.39) and where it reads UTF-8 (before). `\C` is any
    /// byte in both.
    fn write(self) -> String {
        if self == Self::all() {
            return r"\C".to_owned();
        }
        let set = if self.1 { Self::all().0 & !self.0 } else { self.0 };
        let listed: Vec<u8> = Self(set, false).iter().collect();
        let mut text = if self.1 { "[^".to_owned() } else { String::new() };
        let mut rest = &*listed;
        while let Some(&first) = rest.first() {
            let length = rest.iter().zip(first..).take_while(|(byte, expected)| **byte == *expected).count();
            let last = rest[length - 1];
            literal(&mut text, first);
            if length > 2 {
                text.push('-');
            }
            if length > 1 {
                literal(&mut text, last);
            }
            rest = &rest[length..];
        }
        match (self.1, &*listed) {
            (false, [_]) => text,
            (false, _) => format!("[{text}]"),
            (true, _) => text + "]",
        }
    }
}

fn literal(text: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() {
        text.push(char::from(byte));
    } else if byte.is_ascii_graphic() {
        text.push('\\');
        text.push(char::from(byte));
    } else {
        // Writing to a string does not fail.
        let _ = write!(text, r"\x{byte:02x}");
    }
}

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Empty,
    Class(Bytes),
    Sequence,
    Alternatives,
}

/// A part, written.
#[derive(Clone)]
pub(super) struct Expression {
    kind: Kind,
    text: Rc<str>,
    depth: usize,
}

impl Expression {
    fn new(kind: Kind, text: String, depth: usize) -> Self {
        Self { kind, text: text.into(), depth }
    }

    /// Matches the empty text.
    pub(super) fn empty() -> Self {
        Self::new(Kind::Empty, "(?:)".to_owned(), 0)
    }

    pub(super) fn class(bytes: Bytes) -> Self {
        Self::new(Kind::Class(bytes), bytes.write(), 0)
    }

    pub(super) fn len(&self) -> usize {
        if self.kind == Kind::Empty { 0 } else { self.text.len() }
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn into_text(self) -> String {
        self.text.to_string()
    }

    /// The text as an operand of `*` or `?`, and its depth.
    fn operand(&self) -> (String, usize) {
        match self.kind {
            Kind::Empty | Kind::Class(_) => (self.text.to_string(), self.depth),
            Kind::Sequence | Kind::Alternatives => self.grouped(),
        }
    }

    /// The text as a part of a sequence, and its depth.
    fn part(&self) -> (String, usize) {
        match self.kind {
            Kind::Alternatives => self.grouped(),
            _ => (self.text.to_string(), self.depth),
        }
    }

    fn grouped(&self) -> (String, usize) {
        (format!("(?:{})", self.text), self.depth + 1)
    }

    pub(super) fn repeated(self) -> Self {
        if self.kind == Kind::Empty {
            return self;
        }
        let (text, depth) = self.operand();
        Self::new(Kind::Sequence, text + "*", depth)
    }

    fn optional(&self) -> Self {
        let (text, depth) = self.operand();
        Self::new(Kind::Sequence, text + "?", depth)
    }

    pub(super) fn then(&self, next: &Self) -> Self {
        match (&self.kind, &next.kind) {
            (Kind::Empty, _) => next.clone(),
            (_, Kind::Empty) => self.clone(),
            _ => {
                let ((first, one), (second, two)) = (self.part(), next.part());
                Self::new(Kind::Sequence, first + &second, one.max(two))
            }
        }
    }

    pub(super) fn or(&self, other: &Self) -> Self {
        match (&self.kind, &other.kind) {
            (Kind::Empty, Kind::Empty) => self.clone(),
            (Kind::Empty, _) => other.optional(),
            (_, Kind::Empty) => self.optional(),
            (Kind::Class(one), Kind::Class(two)) => {
                let mut both = *one;
                both.join(*two);
                Self::class(both)
            }
            _ => {
                let text = format!("{}|{}", self.text, other.text);
                Self::new(Kind::Alternatives, text, self.depth.max(other.depth))
            }
        }
    }
}
