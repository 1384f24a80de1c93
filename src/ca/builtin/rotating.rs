//! Replacing the issuing CA and the root: the steps that [`plan_ca_rotation`] says, and those that a person asks for.
//!
//! Owns making what a step needs, and proposing it. Whether it may be taken is the ledger's to say, so it does not matter
//! who proposes it, how often, or who died in between.

use std::collections::BTreeSet;

use smc_mesh::ledger::{Operation, Rejection, Reply};
use smc_mesh::pki::{CaPlan, CaStep, Circumstances, SerialNumber, plan_ca_rotation};

use super::{BuiltinCa, making};
use crate::ca::error::CaError;
use crate::ca::manager::Rotate;

impl BuiltinCa {
    /// Takes the step that is due, if one is, and says what is due after it.
    pub(super) async fn take_due_step(
        &self,
        replicas: &BTreeSet<u64>,
        steady: bool,
    ) -> Result<CaPlan, CaError> {
        let plan = || {
            let (lifetimes, now) = (&self.settings.lifetimes, self.env.now());
            let circumstances = Circumstances { lifetimes, replicas, now, steady };
            self.ledger.local().read(|ledger| plan_ca_rotation(ledger, circumstances))
        };
        let CaPlan { step: Some(step), .. } = plan() else { return Ok(plan()) };
        match self.take(step).await {
            // Somebody else was faster, or the state is another than it was.
            Ok(_) | Err(CaError::Rejected { source: Rejection::Overtaken { .. }, .. }) => Ok(plan()),
            Err(error) => Err(error),
        }
    }

    /// Does what a person asks for. The answer is the new CA.
    pub(super) async fn rotate_by_hand(&self, what: Rotate) -> Result<SerialNumber, CaError> {
        let step = self.authority(|authority| match what {
            Rotate::Issuing => CaStep::RotateIssuing { replaces: authority.issuing.serial },
            Rotate::Root => CaStep::TrustRoot { beside: authority.root.serial },
        })?;
        self.take(step).await
    }

    pub(super) async fn commit_acknowledgement(
        &self,
        replica: u64,
        root: SerialNumber,
    ) -> Result<(), CaError> {
        let what = format!("replica {replica}'s acknowledgement of the root {root}");
        self.changed(what, Operation::AcknowledgeRoot { replica, root }).await
    }

    /// Takes one step. The answer is the CA that it is about.
    async fn take(&self, step: CaStep) -> Result<SerialNumber, CaError> {
        let (keys, env, settings) = (&*self.keys, &self.env, &self.settings);
        let (ca, what, operation) = match step {
            CaStep::RotateIssuing { replaces } => {
                let root = self.authority(|authority| authority.root.clone())?;
                let issuing = Box::new(making::issuing(keys, env, settings, &root)?);
                let (ca, what) = (issuing.serial, format!("a new issuing CA in the place of {replaces}"));
                (ca, what, Operation::RotateIssuing { replaces, issuing })
            }
            CaStep::TrustRoot { beside } => {
                let root = Box::new(making::root(keys, env, settings)?);
                let (ca, what) = (root.serial, format!("a new root beside {beside}"));
                (ca, what, Operation::TrustRoot { beside, root })
            }
            CaStep::SignWithNextRoot { root, replicas } => {
                let what = format!("signing under the root {root}");
                let next =
                    self.authority(|authority| authority.next_root.as_ref().map(|next| next.ca.clone()))?;
                let next = next.filter(|next| next.serial == root);
                let next = next.ok_or_else(|| CaError::Rejected {
                    what: what.clone(),
                    source: Rejection::UnknownCa(root),
                })?;
                let issuing = Box::new(making::issuing(keys, env, settings, &next)?);
                (root, what, Operation::SignWithNextRoot { root, replicas, issuing })
            }
            CaStep::EndVouching { issuing } => {
                let what = format!("the end of signing by {issuing}");
                (issuing, what, Operation::EndVouching { issuing })
            }
            CaStep::RetireCa(ca) => (ca, format!("retiring {ca}"), Operation::RetireCa(ca)),
        };
        self.changed(what, operation).await?;
        Ok(ca)
    }

    async fn changed(&self, what: String, operation: Operation) -> Result<(), CaError> {
        match self.commit(&what, operation).await? {
            Ok(Reply::AuthorityChanged) => {
                tracing::info!("the certificate authority: {what}");
                Ok(())
            }
            Ok(Reply::AuthorityUnchanged) => Ok(()),
            Ok(_) => Err(CaError::NoAnswer(what)),
            Err(source) => Err(CaError::Rejected { what, source }),
        }
    }
}
