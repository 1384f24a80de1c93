//! Names of HTTP headers.
//!
//! Owns what a name is, and which headers are no part of what a message says.

/// What belongs to one connection, says where a message ends, or asks for something before it.
const OF_A_CONNECTION: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a text is the name of a header: a `token` of RFC 9110 section 5.6.2.
pub fn is_header_name(text: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(token)
}

/// Whether a header of this name, in lower case, is about its connection or the end of its message: only what
/// sends the message can write it.
pub fn is_of_a_connection(name: &str) -> bool {
    OF_A_CONNECTION.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_header_is_a_token() {
        for name in ["x-a", "A", "!#$%&'*+-.^_`|~09"] {
            assert!(is_header_name(name), "{name}");
        }
        for text in ["", ":path", "a b", "a:", "a,b", "ä", "a\n", "(a)", "\"a\"", "a/b"] {
            assert!(!is_header_name(text), "{text}");
        }
    }
}
