//! The state machine: applies log entries to the [`smc_authority::ledger`].
//!
//! Owns the order of application, the detection of duplicates ([`crate::state::sessions`]), and snapshots
//! of both. The ledger interprets commands; a rejected command is part of the history like any other.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use prost::Message;
use serde::{Deserialize, Serialize};
use smc_authority::ledger::{Command, Ledger};
use smc_proto::raft::v1 as pb;

use crate::state::sessions::{Admission, RequestId, SessionId, Sessions};
use crate::state::shared::{AppliedMembership, SharedLedger};
use crate::state::waiters::{Applied, Waiters};
use crate::storage::disk::Disk;
use crate::storage::snapshots::{Snapshots, StoredSnapshot, Writing};
use crate::types::{Entry, LogId, Membership, Proposal, SnapshotMeta, StoredMembership, TypeConfig};
use crate::wire::{self, Malformed, Wire};

type Snapshot = openraft::alias::SnapshotOf<TypeConfig, StoredSnapshot>;

/// openraft, with this state machine.
pub(crate) type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// The ledger and the sessions, and how far they are applied.
pub(crate) struct StateMachine {
    disk: Disk,
    snapshots: Snapshots,
    ledger: SharedLedger,
    waiters: Waiters,
    sessions: Sessions,
    applied: Option<LogId>,
    membership: AppliedMembership,
    log_growth: LogGrowth,
}

/// The bytes of log that were applied since the last snapshot, and the length of that snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogGrowth {
    log: Arc<AtomicU64>,
    snapshot: Arc<AtomicU64>,
}

/// The content of a snapshot. Its JSON is canonical (see [`Ledger`]), so equal states give equal bytes on
/// every replica.
#[derive(Deserialize)]
struct Image {
    sessions: Sessions,
    ledger: Ledger,
}

/// [`Image`], borrowed.
#[derive(Serialize)]
pub(crate) struct ImageRef<'a> {
    pub(crate) sessions: &'a Sessions,
    pub(crate) ledger: &'a Ledger,
}

impl LogGrowth {
    /// Whether a snapshot is due: each byte of state is then rewritten at most once per byte of log, and a
    /// restart reads at most about three times the state. Never before `least` bytes of log.
    ///
    /// `put_off`, a random number, delays it by up to as much log again. Logs grow alike on all replicas,
    /// and a replica is slower while it writes a snapshot: with each at another length of log, the others
    /// are a quorum meanwhile.
    pub(crate) fn is_due(&self, least: u64, put_off: u64) -> bool {
        let threshold = u128::from(least.max(self.snapshot.load(Ordering::Relaxed)));
        let due = threshold + ((threshold * u128::from(put_off)) >> u64::BITS);
        u128::from(self.log.load(Ordering::Relaxed)) > due
    }

    fn reset(&self, snapshot: u64) {
        self.log.store(0, Ordering::Relaxed);
        self.snapshot.store(snapshot, Ordering::Relaxed);
    }
}

impl StateMachine {
    /// Reads the state of the last snapshot, and changes nothing on the disk. openraft then applies the
    /// entries that are known to be committed after it.
    pub(crate) fn open(disk: Disk, ledger: SharedLedger, waiters: Waiters) -> io::Result<Self> {
        let snapshots = Snapshots::open(disk.clone())?;
        let mut machine = Self {
            disk,
            snapshots,
            ledger,
            waiters,
            sessions: Sessions::default(),
            applied: None,
            membership: AppliedMembership::default(),
            log_growth: LogGrowth::default(),
        };
        if let Some(snapshot) = machine.snapshots.current()? {
            let image = machine.read(&snapshot)?;
            let meta = snapshot.meta()?;
            machine.restore(image, &meta, snapshot.header.bytes);
        }
        Ok(machine)
    }

    pub(crate) fn snapshots(&self) -> Snapshots {
        self.snapshots.clone()
    }

    pub(crate) fn log_growth(&self) -> LogGrowth {
        self.log_growth.clone()
    }

    pub(crate) fn applied_membership(&self) -> AppliedMembership {
        self.membership.clone()
    }

    fn read(&self, snapshot: &StoredSnapshot) -> io::Result<Image> {
        let bytes = snapshot.read()?;
        serde_json::from_slice(&bytes)
            .map_err(|error| self.disk.malformed(format!("the snapshot cannot be read: {error}")))
    }

    fn restore(&mut self, image: Image, meta: &SnapshotMeta, bytes: u64) {
        let Image { sessions, ledger } = image;
        self.ledger.replace(ledger);
        self.sessions = sessions;
        self.applied = meta.last_log_id;
        self.membership.set(meta.last_membership.clone());
        self.log_growth.reset(bytes);
    }

    /// The id of the last entry that was applied.
    pub(crate) fn applied(&self) -> Option<LogId> {
        self.applied
    }

