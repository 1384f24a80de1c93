//! Rotation of the issuing CA and the root: the steps that [`plan_ca_rotation`] plans, and those an
//! operator requests.
//!
//! Owns making the new CA of a step, and proposing the step. The ledger decides whether a step is valid, so
//! any replica may propose it at any time, more than once.

use std::collections::BTreeSet;

use smc_authority::ledger::{
    AcknowledgeRoot, AuthorityChange, CancelRoot, EndControllerIssuer, HastenRoot, LedgerOperation, NameRoot,
    Rejection, RetireCa, RotateIssuing, SignWithNextRoot, TrustRoot,
};
use smc_authority::pki::SerialNumber;
use smc_authority::rules::{CaPlan, CaStep, DeclaredRoots, RotationInputs, plan_ca_rotation, revive_issuing};

use super::{BuiltinCa, Rotate, new_ca};
use crate::commit::check_clock;
use crate::error::{CaError, CaOperation};

impl BuiltinCa {
    /// Takes the rotation step that is due, if any, and returns the plan after it. `replicas` are the
    /// group's members; `steady` says whether the wall clock can be trusted; `declared` is what a person
    /// declares of roots. One replica at a time should call this; several do no harm.
    pub async fn maintain(
        &self,
        replicas: &BTreeSet<u64>,
        steady: bool,
        declared: &DeclaredRoots,
    ) -> Result<CaPlan, CaError> {
        let plan = || {
            let (lifetimes, now) = (&self.settings.lifetimes, self.env.now());
            let inputs = RotationInputs { lifetimes, replicas, now, steady, declared };
            self.ledger.local().read(|ledger| plan_ca_rotation(ledger, inputs))
        };
        let CaPlan { step: Some(step), .. } = plan() else { return Ok(plan()) };
        match self.take(step).await {
            // Another replica was faster, or the state has changed.
            Ok(_) | Err(CaError::Rejected { source: Rejection::CaConflict { .. }, .. }) => Ok(plan()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the issuing CA if it cannot sign now. Of several replicas that start at once, one does.
    pub(super) async fn revive(&self) -> Result<(), CaError> {
        let now = self.env.now();
        let (root, step) = self.authority(|authority| {
            (authority.root.serial, revive_issuing(authority, &self.settings.lifetimes, now))
        })?;
        let Some(step) = step.map_err(|source| CaError::RootEnded { root, source })? else { return Ok(()) };
        tracing::warn!("the issuing CA has ended, or is not valid yet; its root signs another one");
        match self.take(step).await {
            Ok(_) | Err(CaError::Rejected { source: Rejection::CaConflict { .. }, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Rotates a CA on an operator's request. Returns the serial number of the new CA.
    pub async fn rotate(&self, ca: Rotate) -> Result<SerialNumber, CaError> {
        let step = self.authority(|authority| match ca {
            Rotate::Issuing => CaStep::RotateIssuing { replaces: authority.issuing.serial },
            Rotate::Root => CaStep::TrustRoot { beside: authority.root.serial },
        })?;
        self.take(step).await
    }

    /// Gives up the next root, which has signed nothing. Returns its serial number.
    pub async fn cancel_root(&self) -> Result<SerialNumber, CaError> {
        let root = self.next_root(CaOperation::CancelRoot)?;
        self.change(&CaOperation::CancelRoot(root), CancelRoot { root }).await?;
        Ok(root)
    }

    /// Lets the next root sign without waiting for the service certificates from before its trust. Returns
    /// its serial number.
    pub async fn hasten_root(&self) -> Result<SerialNumber, CaError> {
        let root = self.next_root(CaOperation::HastenRoot)?;
        self.change(&CaOperation::HastenRoot(root), HastenRoot { root }).await?;
        Ok(root)
    }

    /// The next root, if the group knows what is to be done with it: an older version stops at a command
    /// that it does not know.
    fn next_root(&self, operation: impl Fn(SerialNumber) -> CaOperation) -> Result<SerialNumber, CaError> {
        let next = self.authority(|authority| authority.next_root.as_ref().map(|next| next.ca.serial))?;
        let root = next.ok_or(CaError::NoNextRoot)?;
        if self.ledger.local().read(|ledger| ledger.agreed_time().is_none()) {
            return Err(CaError::Rejected { operation: operation(root), source: Rejection::NoAgreedTime });
        }
        Ok(root)
    }

    /// Records that every proxy connected to this replica has acknowledged trust in `root`. Idempotent.
    pub async fn acknowledge_root(&self, replica: u64, root: SerialNumber) -> Result<(), CaError> {
        let operation = CaOperation::AcknowledgeRoot { replica, root };
        self.change(&operation, AcknowledgeRoot { replica, root }).await
    }

    /// Takes one step. Returns the CA that the step is about.
    async fn take(&self, step: CaStep) -> Result<SerialNumber, CaError> {
        let (keys, env, settings) = (&*self.keys, &self.env, &self.settings);
        check_clock(&*self.ledger, &CaOperation::Rotate).await?;
        match step {
            CaStep::RotateIssuing { replaces } => {
                let root = self.authority(|authority| authority.root.clone())?;
                let issuing = Box::new(new_ca::issuing(keys, env, settings, &root)?);
                let ca = issuing.serial;
                self.change(&CaOperation::RotateIssuing { replaces }, RotateIssuing { replaces, issuing })
                    .await?;
                Ok(ca)
            }
            CaStep::TrustRoot { beside } => {
                let root = Box::new(new_ca::root(keys, env, settings)?);
                let ca = root.serial;
                self.change(&CaOperation::TrustRoot { beside }, TrustRoot { beside, root }).await?;
                Ok(ca)
            }
            CaStep::SignWithNextRoot { root, replicas } => {
                let operation = CaOperation::SignWithNextRoot(root);
                let next =
                    self.authority(|authority| authority.next_root.as_ref().map(|next| next.ca.clone()))?;
                let next = next.filter(|next| next.serial == root);
                let unknown = Rejection::UnknownCa(root);
                let next =
                    next.ok_or_else(|| CaError::Rejected { operation: operation.clone(), source: unknown })?;
                let issuing = Box::new(new_ca::issuing(keys, env, settings, &next)?);
                self.change(&operation, SignWithNextRoot { root, replicas, issuing }).await?;
                Ok(root)
            }
            CaStep::EndControllerIssuer { issuing } => {
                self.change(&CaOperation::EndControllerIssuer(issuing), EndControllerIssuer { issuing })
                    .await?;
                Ok(issuing)
            }
            CaStep::RetireCa(ca) => {
                self.change(&CaOperation::RetireCa(ca), RetireCa(ca)).await?;
                Ok(ca)
            }
            CaStep::CancelRoot { root } => {
                self.change(&CaOperation::CancelRoot(root), CancelRoot { root }).await?;
                Ok(root)
            }
            CaStep::NameRoot { root, object } => {
                let operation = CaOperation::NameRoot { root, object: object.clone() };
                self.change(&operation, NameRoot { root, object }).await?;
                Ok(root)
            }
        }
    }

    /// Commits a change of the authority, and logs it.
    async fn change<O>(&self, operation: &CaOperation, command: O) -> Result<(), CaError>
    where
        O: LedgerOperation<Reply = AuthorityChange>,
    {
        if self.commit(operation, command).await? == AuthorityChange::Changed {
            tracing::info!("the certificate authority: {operation}");
        }
        Ok(())
    }
}
