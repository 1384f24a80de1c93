//! A backup on its way to who asked for it.
//!
//! Owns the bridge between a writer that blocks and a stream. Whoever stops reading ends the writing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::{StreamExt, future, stream};
use smc_proto::admin::v1 as pb;
use smc_raft::Group;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::error::causes;

/// Parts that the writer may be ahead of the reader, each of about a mebibyte.
const AHEAD: usize = 4;

pub(super) type Parts = Pin<Box<dyn Stream<Item = Result<pb::BackupPart, Status>> + Send>>;

/// Makes a backup as it is read. An error is the last part.
pub(super) fn parts(group: Arc<Group>) -> Parts {
    let (sender, parts) = mpsc::channel(AHEAD);
    let making = async move {
        let sink = Sink { sender: sender.clone(), octets: 0 };
        if let Err(error) = group.backup(sink).await {
            // Who does not listen does not care.
            let _ = sender.send(Err(Status::unavailable(causes(&error)))).await;
        }
    };
    let making = stream::once(making).filter_map(|()| future::ready(None));
    Box::pin(stream::select(ReceiverStream::new(parts), making))
}

struct Sink {
    sender: mpsc::Sender<Result<pb::BackupPart, Status>>,
    octets: u64,
}

impl Sink {
    fn send(&self, part: pb::backup_part::Part) -> io::Result<()> {
        let part = pb::BackupPart { part: Some(part) };
        self.sender.blocking_send(Ok(part)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl io::Write for Sink {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.send(pb::backup_part::Part::Octets(octets.to_vec()))?;
        self.octets += octets.len() as u64;
        Ok(octets.len())
    }

    /// The backup is complete.
    fn flush(&mut self) -> io::Result<()> {
        self.send(pb::backup_part::Part::End(pb::BackupEnd { octets: self.octets }))
    }
}
