//! Regular expressions as policy writes them and Envoy runs them.
//!
//! Owns the check that an expression means the same to RE2 (which Envoy uses) as to its author, and stays
//! within a size. Envoy does the matching.
//!
//! The check walks the syntax tree of the `regex` crates, which follow RE2, and refuses what RE2 lacks or
//! reads differently. It also refuses a few constructs of RE2 (`\Q…\E`, a literal `{`); that is safe, since
//! a refused expression allows nothing. Envoy runs RE2 on bytes (Latin-1), not on characters, so all
//! constructs with characters outside ASCII are refused: for RE2 `[ä]` is two characters that are not ä,
//! `\x{100}` is an error, and `\pL` does not mean all letters. In the matched text such a character is
//! several bytes, thus several dots.

mod complement;
mod header;
mod steps;

use std::sync::Arc;

use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{
    AssertionKind, Ast, ClassSet, ClassSetItem, Flag, Flags, FlagsItemKind, GroupKind, HexLiteralKind,
    Literal, LiteralKind, RepetitionKind, RepetitionRange, SpecialLiteralKind,
};

pub use header::{Complements, HeaderPattern, Incomplete};
pub use steps::Steps;

/// The longest expression that is read. A path or a header seldom has more, and each proxy keeps it
/// compiled, once per route.
pub const MAX_LENGTH: usize = 1024;

/// The largest estimate of the program RE2 makes of an expression. Envoy refuses a program of more than 100
/// instructions, thus most paths of more than 90 characters, unless the runtime key
/// `re2.max_program_size.error_level` says otherwise: our bootstrap must set it well above this.
const MAX_PROGRAM: u64 = 1000;

/// RE2's bound on a repetition count, and on the product of nested ones.
const MAX_REPETITION: u64 = 1000;

/// What stands around an expression for the start of a text.
const PREFIX: &str = "(?:";
const WHATEVER_FOLLOWS: &str = ").*";

/// A checked regular expression, in the form that matches the **whole** text, as Envoy's `safe_regex` does.
/// Clones share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pattern(Arc<str>);

impl Pattern {
    /// An expression for the whole text (SMI: header values). The empty expression matches the empty text;
    /// Envoy accepts it only in another spelling.
    pub fn whole(text: &str) -> Result<Self, InvalidPattern> {
        check(text)?;
        Ok(Self(if text.is_empty() { "(?:)" } else { text }.into()))
    }

    /// An expression for the start of the text (SMI: `pathRegex`), whatever follows.
    pub fn prefix(text: &str) -> Result<Self, InvalidPattern> {
        check(text)?;
        Ok(Self(format!("{PREFIX}{text}{WHATEVER_FOLLOWS}").into()))
    }

    /// The text that [`Self::prefix`] was made of.
    pub fn as_prefix(&self) -> &str {
        let text = self.0.strip_prefix(PREFIX).and_then(|text| text.strip_suffix(WHATEVER_FOLLOWS));
        text.unwrap_or(&self.0)
    }

