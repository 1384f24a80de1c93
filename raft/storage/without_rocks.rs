//! In place of RocksDB where it is left out of the build (feature `rocks`): directories are refused.

use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use smc_types::ids::ReplicaId;

use crate::storage::database::{Database, Family, Write};
use crate::storage::error::StorageError;

/// A ledger in a directory, of which there is none.
#[derive(Debug)]
pub(crate) enum RocksDisk {}

impl RocksDisk {
    pub(crate) fn open(path: &Path, _: Option<ReplicaId>) -> Result<Self, StorageError> {
        Self::examine(path)
    }

    pub(crate) fn examine(path: &Path) -> Result<Self, StorageError> {
        Err(StorageError::WithoutRocksDb { path: path.to_owned() })
    }

    pub(crate) fn exists(path: &Path) -> Result<bool, StorageError> {
        Self::examine(path).map(|disk| match disk {})
    }
}

impl Database for RocksDisk {
    fn write(&self, _: Vec<Write>) -> Result<(), StorageError> {
        match *self {}
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        match *self {}
    }

    fn get(&self, _: Family, _: &[u8]) -> Result<Option<Bytes>, StorageError> {
        match *self {}
    }

    fn scan(&self, _: Family, _: Range<Vec<u8>>, _: usize) -> Result<Vec<(Vec<u8>, Bytes)>, StorageError> {
        match *self {}
    }

    fn last(&self, _: Family) -> Result<Option<(Vec<u8>, Bytes)>, StorageError> {
        match *self {}
    }

    fn blocks(&self) -> bool {
        match *self {}
    }
}
