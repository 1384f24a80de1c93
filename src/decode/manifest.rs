//! One file of Kubernetes YAML (or JSON) as declarations of domain objects.
//!
//! Owns the structure of such a file: documents, lists, and the problems of what is not read. Pure: bytes
//! in, declarations and problems out.
//!
//! An error stays local: a document that is no YAML does not affect the file's other documents, and a bad
//! object does not affect the others of its document. Two degrees of error are distinguished for callers
//! that keep a file's last good reading ([`Manifest::complete`]):
//!
//! - A document that cannot be parsed, or names no object, leaves open which objects are gone.
//! - A document that names its object decides about that object even when the object is refused: it then has
//!   no effect. For policy that is the safe reading.
//!
//! ```text
//! bytes → documents (split at `---`) → yaml (bounded) → object or list → kind and version → domain object
//! ```

pub mod canonical;
pub mod documents;
mod yaml;

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use smc_api::object::Object;
use smc_types::object_ref::ObjectRef;
use smc_types::problem::{Problem, Subject};
use smc_types::text::truncated;

use self::documents::Document;
use super::Rules;
use super::kinds::{self, Meaning};

/// Bytes of one file. Kubernetes itself takes objects of about 1.5 MiB (etcd's request limit), and
/// thousands of objects fit in here; parsing a file needs some ten times its size in memory.
pub const MAX_FILE_BYTES: usize = 8 * 1024 * 1024;

/// Objects of one file, and documents of one file.
pub const MAX_OBJECTS: usize = 10_000;

/// Problems reported of one file; further ones are counted.
const MAX_PROBLEMS: usize = 1_000;

/// Where an object is declared. Prints as `FILE:LINE`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The name of the file in problems.
    pub file: Arc<str>,
    /// The line on which the object's document begins, from 1.
    pub line: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl From<&Origin> for Subject {
    fn from(origin: &Origin) -> Self {
        Self::line(Arc::clone(&origin.file), origin.line)
    }
}

/// An object that a file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    /// Its place in the file.
    pub origin: Origin,
    /// The object's kind and name.
    pub reference: ObjectRef,
    /// The object, or `None` if it was refused and must have no effect. A problem says why.
    pub object: Option<Object>,
    /// The object's own JSON, without white space, with `apiVersion` and `kind`; from it a source reads the
    /// object again after a restart. `None` if the objects of the file take more than [`MAX_FILE_BYTES`] so.
    pub json: Option<Arc<str>>,
}

/// The contents of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifest {
    /// The objects that it names, in its order. Two declarations may name the same object: the caller, which
    /// reads several files, has to arbitrate anyway.
    pub declarations: Vec<Arc<Declaration>>,
    /// Its problems, in its order.
    pub problems: Vec<Problem>,
    /// Whether every document could be read at least as far as the name of its object. If not, the file may
    /// still declare objects that are missing here.
    pub complete: bool,
}

/// Reads one file of the mesh `smc`. `file` is its name in problems.
pub fn read(file: &str, bytes: &[u8]) -> Manifest {
    read_by(&Rules::default(), file, bytes)
}

/// As [`read`], by these rules.
pub fn read_by(rules: &Rules, file: &str, bytes: &[u8]) -> Manifest {
    let mut reader = Reader::new(file, rules);
    match checked_text(bytes) {
        Ok(text) => reader.read_text(text),
        Err((line, message)) => reader.unreadable(line, message),
    }
    reader.finish()
}

