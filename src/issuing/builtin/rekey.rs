//! Rekeying: sealing all private keys with another key-encryption key.

use smc_authority::ledger::{KeyOwner, MAX_REKEYED_TOGETHER, Rekey, RekeyedKey};
use smc_authority::pki::{SealedKey, SerialNumber};

use super::BuiltinCa;
use crate::commit::barrier;
use crate::error::{CaError, CaOperation};
use crate::seal::{Purpose, SealContext};

impl BuiltinCa {
    /// Seals every private key that another key-encryption key sealed with this replica's own, and returns
    /// their number. An interrupted run may be repeated.
    pub async fn rekey(&self) -> Result<usize, CaError> {
        let operation = CaOperation::Rekey;
        barrier(&*self.ledger, &operation).await?;
        let mut rekeyed = 0;
        loop {
            let batch = self.ledger.local().read(|ledger| {
                let others = ledger.keys().filter(|(_, _, key)| key.encryption_key != self.keys.id());
                let some = others.take(MAX_REKEYED_TOGETHER);
                some.map(|(owner, serial, key)| self.rekey_one(owner, serial, key))
                    .collect::<Result<Vec<_>, _>>()
            })?;
            if batch.is_empty() {
                return Ok(rekeyed);
            }
            match self.commit(&operation, Rekey(batch)).await? {
                // Replicas with another KEK replaced all of these certificates meanwhile: ends the loop.
                0 => return Ok(rekeyed),
                keys => rekeyed += keys,
            }
        }
    }

    fn rekey_one(
        &self,
        owner: KeyOwner<'_>,
        serial: SerialNumber,
        key: &SealedKey,
    ) -> Result<RekeyedKey, CaError> {
        let (purpose, name, account) = match owner {
            KeyOwner::Root(domain) => (Purpose::Root, domain.to_string(), None),
            KeyOwner::Issuing(domain) => (Purpose::Issuing, domain.to_string(), None),
            KeyOwner::Gateway(secret) => (Purpose::Gateway, secret.to_string(), None),
            KeyOwner::Service(account) => (Purpose::Service, account.to_string(), Some(account.clone())),
        };
        let context = SealContext { purpose, name: &name, serial };
        let opened = self.keys.open(context, key).and_then(|opened| self.keys.seal(context, &opened));
        let key =
            opened.map_err(|source| CaError::Sealing { operation: CaOperation::RekeyOne(serial), source })?;
        Ok(RekeyedKey { account, serial, key })
    }
}
