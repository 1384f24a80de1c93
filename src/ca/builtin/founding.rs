//! Founding the authority, once, and taking it up again.

use smc_mesh::ledger::{Authority, Command, Operation, Rejection, Reply};
use smc_raft::ReplicatedLedger;

use super::{CaSettings, making};
use crate::ca::error::CaError;
use crate::ca::seal::KeyEncryption;
use crate::env::Env;

/// Commits one operation.
pub(super) async fn commit(
    ledger: &dyn ReplicatedLedger,
    env: &Env,
    what: &str,
    operation: Operation,
) -> Result<Result<Reply, Rejection>, CaError> {
    let mut outcomes = ledger
        .propose(vec![Command { at: env.now(), operation }])
        .await
        .map_err(|source| CaError::NotCommitted { what: what.to_owned(), source })?;
    outcomes.pop().ok_or_else(|| CaError::NoAnswer(what.to_owned()))
}

/// The authority that the ledger holds, founded now if it held none. Of several replicas that found at the
/// same moment one succeeds, and all take up that one's. An empty ledger where there was an authority is refused: a new
/// one would cut off every sidecar.
pub(super) async fn found_or_load(
    ledger: &dyn ReplicatedLedger,
    keys: &dyn KeyEncryption,
    env: &Env,
    settings: &CaSettings,
) -> Result<Authority, CaError> {
    let what = "the founding of the authority";
    // Before the ledger is looked at: what is noted was committed, so the ledger must show it after the barrier.
    let note = keys.founding_note()?;
    ledger.barrier().await.map_err(|source| CaError::NotCommitted { what: what.to_owned(), source })?;
    if ledger.local().read(|ledger| ledger.authority().is_none()) {
        if let Some(note) = note {
            return Err(CaError::FoundedBefore { note });
        }
        let authority = generate(keys, env, settings)?;
        match commit(ledger, env, what, Operation::InitAuthority(Box::new(authority))).await? {
            Ok(Reply::Founded) => {
                tracing::info!(trust_domain = %settings.trust_domain, "the authority is founded");
            }
            Err(Rejection::AlreadyFounded(_)) => {}
            Ok(_) => return Err(CaError::NoAnswer(what.to_owned())),
            Err(source) => return Err(CaError::Rejected { what: what.to_owned(), source }),
        }
    }
    let authority = ledger.local().read(|ledger| ledger.authority().cloned());
    let authority = authority.ok_or_else(|| CaError::NoAnswer(what.to_owned()))?;
    if authority.trust_domain != settings.trust_domain {
        return Err(CaError::OtherTrustDomain {
            stored: authority.trust_domain,
            configured: settings.trust_domain.clone(),
        });
    }
    // Not only by who founds it: that one may have crashed before it came to this. A key that is mounted read-only has
    // no place for a note; the authority works without.
    let text = format!(
        "An authority of {} was founded, with the root {}.",
        authority.trust_domain, authority.root.serial
    );
    if let Err(error) = keys.note_founding(&text) {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "if the ledger is lost, a new authority will be founded without a question");
    }
    Ok(authority)
}

/// A new root and an issuing CA under it.
fn generate(keys: &dyn KeyEncryption, env: &Env, settings: &CaSettings) -> Result<Authority, CaError> {
    let root = making::root(keys, env, settings)?;
    let issuing = making::issuing(keys, env, settings, &root)?;
    Ok(Authority::new(settings.trust_domain.clone(), root, issuing))
}
