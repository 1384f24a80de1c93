//! Sealing all private keys anew, when one key-encryption key takes the place of another.

use smc_mesh::ledger::{MAX_RESEALED_TOGETHER, Operation, Owner, Reply, ResealedKey};
use smc_mesh::pki::{SealedKey, SerialNumber};

use super::BuiltinCa;
use crate::ca::error::CaError;
use crate::ca::seal::{Purpose, SealContext};

impl BuiltinCa {
    /// Seals every key that another KEK sealed with the first of this replica's. The answer is how many those were. It may
    /// be cut short at any point and begun again.
    pub(super) async fn seal_anew(&self) -> Result<usize, CaError> {
        let what = || "sealing the keys anew".to_owned();
        self.ledger.barrier().await.map_err(|source| CaError::NotCommitted { what: what(), source })?;
        let mut sealed = 0;
        loop {
            let resealed = self.ledger.local().read(|ledger| {
                let otherwise = ledger.keys().filter(|(_, _, key)| key.encryption_key != self.keys.id());
                let some = otherwise.take(MAX_RESEALED_TOGETHER);
                some.map(|(owner, serial, key)| self.reseal(owner, serial, key))
                    .collect::<Result<Vec<_>, _>>()
            })?;
            if resealed.is_empty() {
                return Ok(sealed);
            }
            match self.commit(&what(), Operation::ResealKeys(resealed)).await? {
                // All of them were replaced at this very moment, and by replicas that seal otherwise: not for ever.
                Ok(Reply::Resealed { keys: 0 }) => return Ok(sealed),
                Ok(Reply::Resealed { keys }) => sealed += keys,
                Ok(_) => return Err(CaError::NoAnswer(what())),
                Err(source) => return Err(CaError::Rejected { what: what(), source }),
            }
        }
    }

    fn reseal(
        &self,
        owner: Owner<'_>,
        serial: SerialNumber,
        key: &SealedKey,
    ) -> Result<ResealedKey, CaError> {
        let (purpose, name, account) = match owner {
            Owner::Root(domain) => (Purpose::Root, domain.to_string(), None),
            Owner::Issuing(domain) => (Purpose::Issuing, domain.to_string(), None),
            Owner::Service(account) => (Purpose::Service, account.to_string(), Some(account.clone())),
        };
        let context = SealContext { purpose, name: &name, serial };
        let opened = self.keys.open(context, key).and_then(|opened| self.keys.seal(context, &opened));
        let key = opened.map_err(|source| CaError::Sealing {
            what: format!("the key of certificate {serial}"),
            source,
        })?;
        Ok(ResealedKey { account, serial, key })
    }
}
