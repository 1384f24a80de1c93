//! The mesh's certificate authority as rules.
//!
//! Owns the values of the public-key infrastructure ([`pki`]), the replicated ledger of
//! certificates ([`ledger`]), and the rules over it ([`rules`]): admission, renewal, orphaned
//! certificates, CA rotation, warnings. Everything here is a pure function of values. Keys,
//! signatures, the time and randomness come from the caller.
//!
//! ```text
//! pki ◄ ledger ◄ rules
//! ```

pub mod ledger;
pub mod pki;
pub mod rules;
