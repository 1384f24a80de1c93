//! Extracts the client's identity from the `x-forwarded-client-cert` header that the sidecar sets.
//!
//! Owns the header's grammar (Envoy, "x-forwarded-client-cert": elements separated by `,`, pairs by
//! `;`, values quoted when they contain a separator). Does not authenticate: the header is as
//! trustworthy as the sidecar in front, which removes a client's header and writes its own.

use http::HeaderMap;

/// Envoy's name of the header.
pub const CLIENT_CERT_HEADER: &str = "x-forwarded-client-cert";

/// The response header with the identity that the program saw.
pub const IDENTITY_SEEN_HEADER: &str = "identity-seen";

/// The value of [`IDENTITY_SEEN_HEADER`] without an identity.
pub const IDENTITY_NONE: &str = "none";

/// Returns the SPIFFE ID of the nearest client, if the sidecar saw one. Of several elements or
/// headers, the last is the nearest hop's.
pub fn peer_identity(headers: &HeaderMap) -> Option<String> {
    let value = headers.get_all(CLIENT_CERT_HEADER).iter().next_back()?.to_str().ok()?;
    let element = split_outside_quotes(value, ',').pop()?;
    split_outside_quotes(element, ';').into_iter().find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        let value = value.trim_matches('"');
        (key.eq_ignore_ascii_case("uri") && value.starts_with("spiffe://")).then(|| value.to_owned())
    })
}

/// Splits at a separator, except between double quotes; a backslash escapes the next character.
fn split_outside_quotes(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut quoted, mut escaped) = (0, false, false);
    for (at, character) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if quoted && character == '\\' {
            escaped = true;
        } else if character == '"' {
            quoted = !quoted;
        } else if character == separator && !quoted {
            parts.push(&text[start..at]);
            start = at + separator.len_utf8();
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn seen(values: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CLIENT_CERT_HEADER, HeaderValue::from_str(value).unwrap());
        }
        peer_identity(&headers)
    }

    #[test]
    fn the_nearest_client_is_the_last_element_of_the_last_header() {
        let buyer = "spiffe://cluster.local/ns/bookbuyer/sa/bookbuyer";
        let thief = "spiffe://cluster.local/ns/bookthief/sa/bookthief";
        for (values, expected) in [
            (vec![], None),
            (vec![""], None),
            (vec!["Hash=ab"], None),
            (vec!["URI=https://not.spiffe"], None),
            (vec!["By=spiffe://cluster.local/ns/b/sa/b;Hash=ab"], None),
            (vec!["URI=spiffe://cluster.local/ns/bookbuyer/sa/bookbuyer"], Some(buyer)),
            (vec!["uri=\"spiffe://cluster.local/ns/bookbuyer/sa/bookbuyer\""], Some(buyer)),
            (
                vec!["By=spiffe://x/y;Hash=ab;URI=spiffe://cluster.local/ns/bookbuyer/sa/bookbuyer"],
                Some(buyer),
            ),
            (
                vec![
                    "URI=spiffe://cluster.local/ns/bookthief/sa/bookthief,\
                     URI=spiffe://cluster.local/ns/bookbuyer/sa/bookbuyer",
                ],
                Some(buyer),
            ),
            (
                vec![
                    "URI=spiffe://cluster.local/ns/bookbuyer/sa/bookbuyer",
                    "URI=spiffe://cluster.local/ns/bookthief/sa/bookthief",
                ],
                Some(thief),
            ),
            (
                vec![
                    r#"Subject="CN=a,URI=spiffe://evil;O=\"b";URI=spiffe://cluster.local/ns/bookbuyer/sa/bookbuyer"#,
                ],
                Some(buyer),
            ),
        ] {
            assert_eq!(seen(&values).as_deref(), expected, "{values:?}");
        }
    }
}