/// The file as text, or the line at which it is no text and the reason.
fn checked_text(bytes: &[u8]) -> Result<&str, (usize, String)> {
    if bytes.len() > MAX_FILE_BYTES {
        return Err((1, format!("larger than {} MiB; the file is not read", MAX_FILE_BYTES / 1024 / 1024)));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = valid.split(|&byte| byte == b'\n').count();
        (line, "not UTF-8 text; the file is not read".to_owned())
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

struct Reader<'a> {
    file: Arc<str>,
    rules: &'a Rules,
    manifest: Manifest,
    /// Problems beyond [`MAX_PROBLEMS`].
    unshown: usize,
    /// Objects beyond [`MAX_OBJECTS`].
    unread: usize,
    /// Bytes that the JSON of further objects may take.
    json_left: usize,
    /// Objects without JSON.
    unkept: usize,
}

impl<'a> Reader<'a> {
    fn new(file: &str, rules: &'a Rules) -> Self {
        let manifest = Manifest { complete: true, ..Manifest::default() };
        Self {
            file: file.into(),
            rules,
            manifest,
            unshown: 0,
            unread: 0,
            json_left: MAX_FILE_BYTES,
            unkept: 0,
        }
    }

    fn finish(mut self) -> Manifest {
        if self.unread > 0 {
            let message = format!("more than {MAX_OBJECTS} objects; the last {} are not read", self.unread);
            self.manifest.complete = false;
            self.manifest.problems.push(Problem::error(Subject::file(Arc::clone(&self.file)), "", message));
        }
        if self.unkept > 0 {
            let message = format!(
                "too long to keep copies of every object; a restart while the file is broken would withdraw {}",
                self.unkept
            );
            self.manifest.problems.push(Problem::warning(Subject::file(Arc::clone(&self.file)), "", message));
        }
        if self.unshown > 0 {
            let message = format!("{} more problems in this file are not shown", self.unshown);
            self.manifest.problems.push(Problem::warning(Subject::file(Arc::clone(&self.file)), "", message));
        }
        self.manifest
    }

    fn report(&mut self, problem: Problem) {
        if self.manifest.problems.len() < MAX_PROBLEMS {
            self.manifest.problems.push(problem);
        } else {
            self.unshown += 1;
        }
    }

    /// Reports a problem that leaves open which object is declared.
    fn unreadable(&mut self, line: usize, message: impl Into<String>) {
        self.manifest.complete = false;
        self.report(Problem::error(Subject::line(Arc::clone(&self.file), line), "", message));
    }

    fn read_text(&mut self, text: &str) {
        for (count, document) in documents::split(text).enumerate() {
            if count == MAX_OBJECTS {
                let message = format!("more than {MAX_OBJECTS} documents; those from here on are not read");
                self.unreadable(document.line, message);
                return;
            }
            self.read_document(&document);
        }
    }

    fn read_document(&mut self, document: &Document<'_>) {
        match yaml::parse(document) {
            Ok(Value::Null) => {}
            Ok(Value::Object(fields)) => {
                let origin = Origin { file: Arc::clone(&self.file), line: document.line };
                self.read_fields(&origin, "", fields, true);
            }
            Ok(_) => self.unreadable(document.line, "not a Kubernetes object: no mapping of fields"),
            Err(error) => {
                self.manifest.complete = false;
                let place = Some((error.line, error.column));
                let subject = Subject::File { path: Arc::clone(&self.file), place };
                let message = format!("{}; this document is not read", error.message);
                self.report(Problem::error(subject, "", message));
            }
        }
    }

    /// Reads an object or, at the top of a document, a list of them. `path` is the place in the document.
    fn read_fields(&mut self, origin: &Origin, path: &str, mut fields: Map<String, Value>, lists: bool) {
        let text = |key: &str| fields.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
            let missing = if text("kind").is_none() { "kind" } else { "apiVersion" };
            let field = if path.is_empty() { missing.to_owned() } else { format!("{path}.{missing}") };
            self.manifest.complete = false;
            let message = "missing, so the kind of this object is unknown; not read";
            self.report(Problem::error(origin, field, message));
            return;
        };
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        match kinds::meaning(&api_version, &kind) {
            Meaning::List(item_kind) if lists => {
                let item = item_kind.map(|item_kind| (api_version.as_str(), item_kind));
                self.read_list(origin, item, fields.remove("items"));
            }
            Meaning::List(_) => {
                self.manifest.complete = false;
                self.report(Problem::error(origin, path, "a list within a list is not read"));
            }
            Meaning::Object(reader) => self.read_object(origin, path, reader, fields),
            Meaning::OtherVersion(read) => {
                let message = format!(
                    "{}; it is read as {read}, so this one has no effect",
                    named(&api_version, &kind, &fields)
                );
                self.report(Problem::error(origin, "apiVersion", message));
            }
            Meaning::Foreign => {
                let message = format!(
                    "{}: not a kind that the mesh reads; ignored",
                    named(&api_version, &kind, &fields)
                );
                self.report(Problem::warning(origin, path, message));
            }
        }
    }

    fn read_list(&mut self, origin: &Origin, item: Option<(&str, &str)>, items: Option<Value>) {
        let items = match items {
            None | Some(Value::Null) => return,
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.manifest.complete = false;
                self.report(Problem::error(origin, "items", "not a list; not read"));
                return;
            }
        };
        for (index, value) in items.into_iter().enumerate() {
            let path = format!("items[{index}]");
            match value {
                Value::Null => {}
                Value::Object(mut fields) => {
                    if let Some((api_version, kind)) = item {
                        // The items of a typed list omit the kind and version, which the list states.
                        fields.entry("apiVersion").or_insert_with(|| api_version.into());
                        fields.entry("kind").or_insert_with(|| kind.into());
                    }
                    self.read_fields(origin, &path, fields, false);
                }
                _ => {
                    self.manifest.complete = false;
                    let message = "not a Kubernetes object: no mapping of fields";
                    self.report(Problem::error(origin, path, message));
                }
            }
        }
    }

    fn read_object(
        &mut self,
        origin: &Origin,
        path: &str,
        reader: kinds::Reader,
        fields: Map<String, Value>,
    ) {
        if self.manifest.declarations.len() == MAX_OBJECTS {
            self.unread += 1;
            return;
        }
        let value = Value::Object(fields);
        let reference = match kinds::reference(reader, &value) {
            Ok(reference) => reference,
            Err(unnamed) => {
                self.manifest.complete &= unnamed.is_certain();
                let field =
                    if path.is_empty() { unnamed.field() } else { format!("{path}.{}", unnamed.field()) };
                self.report(Problem::error(origin, field, unnamed.to_string()));
                return;
            }
        };
        let (object, problems) = kinds::convert(reader, &reference, &value, self.rules);
        for mut problem in problems {
            // Problems are listed by object; its author needs the file as well.
            problem.message = format!("{} ({origin})", problem.message);
            self.report(problem);
        }
        let json = canonical::write(&value, self.json_left);
        match &json {
            Some(json) => self.json_left -= json.len(),
            None => self.unkept += 1,
        }
        let declaration = Declaration { origin: origin.clone(), reference, object, json };
        self.manifest.declarations.push(Arc::new(declaration));
    }
}

/// An object that is not read, by its version, kind and name.
fn named(api_version: &str, kind: &str, fields: &Map<String, Value>) -> String {
    let name =
        fields.get("metadata").and_then(|meta| meta.get("name")).and_then(Value::as_str).unwrap_or_default();
    // Untrusted text of any length, possibly with control characters.
    let shown = |text: &str| truncated(text, 100).escape_debug().to_string();
    format!("{} {} \"{}\"", shown(api_version), shown(kind), shown(name))
}

#[cfg(test)]
mod tests;
