//! Owns the name of a book, as it appears in a path, in JSON and in a line of the database's
//! protocol. Its characters have no special meaning in any of them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest name of a book, in bytes.
pub const BOOK_BYTES_MAX: usize = 64;

/// A valid name of a book: 1 to [`BOOK_BYTES_MAX`] ASCII letters, digits, `.`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Book(String);

/// The reason why a name is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name of a book is 1 to {BOOK_BYTES_MAX} letters, digits, '.', '_' or '-'")]
pub struct BookError;

impl Book {
    /// Parses a name.
    pub fn parse(name: &str) -> Result<Self, BookError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > BOOK_BYTES_MAX || !name.bytes().all(plain) {
            return Err(BookError);
        }
        Ok(Self(name.to_owned()))
    }
}

impl TryFrom<String> for Book {
    type Error = BookError;

    fn try_from(name: String) -> Result<Self, BookError> {
        Self::parse(&name)
    }
}

impl From<Book> for String {
    fn from(book: Book) -> Self {
        book.0
    }
}

impl fmt::Display for Book {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_has_a_plain_short_name() {
        for (name, valid) in [
            ("a-new-book", true),
            ("A_1.2", true),
            (&"x".repeat(BOOK_BYTES_MAX)[..], true),
            (&"x".repeat(BOOK_BYTES_MAX + 1)[..], false),
            ("", false),
            ("a b", false),
            ("a\r\nQUIT", false),
            ("a/b", false),
            ("%20", false),
            ("bücher", false),
        ] {
            assert_eq!(Book::parse(name).is_ok(), valid, "{name:?}");
        }
    }
}
