//! Owns the database's protocol, a server-first text protocol: the server greets, then answers each
//! command, one line each. Pure.
//!
//! ```text
//! S: SMC-BOOKDB 1 READY
//! C: RESTOCK a-new-book 1
//! S: OK 1
//! C: QUIT
//! S: OK 0
//! ```
//!
//! The server speaks first on purpose: a proxy that waits for the client's first bytes to detect the
//! protocol waits for ever.

use std::fmt;

use super::book::Book;

/// The first line of every connection, sent by the server, without its line end.
pub const GREETING: &str = "SMC-BOOKDB 1 READY";

/// Longest line of either side, with its line end. The longest command is a verb, a book and a
/// number.
pub const LINE_BYTES_MAX: usize = 128;

/// Most copies of a book that one command may add.
pub const COPIES_MAX: u32 = 1000;

/// A client's command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// `RESTOCK <book> <copies>`: adds copies; the reply is the new number of copies of this book.
    Restock {
        /// Name of the book.
        book: Book,
        /// Number of copies, 1 to [`COPIES_MAX`].
        copies: u32,
    },
    /// `COUNT`: the reply is the number of copies of all books.
    Count,
    /// `QUIT`: the reply is `OK 0`, then the server closes.
    Quit,
}

/// A server's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `OK <count>`.
    Ok(u64),
    /// `ERR <reason>`; the command changed nothing.
    Err(String),
}

/// The reason why a line is not in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// Unknown verb.
    #[error("unknown command; there are RESTOCK <book> <copies>, COUNT and QUIT")]
    UnknownCommand,
    /// A known verb with wrong arguments.
    #[error("wrong arguments")]
    Arguments,
    /// Neither `OK <count>` nor `ERR <reason>`.
    #[error("not a reply")]
    Reply,
}

impl Command {
    /// Parses a line without its line end.
    pub fn parse(line: &str) -> Result<Self, ProtocolError> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["RESTOCK", book, copies] => {
                let book = Book::parse(book).map_err(|_| ProtocolError::Arguments)?;
                let copies = copies.parse().map_err(|_| ProtocolError::Arguments)?;
                if !(1..=COPIES_MAX).contains(&copies) {
                    return Err(ProtocolError::Arguments);
                }
                Ok(Self::Restock { book, copies })
            }
            ["COUNT"] => Ok(Self::Count),
            ["QUIT"] => Ok(Self::Quit),
            ["RESTOCK" | "COUNT" | "QUIT", ..] => Err(ProtocolError::Arguments),
            _ => Err(ProtocolError::UnknownCommand),
        }
    }

    /// Returns the first word.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Restock { .. } => "RESTOCK",
            Self::Count => "COUNT",
            Self::Quit => "QUIT",
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restock { book, copies } => write!(f, "RESTOCK {book} {copies}"),
            Self::Count | Self::Quit => f.write_str(self.verb()),
        }
    }
}

impl Reply {
    /// Parses a line without its line end.
    pub fn parse(line: &str) -> Result<Self, ProtocolError> {
        match line.split_once(' ') {
            Some(("OK", count)) => count.parse().map(Self::Ok).map_err(|_| ProtocolError::Reply),
            Some(("ERR", reason)) => Ok(Self::Err(reason.to_owned())),
            _ => Err(ProtocolError::Reply),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok(count) => write!(f, "OK {count}"),
            Self::Err(reason) => write!(f, "ERR {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_exactly_its_words() {
        let book = Book::parse("a").unwrap();
        for (line, expected) in [
            ("RESTOCK a 1", Ok(Command::Restock { book: book.clone(), copies: 1 })),
            ("RESTOCK a 1000", Ok(Command::Restock { book, copies: COPIES_MAX })),
            ("RESTOCK a 0", Err(ProtocolError::Arguments)),
            ("RESTOCK a 1001", Err(ProtocolError::Arguments)),
            ("RESTOCK a -1", Err(ProtocolError::Arguments)),
            ("RESTOCK a", Err(ProtocolError::Arguments)),
            ("RESTOCK  a 1", Err(ProtocolError::Arguments)),
            ("RESTOCK a/b 1", Err(ProtocolError::Arguments)),
            ("COUNT", Ok(Command::Count)),
            ("COUNT all", Err(ProtocolError::Arguments)),
            ("QUIT", Ok(Command::Quit)),
            ("quit", Err(ProtocolError::UnknownCommand)),
            ("", Err(ProtocolError::UnknownCommand)),
            ("GET / HTTP/1.1", Err(ProtocolError::UnknownCommand)),
        ] {
            assert_eq!(Command::parse(line), expected, "{line:?}");
            if let Ok(command) = expected {
                assert_eq!(command.to_string(), line);
            }
        }
    }

    #[test]
    fn a_reply_is_a_count_or_a_reason() {
        for (line, expected) in [
            ("OK 7", Ok(Reply::Ok(7))),
            ("ERR wrong arguments", Ok(Reply::Err("wrong arguments".into()))),
            ("OK", Err(ProtocolError::Reply)),
            ("OK seven", Err(ProtocolError::Reply)),
            ("HTTP/1.1 400 Bad Request", Err(ProtocolError::Reply)),
        ] {
            assert_eq!(Reply::parse(line), expected, "{line:?}");
        }
    }

    #[test]
    fn the_longest_command_fits_a_line() {
        let book = Book::parse(&"x".repeat(super::super::book::BOOK_BYTES_MAX)).unwrap();
        let line = format!("{}\r\n", Command::Restock { book, copies: COPIES_MAX });
        assert!(line.len() <= LINE_BYTES_MAX);
    }
}
