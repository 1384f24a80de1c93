//! Numbers from the environment, by which a person changes what a test does.

use std::str::FromStr;

/// The number of this variable, if it is set.
///
/// # Panics
///
/// If it is no such number.
#[expect(clippy::disallowed_methods, reason = "`cargo test` passes no flags")]
pub fn setting<N: FromStr>(name: &str) -> Option<N> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}
