//! What a person declared, with the object that declares it.

use smc_types::object_ref::ObjectRef;

/// What an object declares. A resource that Envoy refuses leads to the object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Declared<T> {
    /// What it declares.
    pub what: T,
    /// The object.
    pub by: ObjectRef,
}
