//! Owns the wire format of the lab's control socket, a Unix socket with one request per connection.
//!
//! A frame is a tag, a length (4 bytes, big endian) and that many bytes. The client sends one
//! request, and for `exec` the standard input after it. The lab sends the command's outputs, if
//! any, and then one result or one error.

use std::io;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The largest payload is Envoy's `/config_dump`.
const MAX_FRAME_BYTES: u32 = 160 << 20;

/// Type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    /// A [`Request`], as JSON.
    Request,
    /// Standard input; empty at its end.
    Stdin,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The result as JSON; its type depends on the request.
    Result,
    /// The reason for a failure, as text.
    Error,
}

impl Tag {
    const ALL: [(Self, u8); 6] = [
        (Self::Request, b'q'),
        (Self::Stdin, b'i'),
        (Self::Stdout, b'o'),
        (Self::Stderr, b'e'),
        (Self::Result, b'r'),
        (Self::Error, b'x'),
    ];
}

/// A request to a running lab. The arrow names the type of its result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Read the mesh directory now, and publish it to the controller. → `()`
    Sync,
    /// → `Vec<PodInfo>`
    Pods,
    /// Run a command. → the exit status, `i32`
    Exec {
        /// `namespace/name`; `None` for the node.
        pod: Option<String>,
        /// The user to run as; by default the Pod's.
        uid: Option<u32>,
        argv: Vec<String>,
        env: Vec<(String, String)>,
    },
    /// GET from Envoy's admin interface. → `HttpReply`
    Admin { pod: String, path: String },
    /// Start a controller replica, and wait until it is ready. → `()`
    StartController { replica: u16 },
    /// Send a signal to a controller replica, and wait until it ends. → its exit status as text,
    /// `String`
    StopController { replica: u16, signal: i32 },
    /// Send a signal to a controller replica. → `()`
    SignalController { replica: u16, signal: i32 },
    /// End the lab. → `()`
    Down,
}

/// Writes one frame.
pub(super) async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    tag: Tag,
    payload: &[u8],
) -> io::Result<()> {
    let length = u32::try_from(payload.len()).ok().filter(|length| *length <= MAX_FRAME_BYTES);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "frame too large"))?;
    let byte = Tag::ALL.iter().find(|(known, _)| *known == tag).map_or(0, |(_, byte)| *byte);
    let mut frame = Vec::with_capacity(payload.len() + 5);
    frame.push(byte);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(payload);
    writer.write_all(&frame).await?;
    writer.flush().await
}

/// Reads one frame; `None` at the end of the stream. Not cancel-safe.
pub(super) async fn read(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(Tag, Vec<u8>)>> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let byte = match reader.read_u8().await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        byte => byte?,
    };
    let tag = Tag::ALL.iter().find(|(_, known)| *known == byte).ok_or_else(|| invalid("unknown frame"))?.0;
    let length = reader.read_u32().await?;
    if length > MAX_FRAME_BYTES {
        return Err(invalid("frame too large"));
    }
    let mut payload = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    reader.read_exact(&mut payload).await?;
    Ok(Some((tag, payload)))
}
