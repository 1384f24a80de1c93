//! Which statistics the sidecar of a pod makes.

use serde_json::Value;

use super::annotation;
use super::error::InjectionError;

/// SMC's own: OSM's sidecars make all.
const ANNOTATION: &str = "openservicemesh.io/sidecar-statistics";

const USED: &str = "used";
const ALL: &str = "all";

/// The statistics of a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Statistics {
    /// All that Envoy has; those of calls once there are calls.
    All,
    /// Without [`crate::omitted_statistics`].
    Used,
}

impl Statistics {
    /// What the pod asks for.
    pub(super) fn read(pod: &Value) -> Result<Self, InjectionError> {
        let word = annotation::word(pod, ANNOTATION, &[USED, ALL])?;
        Ok(if word == Some(ALL) { Self::All } else { Self::Used })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_statistics_are_made_where_a_pod_asks_for_them() {
        let read = |text: &str| Statistics::read(&json!({"metadata": {"annotations": {ANNOTATION: text}}}));
        assert_eq!(Statistics::read(&json!({})), Ok(Statistics::Used));
        assert_eq!((read("used"), read("all")), (Ok(Statistics::Used), Ok(Statistics::All)));
        for text in ["", "All", "none", "true"] {
            let refused = read(text).map_err(|error| error.to_string());
            let said = format!("the annotation {ANNOTATION} has {text:?}: it is one of used, all");
            assert_eq!(refused, Err(said));
        }
    }
}
