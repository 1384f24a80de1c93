//! The Secret with the key-encryption key: made once, never read, changed or deleted by SMC.
//!
//! Owns when it is made. No release of the chart holds it, so neither an upgrade nor an uninstallation
//! touches it, and rendering the chart needs no randomness. The API server creates an object of one name
//! once: of several replicas that start at once, one makes the key.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use smc_host::env::{Env, NoEntropy};
use thiserror::Error;
use tracing::info;
use zeroize::Zeroize;

use super::founding::{self, RECORD};
use super::group_record::{GROUP_RECORD, KEYS};
use super::{ApiError, OwnObjects};

/// The key in the Secret's data, and the file's name where it is mounted.
pub(crate) const KEY: &str = "kek";

/// Why there is no Secret.
#[derive(Debug, Error)]
pub enum KekSecretError {
    /// The API server refused, or did not answer.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The system returned no random bytes.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
    /// A mesh was founded here, and its key is gone.
    #[error(
        "the Secret {secret} is missing, and the ConfigMap {record} says that a mesh was founded with the \
         key-encryption key {key}: restore the Secret from a backup; to give that mesh up and found another, delete \
         the ConfigMap and the volumes of the replicas"
    )]
    Lost {
        /// The missing Secret.
        secret: String,
        /// The record of the founding.
        record: String,
        /// The id of the key.
        key: String,
    },
}

/// The Secret of one control plane.
#[derive(Debug)]
pub struct KekSecret {
    /// The namespace that holds it.
    pub objects: OwnObjects,
    /// Its name.
    pub name: String,
}

impl KekSecret {
    /// Makes the Secret if it is missing.
    pub async fn ensure(&self, env: &Env) -> Result<(), KekSecretError> {
        let (name, namespace) = (&self.name, self.objects.namespace());
        if let Some(record) = self.objects.config_map(RECORD).await? {
            // There must be a key. Whether there is, a creation that is only tried tells without reading it.
            if self.objects.create_secret(&secret(name, [0; 32]), true).await? {
                let group = self.objects.config_map(GROUP_RECORD).await?.unwrap_or_default();
                // That of the founding may have been replaced since.
                let key = group.get(KEYS).or_else(|| record.get(founding::KEY));
                return Err(KekSecretError::Lost {
                    secret: format!("{namespace}/{name}"),
                    record: format!("{namespace}/{RECORD}"),
                    key: key.cloned().unwrap_or_default(),
                });
            }
            return Ok(());
        }
        let mut bytes = [0; 32];
        env.entropy.fill(&mut bytes)?;
        let mut made = secret(name, bytes);
        bytes.zeroize();
        let created = self.objects.create_secret(&made, false).await;
        for value in made.data.iter_mut().flat_map(BTreeMap::values_mut) {
            value.0.zeroize();
        }
        if created? {
            info!(%namespace, secret = %name, "made the key-encryption key: keep a copy of this Secret in a safe place");
        }
        Ok(())
    }
}

fn secret(name: &str, key: [u8; 32]) -> Secret {
    let digits = ByteString(HEXLOWER.encode(&key).into_bytes());
    Secret {
        metadata: super::api::metadata(name),
        data: Some(BTreeMap::from([(KEY.to_owned(), digits)])),
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}
