//! A body as lines, in bounded memory: a watch sends one event a line.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use crate::api::Unreachable;

/// Bytes of one line. An API server takes objects of 3 MiB at most, and JSON may write a byte in six.
pub(super) const MAX_LINE_BYTES: usize = 20 * 1024 * 1024;

/// One line of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Its text, without the line's end.
    Text(Bytes),
    /// It was longer than [`MAX_LINE_BYTES`], and was skipped.
    TooLong,
}

/// The lines of a body.
pub(super) struct Lines {
    body: BoxStream<'static, Result<Bytes, Unreachable>>,
    buffer: BytesMut,
    /// How much of the buffer holds no line's end.
    searched: usize,
    /// Whether the rest of a line is being skipped.
    skipping: bool,
    limit: usize,
}

impl Lines {
    /// The lines of this body.
    pub(super) fn new(body: BoxStream<'static, Result<Bytes, Unreachable>>) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0, skipping: false, limit: MAX_LINE_BYTES }
    }

    /// The next line; `None` at the end of the body. What follows the last line's end is no line: it broke
    /// off. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Result<Line, Unreachable>> {
        loop {
            if let Some(line) = self.take() {
                return Some(Ok(line));
            }
            match self.body.next().await? {
                Ok(bytes) => self.buffer.extend_from_slice(&bytes),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The next line of the buffer, if it is there to its end.
    fn take(&mut self) -> Option<Line> {
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(end) = rest.iter().position(|&byte| byte == b'\n').map(|at| self.searched + at) else {
                self.searched = self.buffer.len();
                if self.searched > self.limit {
                    self.skipping = true;
                    self.buffer.clear();
                    self.searched = 0;
                }
                return None;
            };
            let mut line = self.buffer.split_to(end + 1);
            line.truncate(end);
            self.searched = 0;
            if std::mem::take(&mut self.skipping) || line.len() > self.limit {
                return Some(Line::TooLong);
            }
            if !line.is_empty() {
                return Some(Line::Text(line.freeze()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    async fn lines(pieces: &[&str], limit: usize) -> Vec<String> {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::from((*piece).to_owned()))).collect();
        let mut lines = Lines { limit, ..Lines::new(stream::iter(pieces).boxed()) };
        let mut read = Vec::new();
        while let Some(line) = lines.next().await {
            read.push(match line.unwrap() {
                Line::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
                Line::TooLong => "too long".to_owned(),
            });
        }
        read
    }

    #[tokio::test]
    async fn lines_are_whole_wherever_the_body_is_cut() {
        for pieces in [&["a\nbc\n"][..], &["a", "\n", "b", "c\n"], &["a\nb", "c\n\n", "unfinished"]] {
            assert_eq!(lines(pieces, 10).await, ["a", "bc"], "{pieces:?}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_skipped_and_the_next_one_read() {
        for pieces in [&["abcd\nok\n"][..], &["abc", "defghi", "jkl\no", "k\n"]] {
            assert_eq!(lines(pieces, 3).await, ["too long", "ok"], "{pieces:?}");
        }
    }
}
