//! A backup as a stream of gRPC messages.
//!
//! Owns the bridge between a blocking writer and a stream. Dropping the stream ends the backup.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::{StreamExt, future, stream};
use smc_proto::admin::v1 as pb;
use smc_raft::Group;
use smc_types::causes::causes;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Parts that are buffered between writer and reader, each of about a mebibyte.
const BUFFERED_PARTS: usize = 4;

pub(super) type Parts = Pin<Box<dyn Stream<Item = Result<pb::BackupPart, Status>> + Send>>;

/// Makes a backup while it is read. An error is the last part.
pub(super) fn parts(group: Arc<Group>) -> Parts {
    let (sender, parts) = mpsc::channel(BUFFERED_PARTS);
    let making = async move {
        let sink = Sink { sender: sender.clone(), length: 0 };
        if let Err(error) = group.backup(sink).await {
            // The receiver may be gone.
            let _ = sender.send(Err(Status::unavailable(causes(&error)))).await;
        }
    };
    let making = stream::once(making).filter_map(|()| future::ready(None));
    Box::pin(stream::select(ReceiverStream::new(parts), making))
}

struct Sink {
    sender: mpsc::Sender<Result<pb::BackupPart, Status>>,
    length: u64,
}

impl Sink {
    fn send(&self, part: pb::backup_part::Part) -> io::Result<()> {
        let part = pb::BackupPart { part: Some(part) };
        self.sender.blocking_send(Ok(part)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(pb::backup_part::Part::Content(bytes.to_vec()))?;
        self.length += bytes.len() as u64;
        Ok(bytes.len())
    }

    /// The backup is complete.
    fn flush(&mut self) -> io::Result<()> {
        self.send(pb::backup_part::Part::End(pb::BackupEnd { length: self.length }))
    }
}
