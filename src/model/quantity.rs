//! Quantities of Kubernetes: how much of a resource.

/// The longest text of a quantity. The API server writes quantities in at most 20 characters.
pub const MAX_QUANTITY: usize = 64;

/// Whether Kubernetes reads this as a quantity that is not negative: digits, perhaps with a suffix.
pub fn is_quantity(text: &str) -> bool {
    const SUFFIXES: [&str; 15] =
        ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi"];
    if text.len() > MAX_QUANTITY {
        return false;
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|next: char| !next.is_ascii_digit() && next != '.').unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let exponent = suffix.strip_prefix(['e', 'E']).map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest));
    let exponent =
        exponent.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.matches('.').count() <= 1 && digits.bytes().any(|byte| byte.is_ascii_digit());
    number && (exponent || suffix == "Ei" || SUFFIXES.contains(&suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_is_what_kubernetes_reads_as_one() {
        for good in ["500m", "64Mi", "1", "+1.5Gi", ".5", "1.", "1e3", "1E-3", "2E", "2Ei"] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", "lots", "-1", "1 Gi", "1.2.3", ".", "1KB", "1e", "m", "+", &"9".repeat(65)] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }
}
