//! What is wrong with the identities of a namespace together.

use crate::catalog::Catalog;
use smc_authority::ledger::MAX_SERVICE_ACCOUNTS_PER_NAMESPACE;
use smc_types::object_ref::ObjectRef;
use smc_types::problem::Problem;

pub(super) fn check(catalog: &Catalog, namespace: &str, problems: &mut Vec<Problem>) {
    let count = catalog.accounts_in(namespace).count();
    if count > MAX_SERVICE_ACCOUNTS_PER_NAMESPACE {
        let message = format!(
            "has pods of {count} service accounts, more than the {MAX_SERVICE_ACCOUNTS_PER_NAMESPACE} that may \
             have certificates; the sidecars of the latest ones are sent nothing"
        );
        problems.push(Problem::error(ObjectRef::Namespace(namespace.to_owned()), "", message));
    }
}
