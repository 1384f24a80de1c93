//! The file format of a backup: a sealed copy of the ledger.
//!
//! ```text
//! "smc-backup 1\n"
//! id of the key    8 bytes: tells a wrong key from a damaged file
//! salt             32 bytes, random for each backup
//! pieces           length (4 bytes, big endian), then as many bytes: a sealed piece of the content
//! ```
//!
//! The content is a [`pb::BackupDescription`] after its length, and then the ledger in its canonical form.
//! It is sealed whole, with AES-256-GCM under a key derived from the group's secret and the salt: the
//! private keys in it are sealed already, but which identities exist is confidential as well. A piece's
//! nonce is its number and whether it is the last, so an omitted, exchanged or cut off piece is noticed
//! (the STREAM construction of Hoang, Reyhanitabar, Rogaway and Vizár, 2015).
//!
//! Owns the format. Does not know where a backup is stored.

use std::io::{self, Read, Write};

use prost::Message;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey};
use smc_authority::ledger::Ledger;
use smc_host::env::NoEntropy;
use smc_proto::raft::v1 as pb;
use thiserror::Error;

use crate::replicated::ProposeError;
use crate::storage::group_id::GroupId;
use crate::transport::tls::GroupSecret;

const MAGIC: &[u8] = b"smc-backup 1\n";
const KEY_ID: usize = 8;
const SALT: usize = 32;
const HEADER: usize = MAGIC.len() + KEY_ID + SALT;

/// The length of a piece before it is sealed, in bytes. Only the last piece is shorter.
const PIECE: usize = 1 << 20;

/// The longest content that is read, in bytes: more than a ledger at all its bounds.
const MAX_CONTENT: u64 = 8 << 30;

