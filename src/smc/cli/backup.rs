//! `smc cluster backup|restore|recover`: a backup of the ledger, and a new group from it or from one replica.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use smc_authority::ledger::Ledger;
use smc_host::env::Env;
use smc_host::files::private::Replacement;
use smc_host::files::sync_name;
use smc_issuing::restore::read_restorable;
use smc_issuing::seal::KeyRing;
use smc_kubernetes::stateful_set::{has_left, stay};
use smc_proto::admin::v1::{BackupRequest, backup_part::Part};
use smc_raft::{DiskSummary, Inspection, RecoveryError, Storage, inspect, recover, restore};
use smc_types::host_port::HostPort;
use smc_types::ids::ReplicaId;
use thiserror::Error;

use super::admin_access::AdminArgs;
use super::controller::ledger_directory;
use super::outcome::{Outcome, Refused, Verdict};
use super::output::{self, OutputArgs};
use super::recovery::RecoveryArgs;
use super::replica::NO_PEERS;

/// Flags of `smc cluster backup`.
#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// The file to write, which must not exist
    file: PathBuf,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Flags of `smc cluster restore`.
#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// The backup
    file: PathBuf,
    /// The replica's data directory, without a ledger [default: the volumes of the cluster]
    #[arg(long, value_name = "DIR", requires = "kek_file")]
    data_dir: Option<PathBuf>,
    /// The key-encryption key of the mesh that the backup is of
    #[arg(long, value_name = "FILE", requires = "data_dir")]
    kek_file: Option<PathBuf>,
    /// Another key-encryption key that private keys in the backup may be sealed with
    #[arg(long = "also-kek-file", value_name = "FILE", requires = "data_dir")]
    other_kek_files: Vec<PathBuf>,
    /// The ordinal of the new replica
    #[arg(long, value_name = "N", default_value = "0", requires = "data_dir")]
    replica_id: ReplicaId,
    /// The address that other replicas connect to; not needed for a single replica
    #[arg(long, value_name = "HOST:PORT", requires = "data_dir")]
    raft_address: Option<HostPort>,
    /// The length of the backup, where FILE is a stream that does not end with it
    #[arg(long, value_name = "BYTES", hide = true, requires = "data_dir")]
    length: Option<u64>,
    #[command(flatten)]
    cluster: RecoveryArgs,
}

/// Flags of `smc cluster recover`.
#[derive(Debug, Args)]
pub(super) struct RecoverArgs {
    /// The data directory of a replica that is stopped [default: the volumes of the cluster]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The address that other replicas connect to [default: the previous one]
    #[arg(long, value_name = "HOST:PORT", requires = "data_dir")]
    raft_address: Option<HostPort>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: RecoveryArgs,
}

/// What a person has to know before the new group runs.
const ENDS: &str = "every member of the former group that it reaches ends\n";

/// The backup file cannot be written.
#[derive(Debug, Error)]
enum BackupFileError {
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    #[error("cannot write {}", .path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the controller ended before the backup did")]
    Incomplete,
}

pub(super) async fn run_backup(args: BackupArgs) -> Outcome {
    let BackupArgs { file: path, admin } = args;
    let failed = |source| BackupFileError::Write { path: path.clone(), source };
    if path.try_exists().map_err(failed)? {
        return Err(BackupFileError::Exists(path).into());
    }
    let mut parts =
        admin.patient_client().await?.backup(BackupRequest {}).await.map_err(Refused)?.into_inner();
    let mut file = Replacement::beside(&path, &format!(".{}.new", std::process::id())).map_err(failed)?;
    let mut length = 0;
    loop {
        let part = parts.message().await.map_err(Refused)?.and_then(|part| part.part);
        match part.ok_or(BackupFileError::Incomplete)? {
            Part::Content(bytes) => {
                file.write_all(&bytes).map_err(failed)?;
                length += bytes.len() as u64;
            }
            Part::End(end) if end.length == length => break,
            Part::End(_) => return Err(BackupFileError::Incomplete.into()),
        }
    }
    file.put_in_new_place().and_then(|()| sync_name(&path)).map_err(failed)?;
    output::write(&format!("{length} bytes in {}\n", path.display()))?;
    Ok(Verdict::Ok)
}

