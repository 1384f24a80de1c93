//! Founding the authority once, and loading it at every later start.

use smc_authority::ledger::{Authority, InitAuthority, Rejection};
use smc_host::env::Env;
use smc_raft::ReplicatedLedger;

use super::{CaSettings, new_ca};
use crate::commit::{barrier, check_clock, propose};
use crate::error::{CaError, CaOperation};
use crate::seal::KeyEncryption;

/// The authority in the ledger, which is founded if the ledger holds none. Of several replicas that start
/// at once, one founds the authority and all load it. If an authority was founded with this key-encryption
/// key before and the ledger is empty, this is an error: a new authority would cut off every sidecar.
pub(super) async fn found_or_load(
    ledger: &dyn ReplicatedLedger,
    keys: &dyn KeyEncryption,
    env: &Env,
    settings: &CaSettings,
) -> Result<Authority, CaError> {
    let operation = CaOperation::Found;
    // Read before the barrier: a founding is committed before it is noted, so the ledger must then hold it.
    let note = keys.founding_note()?;
    barrier(ledger, &operation).await?;
    if ledger.local().read(|ledger| ledger.authority().is_none()) {
        if let Some(note) = note {
            return Err(CaError::FoundedBefore { note });
        }
        check_clock(ledger, &operation).await?;
        let authority = generate(keys, env, settings)?;
        match propose(ledger, env, &operation, InitAuthority(authority)).await? {
            Ok(()) => {
                tracing::info!(trust_domain = %settings.trust_domain, "the authority is founded");
            }
            Err(Rejection::AlreadyFounded(_)) => {}
            Err(source) => return Err(CaError::Rejected { operation, source }),
        }
    }
    let authority = ledger.local().read(|ledger| ledger.authority().cloned());
    let authority = authority.ok_or(CaError::NotFounded)?;
    if authority.trust_domain != settings.trust_domain {
        return Err(CaError::OtherTrustDomain {
            stored: authority.trust_domain,
            configured: settings.trust_domain.clone(),
        });
    }
    // Every replica writes the note, since the founding one may have crashed before it did. Beside a key
    // that is mounted read-only no note can be written; the authority works without it.
    let text = format!(
        "An authority of {} was founded, with the root {}.",
        authority.trust_domain, authority.root.serial
    );
    if let Err(error) = keys.note_founding(&text) {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(
            error,
            "cannot note the founding of the authority; if the ledger is lost, a new authority will be founded"
        );
    }
    Ok(authority)
}

/// Makes a root and an issuing CA under it.
fn generate(keys: &dyn KeyEncryption, env: &Env, settings: &CaSettings) -> Result<Authority, CaError> {
    let root = new_ca::root(keys, env, settings)?;
    let issuing = new_ca::issuing(keys, env, settings, &root)?;
    Ok(Authority::new(settings.trust_domain.clone(), root, issuing))
}