    /// The sessions and the membership.
    pub(crate) fn into_parts(self) -> (Sessions, Membership) {
        (self.sessions, self.membership.get().membership().clone())
    }

    pub(crate) fn apply_entry(&mut self, entry: Entry) -> io::Result<()> {
        match entry.payload {
            EntryPayload::Blank => {}
            EntryPayload::Normal(Proposal(bytes)) => self.apply_proposal(entry.log_id.index, bytes)?,
            EntryPayload::Membership(membership) => {
                self.membership.set(StoredMembership::new(Some(entry.log_id), membership));
            }
        }
        self.applied = Some(entry.log_id);
        Ok(())
    }

    fn apply_proposal(&mut self, index: u64, bytes: Bytes) -> io::Result<()> {
        self.log_growth.log.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let request = pb::Request::decode(bytes).map_err(|error| self.unreadable(index, &error))?;
        match request.request {
            Some(pb::request::Request::OpenSession(session)) => {
                let session = SessionId(session);
                self.sessions.open(session, index);
                self.waiters.answer(session, None, || Applied::Opened);
                Ok(())
            }
            Some(pb::request::Request::Batch(batch)) => self.apply_batch(index, &batch),
            // A newer version wrote it. Skipping it would make this replica's state differ from the others'.
            None => Err(self.unreadable(index, &Malformed("this version does not know its kind of request"))),
        }
    }

    fn apply_batch(&mut self, index: u64, batch: &pb::Batch) -> io::Result<()> {
        let session = SessionId(batch.session);
        let id = RequestId { session, number: batch.number, settled: batch.settled };
        match self.sessions.admit(id, index) {
            Admission::Apply => {
                let decode = |bytes: &Bytes| serde_json::from_slice::<Command>(bytes);
                let commands: Result<Vec<_>, _> = batch.commands.iter().map(decode).collect();
                let commands = commands.map_err(|error| self.unreadable(index, &error))?;
                let outcomes = self.ledger.apply(commands.iter());
                self.waiters.answer(session, Some(batch.number), || Applied::Outcomes(outcomes));
            }
            Admission::Unknown => {
                self.waiters.answer(session, Some(batch.number), || Applied::Refused);
            }
            // The first copy was answered.
            Admission::Duplicate => {}
        }
        Ok(())
    }

    fn unreadable(&self, index: u64, error: &dyn std::error::Error) -> io::Error {
        self.disk.malformed(format!("log entry {index} cannot be read: {error}"))
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = StoredSnapshot;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.applied, self.membership.get()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            self.apply_entry(entry)?;
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder {
            disk: self.disk.clone(),
            snapshots: self.snapshots.clone(),
            ledger: self.ledger.read(Ledger::clone),
            sessions: self.sessions.clone(),
            meta: SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.get() },
            log_growth: self.log_growth.clone(),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: StoredSnapshot,
    ) -> Result<(), io::Error> {
        let image = self.read(&snapshot)?;
        let header = self.snapshots.import(&snapshot)?;
        self.snapshots.keep(&header).await?;
        self.restore(image, meta, snapshot.header.bytes);
        // The entries that the snapshot includes are not applied here, so their outcomes stay unknown.
        let sessions = &self.sessions;
        self.waiters.lose(|session, number| sessions.includes(session, number));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        let Some(snapshot) = self.snapshots.current()? else { return Ok(None) };
        Ok(Some(Snapshot { meta: snapshot.meta()?, snapshot }))
    }
}

/// Writes the state of one moment to the disk, while the state machine continues.
pub(crate) struct SnapshotBuilder {
    disk: Disk,
    snapshots: Snapshots,
    ledger: Ledger,
    sessions: Sessions,
    meta: SnapshotMeta,
    log_growth: LogGrowth,
}

impl ImageRef<'_> {
    /// Writes the chunks of a snapshot.
    pub(crate) fn write(&self, mut writing: Writing) -> io::Result<pb::SnapshotHeader> {
        serde_json::to_writer(&mut writing, self).map_err(io::Error::from)?;
        writing.flush()?;
        writing.finish()
    }
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = StoredSnapshot;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let (ledger, sessions) = (std::mem::take(&mut self.ledger), std::mem::take(&mut self.sessions));
        let writing = self.snapshots.write();
        let write = move |_: &Disk| ImageRef { sessions: &sessions, ledger: &ledger }.write(writing);
        let mut header = self.disk.run(write).await?;
        header.last = wire::write(self.meta.last_log_id.as_ref());
        header.membership = Some(self.meta.last_membership.to_wire());
        self.snapshots.keep(&header).await?;
        // Not necessarily this snapshot: a newer one may have been installed meanwhile.
        let current = self.snapshots.current()?;
        let snapshot =
            current.ok_or_else(|| io::Error::other("the snapshot that was just written is gone"))?;
        self.log_growth.reset(snapshot.header.bytes);
        Ok(Snapshot { meta: snapshot.meta()?, snapshot })
    }
}