    /// The expression, for a full match.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An expression that cannot be used, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the regular expression {reason}")]
pub struct InvalidPattern {
    reason: String,
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, InvalidPattern> {
    Err(InvalidPattern { reason: reason.into() })
}

fn check(text: &str) -> Result<(), InvalidPattern> {
    if text.len() > MAX_LENGTH {
        return refuse(format!("has {} bytes; {MAX_LENGTH} is the most", text.len()));
    }
    let tree = match Parser::new().parse(text) {
        Ok(tree) => tree,
        Err(error) => {
            let at = error.span().start.offset;
            return refuse(format!("cannot be read at byte {at}: {}", error.kind()));
        }
    };
    let size = size(&tree, 1)?;
    if size > MAX_PROGRAM {
        return refuse(format!("is too large: about {size} instructions, {MAX_PROGRAM} is the most"));
    }
    Ok(())
}

/// Checks a tree and estimates, from above, the instructions of RE2's program for it. `repeated` is the
/// product of the repetition counts around it. The parser bounds the depth, and so the recursion.
fn size(tree: &Ast, repeated: u64) -> Result<u64, InvalidPattern> {
    Ok(match tree {
        Ast::Empty(_) => 1,
        Ast::Flags(set) => {
            check_flags(&set.flags)?;
            1
        }
        Ast::Literal(literal) => literal_size(literal)?,
        Ast::Dot(_) => 4,
        Ast::Assertion(assertion) => match assertion.kind {
            AssertionKind::StartLine
            | AssertionKind::EndLine
            | AssertionKind::StartText
            | AssertionKind::EndText
            | AssertionKind::WordBoundary
            | AssertionKind::NotWordBoundary => 1,
            _ => return refuse("uses a word boundary that RE2 lacks"),
        },
        Ast::ClassUnicode(_) => return refuse(UNICODE_CLASS),
        Ast::ClassPerl(_) => PERL_CLASS,
        Ast::ClassBracketed(class) => {
            let negated = if class.negated { COMPLEMENT } else { 0 };
            negated + set_size(&class.kind)?
        }
        Ast::Repetition(repetition) => {
            if matches!(&*repetition.ast, Ast::Repetition(_) | Ast::Flags(_) | Ast::Empty(_)) {
                return refuse("repeats what RE2 cannot repeat (such as a**)");
            }
            let times = times(&repetition.op.kind).max(1);
            let repeated = repeated.saturating_mul(times);
            if repeated > MAX_REPETITION {
                return refuse(format!("repeats more than {MAX_REPETITION} times"));
            }
            // An exact count copies; the others add a branch to each copy.
            let exact = matches!(repetition.op.kind, RepetitionKind::Range(RepetitionRange::Exactly(_)));
            let one = size(&repetition.ast, repeated)?.saturating_add(u64::from(!exact));
            times.saturating_mul(one)
        }
        Ast::Group(group) => {
            if let GroupKind::NonCapturing(flags) = &group.kind {
                check_flags(flags)?;
            }
            if let GroupKind::CaptureName { name, .. } = &group.kind
                && !name.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            {
                return refuse("names a group in a way that RE2 cannot");
            }
            size(&group.ast, repeated)?.saturating_add(2)
        }
        Ast::Alternation(alternation) => {
            let branches = u64::try_from(alternation.asts.len()).unwrap_or(u64::MAX);
            sum(&alternation.asts, repeated)?.saturating_add(branches)
        }
        Ast::Concat(concat) => sum(&concat.asts, repeated)?,
    })
}

/// `\d`, `\w`, `\s`, and their complements.
const PERL_CLASS: u64 = 10;
/// What a complement adds: the ranges between those that are left out.
const COMPLEMENT: u64 = 10;

const UNICODE_CLASS: &str = "names a class of Unicode, of which Envoy knows bytes only";

fn sum(trees: &[Ast], repeated: u64) -> Result<u64, InvalidPattern> {
    trees.iter().try_fold(0_u64, |total, tree| Ok(total.saturating_add(size(tree, repeated)?)))
}

fn times(kind: &RepetitionKind) -> u64 {
    match kind {
        RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore | RepetitionKind::OneOrMore => 1,
        RepetitionKind::Range(
            RepetitionRange::Exactly(n) | RepetitionRange::AtLeast(n) | RepetitionRange::Bounded(_, n),
        ) => u64::from(*n),
    }
}

fn literal_size(literal: &Literal) -> Result<u64, InvalidPattern> {
    let readable = match &literal.kind {
        LiteralKind::Verbatim
        | LiteralKind::HexFixed(HexLiteralKind::X)
        | LiteralKind::HexBrace(HexLiteralKind::X)
        | LiteralKind::Meta
        | LiteralKind::Superfluous => true,
        LiteralKind::Special(kind) => !matches!(kind, SpecialLiteralKind::Space),
        LiteralKind::Octal | LiteralKind::HexFixed(_) | LiteralKind::HexBrace(_) => false,
    };
    if !readable {
        return refuse(format!("escapes {:?} in a way that RE2 does not know", literal.c));
    }
    if !literal.c.is_ascii() {
        return refuse(format!("means {:?}, which is outside ASCII: Envoy knows bytes only", literal.c));
    }
    Ok(1)
}

fn set_size(set: &ClassSet) -> Result<u64, InvalidPattern> {
    match set {
        ClassSet::Item(item) => item_size(item),
        ClassSet::BinaryOp(_) => refuse("combines classes by &&, -- or ~~, which RE2 reads as characters"),
    }
}

fn item_size(item: &ClassSetItem) -> Result<u64, InvalidPattern> {
    Ok(match item {
        ClassSetItem::Empty(_) => 1,
        ClassSetItem::Literal(literal) => literal_size(literal)?,
        ClassSetItem::Range(range) => literal_size(&range.start)?.saturating_add(literal_size(&range.end)?),
        ClassSetItem::Ascii(_) | ClassSetItem::Perl(_) => PERL_CLASS,
        ClassSetItem::Unicode(_) => return refuse(UNICODE_CLASS),
        ClassSetItem::Bracketed(_) => return refuse("nests a class in a class, which RE2 reads otherwise"),
        ClassSetItem::Union(union) => {
            union.items.iter().try_fold(0_u64, |total, item| Ok(total.saturating_add(item_size(item)?)))?
        }
    })
}

fn check_flags(flags: &Flags) -> Result<(), InvalidPattern> {
    for item in &flags.items {
        match item.kind {
            FlagsItemKind::Negation
            | FlagsItemKind::Flag(
                Flag::CaseInsensitive | Flag::MultiLine | Flag::DotMatchesNewLine | Flag::SwapGreed,
            ) => {}
            FlagsItemKind::Flag(_) => return refuse("sets a flag other than i, m, s and U"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Full match, as Envoy does it.
    fn matches(pattern: &Pattern, text: &str) -> bool {
        regex::Regex::new(&format!("^(?:{})$", pattern.as_str())).unwrap().is_match(text)
    }

    #[test]
    fn a_path_is_anchored_at_the_start_only() {
        for (expression, path, expected) in [
            ("/api", "/api", true),
            ("/api", "/api/x", true),
            ("/api", "/apix", true),
            ("/api", "/v1/api", false),
            ("^/api$", "/api", true),
            ("^/api$", "/api/x", false),
            ("/a|/b", "/b/x", true),
            ("/a|/b", "/c/b", false),
            (".*/b", "/c/b/d", true),
            ("", "/anything", true),
            ("(?i)/API", "/api/x", true),
            (r"/books/\d+", "/books/17/pages", true),
        ] {
            assert_eq!(
                matches(&Pattern::prefix(expression).unwrap(), path),
                expected,
                "{expression} on {path}"
            );
        }
    }

    #[test]
    fn a_header_value_matches_as_a_whole() {
        let pattern = Pattern::whole(".*Android.*").unwrap();
        assert!(matches(&pattern, "An Android phone"));
        assert!(!matches(&Pattern::whole("Android").unwrap(), "An Android phone"));
    }

    /// Envoy refuses an empty expression, and with it everything else on the port.
    #[test]
    fn an_empty_expression_for_a_whole_text_means_an_empty_text() {
        let pattern = Pattern::whole("").unwrap();
        assert!(!pattern.as_str().is_empty());
        assert!(matches(&pattern, "") && !matches(&pattern, "x"));
    }

    #[test]
    fn what_re2_lacks_or_reads_otherwise_is_refused() {
        for bad in [
            "(",
            "[",
            "a)|(?:b",
            "a**",
            "a{3}{2}",
            "*",
            "a{1001}",
            "(?:a{40}){30}",
            "a{,3}",
            r"\1",
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "(?x)a",
            "(?R)a",
            "(?-u)a",
            "[a&&b]",
            "[a--b]",
            "[a~~b]",
            "[a[b]]",
            r"\u0041",
            r"\U00000041",
            r"\b{start}a",
            r"\<a",
            r"\p{Greek}",
            r"\p{Alphabetic}",
            r"\p{gc=L}",
            r"\pL+",
            r"[^\p{Lu}]",
            "ä",
            "[ä-ü]",
            r"\x{80}",
            r"\xff",
            r"[\x{41}-\x{100}]",
            r"\x{10FFFF}",
            r"\C",
            r"\",
            "a{",
        ] {
            assert!(Pattern::prefix(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_re2_has_is_taken() {
        for good in [
            "/a{900}",
            r"[a-z&~\-\]]+",
            "[[:alpha:]_]*?",
            r"[^/\d]+",
            r"\x41\x{41}\x7f\a\t",
            r"\.\/\_",
            "(?P<name>a)",
            "(?i:a)b",
            r"^\Aa\bb\Bc\z$",
            "(a|b||c)?",
        ] {
            assert!(Pattern::prefix(good).is_ok(), "{good}: {:?}", Pattern::prefix(good));
        }
    }

    #[test]
    fn an_expression_of_absurd_size_is_refused() {
        for bad in ["a".repeat(1025), "(?:.{100}){10}".to_owned(), "(".repeat(500)] {
            assert!(Pattern::whole(&bad).is_err(), "{bad:.40}");
        }
        assert!(Pattern::whole(&"a".repeat(400)).is_ok());
    }
}