/// Why a backup was not written, or cannot be read.
#[derive(Debug, Error)]
pub enum BackupError {
    /// The file does not begin like a backup.
    #[error("this is no backup of SMC, or one of a newer version")]
    NotABackup,
    /// It was made under another key-encryption key, as that of another mesh.
    #[error("the backup was made with another key-encryption key than the configured one")]
    OtherKey,
    /// Its content is not what was written.
    #[error("the backup is damaged or incomplete: {0}")]
    Damaged(&'static str),
    /// The replica could not make sure that it has everything. A retry makes sense.
    #[error("cannot tell whether this replica has all that the group acknowledged")]
    NotFresh(#[from] ProposeError),
    /// The salt could not be drawn.
    #[error("cannot draw the salt of the backup")]
    NoEntropy(#[from] NoEntropy),
    /// It could not be written or read.
    #[error("cannot copy the backup")]
    Io(#[from] io::Error),
}

/// The content of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// The group of the replica that wrote it.
    pub group: Option<GroupId>,
    /// The ledger at that time.
    pub ledger: Ledger,
}

/// Seals pieces in order.
struct Sealer<W> {
    sink: W,
    key: LessSafeKey,
    header: [u8; HEADER],
    number: u64,
    piece: Vec<u8>,
}

/// Writes a backup. `salt` must be random.
pub(crate) fn write(
    backup: &Backup,
    secret: &GroupSecret,
    salt: [u8; SALT],
    sink: impl Write,
) -> io::Result<()> {
    let mut sealer = begin(secret, salt, sink)?;
    let group = backup.group.map(GroupId::bytes).unwrap_or_default();
    let description = pb::BackupDescription { group };
    sealer.write_all(&description.encode_length_delimited_to_vec())?;
    serde_json::to_writer(&mut sealer, &backup.ledger)?;
    sealer.seal(true)?;
    sealer.sink.flush()
}

/// A file with this content, sealed under the secret: one that no replica writes.
#[cfg(any(test, fuzzing))]
pub(crate) fn sealed(content: &[u8], secret: &GroupSecret) -> io::Result<Vec<u8>> {
    let mut sealer = begin(secret, [2; SALT], Vec::new())?;
    sealer.write_all(content)?;
    sealer.seal(true)?;
    Ok(sealer.sink)
}

/// Writes the header.
fn begin<W: Write>(secret: &GroupSecret, salt: [u8; SALT], mut sink: W) -> io::Result<Sealer<W>> {
    let mut header = [0; HEADER];
    header[..MAGIC.len()].copy_from_slice(MAGIC);
    header[MAGIC.len()..MAGIC.len() + KEY_ID].copy_from_slice(&key_id(secret)?);
    header[MAGIC.len() + KEY_ID..].copy_from_slice(&salt);
    sink.write_all(&header)?;
    Ok(Sealer { sink, key: key(secret, &salt)?, header, number: 0, piece: Vec::new() })
}

/// Reads and verifies a whole backup that was sealed under this secret.
pub fn read(secret: &GroupSecret, mut source: impl Read) -> Result<Backup, BackupError> {
    let mut header = [0; HEADER];
    read_exact(&mut source, &mut header, BackupError::NotABackup)?;
    let (magic, rest) = header.split_at(MAGIC.len());
    let (id, salt) = rest.split_at(KEY_ID);
    if magic != MAGIC {
        return Err(BackupError::NotABackup);
    }
    if id != key_id(secret)? {
        return Err(BackupError::OtherKey);
    }
    let content = unseal(&key(secret, salt)?, &header, source)?;
    let mut content = content.as_slice();
    let malformed = BackupError::Damaged("its content cannot be read");
    let Ok(description) = pb::BackupDescription::decode_length_delimited(&mut content) else {
        return Err(malformed);
    };
    let ledger = serde_json::from_slice(content).map_err(|_| malformed)?;
    Ok(Backup { group: GroupId::read(&description.group), ledger })
}

fn unseal(key: &LessSafeKey, header: &[u8], mut source: impl Read) -> Result<Vec<u8>, BackupError> {
    let mut content = Vec::new();
    let mut piece = Vec::new();
    for number in 0.. {
        let mut length = [0; 4];
        read_exact(&mut source, &mut length, BackupError::Damaged("its end is missing"))?;
        let length = u32::from_be_bytes(length) as usize;
        if length > PIECE + MAX_TAG_LEN || content.len() as u64 > MAX_CONTENT {
            return Err(BackupError::Damaged("it is too long"));
        }
        piece.resize(length, 0);
        read_exact(&mut source, &mut piece, BackupError::Damaged("its end is missing"))?;
        let last = length < PIECE + MAX_TAG_LEN;
        let opened = key.open_in_place(nonce(number, last), Aad::from(header), &mut piece);
        content
            .extend_from_slice(opened.map_err(|_| BackupError::Damaged("a piece is not what was written"))?);
        if last {
            break;
        }
    }
    match source.read(&mut [0])? {
        0 => Ok(content),
        _ => Err(BackupError::Damaged("something follows its end")),
    }
}

impl<W: Write> Sealer<W> {
    /// Seals the collected piece. The last one is the one that is not full, so it may be empty.
    fn seal(&mut self, last: bool) -> io::Result<()> {
        let nonce = nonce(self.number, last);
        let sealed = self.key.seal_in_place_append_tag(nonce, Aad::from(&self.header[..]), &mut self.piece);
        sealed.map_err(|_| io::Error::other("cannot seal a piece"))?;
        let length = u32::try_from(self.piece.len()).map_err(io::Error::other)?;
        self.sink.write_all(&length.to_be_bytes())?;
        self.sink.write_all(&self.piece)?;
        self.piece.clear();
        self.number += 1;
        Ok(())
    }
}

impl<W: Write> Write for Sealer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (now, _) = bytes.split_at(bytes.len().min(PIECE - self.piece.len()));
        self.piece.extend_from_slice(now);
        if self.piece.len() == PIECE {
            self.seal(false)?;
        }
        Ok(now.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Unique for each piece of a backup; no two backups have the same key.
fn nonce(number: u64, last: bool) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[0] = u8::from(last);
    bytes[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn key(secret: &GroupSecret, salt: &[u8]) -> io::Result<LessSafeKey> {
    let bytes = secret.derive(salt, b"smc backup 1").map_err(io::Error::other)?;
    let key = UnboundKey::new(&AES_256_GCM, &*bytes).map_err(|_| io::Error::other("a key was refused"))?;
    Ok(LessSafeKey::new(key))
}

fn key_id(secret: &GroupSecret) -> io::Result<[u8; KEY_ID]> {
    let bytes = secret.derive(b"", b"smc backup key id 1").map_err(io::Error::other)?;
    let mut id = [0; KEY_ID];
    id.copy_from_slice(&bytes[..KEY_ID]);
    Ok(id)
}

/// Fills `bytes`; an earlier end of the source is the error `early`.
fn read_exact(source: &mut impl Read, bytes: &mut [u8], early: BackupError) -> Result<(), BackupError> {
    source.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => early,
        _ => BackupError::Io(error),
    })
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;
    use crate::tests::commands::{found, issue};

    fn secret(byte: u8) -> GroupSecret {
        GroupSecret::new(Zeroizing::new([byte; 32]))
    }

    fn backup(certificates: u32) -> Backup {
        let mut ledger = Ledger::default();
        for command in [found()].into_iter().chain((2..certificates + 2).map(issue)) {
            ledger.apply(&command).unwrap();
        }
        Backup { group: Some(GroupId([9; 16])), ledger }
    }

    fn written(backup: &Backup) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(backup, &secret(1), [7; SALT], &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_backup_reads_back_as_what_it_was_however_long() {
        for certificates in [0, 1, 10_000] {
            let backup = backup(certificates);
            let bytes = written(&backup);
            assert_eq!(read(&secret(1), &*bytes).unwrap(), backup);
        }
        assert!(written(&backup(10_000)).len() > 2 * PIECE, "it should have been several pieces");
    }

    #[test]
    fn nothing_of_the_content_can_be_read_without_the_key() {
        let bytes = written(&backup(10));
        for text in ["bookstore", "cluster.local", "serial"] {
            assert!(!bytes.windows(text.len()).any(|window| window == text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_backup_under_another_key_is_distinguished_from_a_damaged_one() {
        let bytes = written(&backup(1));
        assert!(matches!(read(&secret(2), &*bytes), Err(BackupError::OtherKey)));
        assert!(matches!(read(&secret(1), &b"#!/bin/sh\n"[..]), Err(BackupError::NotABackup)));
        assert!(matches!(read(&secret(1), &b""[..]), Err(BackupError::NotABackup)));
    }

    #[test]
    fn a_backup_that_was_changed_anywhere_or_cut_anywhere_is_refused() {
        let bytes = written(&backup(2));
        for position in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[position] ^= 1;
            assert!(read(&secret(1), &*changed).is_err(), "changed at {position}");
            assert!(read(&secret(1), &bytes[..position]).is_err(), "cut at {position}");
        }
        assert!(read(&secret(1), &*[&bytes[..], b"more"].concat()).is_err());
    }

    #[test]
    fn pieces_that_are_exchanged_or_left_out_are_refused() {
        let bytes = written(&backup(10_000));
        let length = 4 + PIECE + MAX_TAG_LEN;
        let (header, pieces) = bytes.split_at(HEADER);
        let (first, rest) = pieces.split_at(length);
        let (second, rest) = rest.split_at(length);
        for changed in
            [[header, second, first, rest], [header, first, rest, b""], [header, first, first, rest]]
        {
            let refused = read(&secret(1), &*changed.concat());
            assert!(matches!(refused, Err(BackupError::Damaged(_))), "{refused:?}");
        }
    }
}
