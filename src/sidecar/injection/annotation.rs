//! Annotations of a pod that are one of a few words.

use serde_json::Value;
use smc_types::text::truncated;

use super::error::InjectionError;

/// The word that the pod's annotation has, if there is one. Any other text refuses the pod, where its author
/// sees that: without it, the pod would work otherwise than its author thinks.
pub(super) fn word(
    pod: &Value,
    annotation: &'static str,
    words: &[&'static str],
) -> Result<Option<&'static str>, InjectionError> {
    let Some(text) = pod["metadata"]["annotations"][annotation].as_str() else { return Ok(None) };
    let known = words.iter().find(|word| **word == text).copied();
    known.map(Some).ok_or_else(|| InjectionError::Annotation {
        annotation,
        text: truncated(text, 60),
        reason: format!("it is one of {}", words.join(", ")),
    })
}