pub(super) async fn run_restore(args: RestoreArgs) -> Outcome {
    let RestoreArgs { file, data_dir, kek_file, other_kek_files, replica_id, raft_address, length, cluster } =
        args;
    let (Some(data_dir), Some(kek_file)) = (data_dir, kek_file) else { return cluster.restore(&file).await };
    let raft_address = raft_address.map_or_else(|| NO_PEERS.to_owned(), |address| address.to_string());
    let env = Env::system();
    // Also as the kubelet mounts it.
    let keys = KeyRing::mounted(&kek_file, &other_kek_files, &env)?;
    let backup = read_restorable(&file, length, &keys)?;
    let storage = Storage::Directory(ledger_directory(&data_dir));
    let group = restore(&backup, storage, replica_id, raft_address.clone(), &env).await?;
    let of = backup.group.map(|group| format!(" of group {group}")).unwrap_or_default();
    output::write(&format!(
        "{}\nreplica {replica_id} at {raft_address} is the only member of the new group {group}, with the backup{of}\n{ENDS}",
        contents(&backup.ledger)
    ))?;
    Ok(Verdict::Ok)
}

pub(super) async fn run_recover(args: RecoverArgs) -> Outcome {
    let RecoverArgs { data_dir, raft_address, output, cluster } = args;
    let Some(data_dir) = data_dir else { return cluster.recover().await };
    let storage = Storage::Directory(ledger_directory(&data_dir));
    if !cluster.confirm {
        let disk = match inspect(storage).await {
            // A program reads that as well: the volume may be given up.
            Err(RecoveryError::Nothing) if output.is_json() => None,
            inspected => Some(inspected?),
        };
        let summary = disk.as_ref().map(|disk| has_left(&data_dir).map(|left| DiskSummary::of(disk, left)));
        output.print(&summary.transpose()?, |_| {
            let disk = disk.as_ref().map(left).unwrap_or_default();
            format!("{disk}nothing was changed; --confirm makes it a group of its own\n")
        })?;
        return Ok(Verdict::Ok);
    }
    // Otherwise the next start would begin with an empty ledger. A replica that has left is a member again
    // of the new group alone.
    stay(&data_dir)?;
    let raft_address = raft_address.map(|address| address.to_string());
    let (inspection, group) = recover(storage, raft_address, &Env::system()).await?;
    output::write(&format!(
        "{}replica {} is the only member of the new group {group}\n{ENDS}",
        left(&inspection),
        inspection.replica
    ))?;
    Ok(Verdict::Ok)
}

fn left(inspection: &Inspection) -> String {
    let Inspection { replica, group, members, term, last, ledger, .. } = inspection;
    let members: Vec<_> = members.iter().map(|(id, member)| format!("{id} at {}", member.address)).collect();
    format!(
        "replica {replica} of group {group}\nmembers: {}\nterm {term}, entry {last}\n{}\n",
        members.join(", "),
        contents(ledger)
    )
}

fn contents(ledger: &Ledger) -> String {
    let authority = ledger.authority().map_or("no authority".to_owned(), |authority| {
        format!("the authority of {}", authority.trust_domain)
    });
    let keys: BTreeSet<_> = ledger.keys().map(|(_, _, key)| key.encryption_key.as_str()).collect();
    let keys: Vec<_> = keys.into_iter().collect();
    format!(
        "{authority}, {} identities, {} proxy certificates\nprivate keys sealed with the key-encryption key {}",
        ledger.service_certificates().count(),
        ledger.proxy_certificates().count(),
        keys.join(" and ")
    )
}
