//! Text from outside, bounded before it is shown or stored.

/// The first `max` characters of `text`.
pub fn truncated(text: &str, max: usize) -> String {
    text.chars().take(max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_after_whole_characters() {
        assert_eq!(truncated("äöü", 2), "äö");
        assert_eq!(truncated("ab", 2), "ab");
        assert_eq!(truncated("", 2), "");
    }
}
