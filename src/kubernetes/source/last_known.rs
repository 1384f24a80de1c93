//! The last known mesh, on disk: what a replica serves when it starts while the API server is away.
//!
//! Owns the file: one copy of all objects in effect, as their own JSON, with the time at which they were, how
//! far the API server had come, and a checksum; private, replaced atomically, bounded in bytes and in age. It
//! holds what was kept of each object, so no Secret and no key.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use smc_decode::Rules;
use smc_decode::manifest::{Declaration, Origin, canonical};
use smc_host::files::private;
use smc_types::problem::Problem;
use smc_types::time::Timestamp;
use smc_xds::revision::Versions;
use thiserror::Error;

/// The format marker; another format needs another one.
const FORMAT: &str = "smc-last-known-mesh-3";

/// Bytes of the file: the source holds no more text than that.
const MAX_BYTES: usize = 128 * 1024 * 1024;

/// How long to wait between two copies at least. What changes within it is read from the API server anyway;
/// the copy is for the time when it is away.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// How often a copy is renewed that nothing changes: its time says until when the API server confirmed it.
pub(super) const RENEW_EVERY: Duration = Duration::from_hours(1);

/// How old a copy may be that is served. It bridges an API server that is away; what it does not know are the
/// grants that were taken back since, and a disk may return after months to a replica that is started again.
const MAX_AGE: Duration = Duration::from_hours(24);

/// How far ahead of this replica's clock the time of a copy may be, as after a step of the clock.
const MAX_AHEAD: Duration = Duration::from_mins(10);

/// How much longer to wait for each MiB of a copy, so that a large mesh that never rests does not keep the
/// disk busy.
const SAVE_EVERY_PER_MIB: Duration = Duration::from_secs(1);

/// All objects in effect at one moment.
#[derive(Debug)]
pub(super) struct MeshCopy<T> {
    pub(super) objects: Vec<T>,
    /// Of each kind, all changes up to here are in it.
    pub(super) known: Versions,
}

/// The file cannot be used.
#[derive(Debug, Error)]
pub(super) enum Unusable {
    /// It cannot be read.
    #[error("cannot be read")]
    Unreadable(#[from] io::Error),
    /// It is longer than this version of SMC writes it.
    #[error("is longer than {} MiB", MAX_BYTES / 1024 / 1024)]
    TooLong,
    #[error("is damaged: its checksum does not fit its content")]
    Damaged,
    /// It is in another format.
    #[error("is not in the format of this version")]
    Format,
    /// It is of another mesh.
    #[error("is of another mesh")]
    OtherMesh,
    /// It is too old.
    #[error(
        "is {} hours old, and may be {}: policy may have been taken back since",
        .0.as_secs() / 3600,
        MAX_AGE.as_secs() / 3600
    )]
    TooOld(Duration),
    /// Its age is not known.
    #[error("is of a time to come: the clock of this replica is, or was, wrong")]
    Ahead,
}

/// Where the file is, and of which mesh.
#[derive(Debug, Clone)]
pub(super) struct LastKnown {
    path: PathBuf,
    /// The mesh and its control plane's namespace.
    of: String,
    rules: Rules,
}

impl LastKnown {
    /// The file at `path`, of a mesh whose control plane is in this namespace.
    pub(super) fn new(path: PathBuf, mesh_namespace: &str, rules: Rules) -> Self {
        let of = format!("{}/{mesh_namespace}", rules.mesh);
        Self { path, of, rules }
    }

    /// Reads the file; `None` if there is none. Blocks.
    pub(super) fn load(&self, now: Timestamp) -> Result<Option<MeshCopy<Declaration>>, Unusable> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut text = String::new();
        match file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(Unusable::Damaged),
            read => _ = read?,
        }
        if text.len() > MAX_BYTES {
            return Err(Unusable::TooLong);
        }
        self.parse(&text, now).map(Some)
    }

    fn parse(&self, text: &str, now: Timestamp) -> Result<MeshCopy<Declaration>, Unusable> {
        let (head, lines) = text.split_once('\n').ok_or(Unusable::Format)?;
        let mut head = head.split(' ');
        if head.next() != Some(FORMAT) {
            return Err(Unusable::Format);
        }
        let [of, as_of, known, sum] = [(); 4].map(|()| head.next().unwrap_or_default());
        if sum != checksum([of, as_of, known], lines) {
            return Err(Unusable::Damaged);
        }
        if of != self.of {
            return Err(Unusable::OtherMesh);
        }
        let as_of = as_of.parse().map(Timestamp).map_err(|_| Unusable::Format)?;
        let known = known.parse().map_err(|_| Unusable::Format)?;
        if as_of > now.plus(MAX_AHEAD) {
            return Err(Unusable::Ahead);
        }
        let age = now.since(as_of);
        if age > MAX_AGE {
            return Err(Unusable::TooOld(age));
        }
        let file: Arc<str> = self.path.to_string_lossy().into();
        // An object that this version does not read is left out.
        let object = |(line, json): (usize, &str)| {
            canonical::read(&self.rules, Origin { file: Arc::clone(&file), line: line + 2 }, json)
        };
        Ok(MeshCopy { objects: lines.lines().enumerate().filter_map(object).collect(), known })
    }

    /// Replaces the file by this mesh, as it was in effect at a time. Returns its length. Blocks.
    pub(super) fn save(&self, mesh: &MeshCopy<Arc<str>>, as_of: Timestamp) -> io::Result<usize> {
        let mut lines = String::with_capacity(mesh.objects.iter().map(|json| json.len() + 1).sum());
        for json in &mesh.objects {
            lines.push_str(json);
            lines.push('\n');
        }
        let mut text = String::with_capacity(lines.len() + 512);
        let (of, as_of, known) = (&*self.of, &*as_of.0.to_string(), &*mesh.known.to_string());
        // Writing to a string does not fail.
        let _ = writeln!(text, "{FORMAT} {of} {as_of} {known} {}", checksum([of, as_of, known], &lines));
        text.push_str(&lines);
        if text.len() > MAX_BYTES {
            let message = format!("the mesh takes more than {} MiB", MAX_BYTES / 1024 / 1024);
            return Err(io::Error::other(message));
        }
        private::replace(&self.path, text.as_bytes())?;
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(text.len())
    }

    /// The problem of a file that cannot be used.
    pub(super) fn unusable(&self, error: &Unusable) -> Problem {
        let causes = smc_types::causes::causes(error);
        let message = format!(
            "{causes}; the last known mesh is not served, and nothing is until the API server answers; the file is \
             replaced then"
        );
        Problem::error(self.path.as_path(), "", message)
    }

    /// The problem of a copy that cannot be written.
    pub(super) fn unwritten(&self, error: &io::Error) -> Problem {
        let message = format!(
            "the last known mesh cannot be kept: {error}; a restart while the API server is away would serve an \
             older one, or nothing"
        );
        Problem::warning(self.path.as_path(), "", message)
    }
}

/// How long to wait after a copy of this length.
pub(super) fn pause_after(bytes: usize) -> Duration {
    let mebibytes = u32::try_from(bytes / 1024 / 1024).unwrap_or(u32::MAX);
    SAVE_EVERY + SAVE_EVERY_PER_MIB.saturating_mul(mebibytes)
}

/// Covers the header as well.
fn checksum(header: [&str; 3], lines: &str) -> String {
    let mut sum = HEXLOWER.encode(digest(&SHA256, lines.as_bytes()).as_ref());
    sum.push_str(&header.join(" "));
    HEXLOWER.encode(digest(&SHA256, sum.as_bytes()).as_ref())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use smc_types::ids::MeshName;
    use smc_types::kind::Kind;

    use super::*;

    const ACCOUNT: &str =
        r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"a","namespace":"shop"}}"#;
    const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"shop"}}"#;

    fn of(directory: &Path, mesh: &str) -> LastKnown {
        let rules = Rules::api_server(MeshName::new(mesh).unwrap());
        LastKnown::new(directory.join("last-known-mesh"), "smc-system", rules)
    }

    fn mesh(objects: &[&str]) -> MeshCopy<Arc<str>> {
        let known = [(Kind::Pod, 7), (Kind::Service, 9)].into_iter().collect();
        MeshCopy { objects: objects.iter().map(|json| (*json).into()).collect(), known }
    }

    const NOW: Timestamp = Timestamp(1_800_000_000);

    fn names(known: &LastKnown) -> Result<Option<Vec<String>>, String> {
        let name = |kept: &Declaration| kept.reference.to_string();
        match known.load(NOW) {
            Ok(kept) => Ok(kept.map(|kept| kept.objects.iter().map(name).collect())),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn what_is_saved_is_loaded_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let known = of(directory.path(), "smc");
        assert_eq!(names(&known), Ok(None));
        known.save(&mesh(&[ACCOUNT, POD]), NOW).unwrap();
        let expected = vec!["ServiceAccount shop/a".to_owned(), "Pod shop/p".to_owned()];
        assert_eq!(names(&known), Ok(Some(expected)));
        assert_eq!(known.load(NOW).unwrap().unwrap().known, mesh(&[]).known);
        assert_eq!(fs::metadata(&known.path).unwrap().permissions().mode() & 0o777, 0o600);
        known.save(&mesh(&[]), NOW).unwrap();
        assert_eq!(names(&known), Ok(Some(Vec::new())));
    }

    #[test]
    fn a_damaged_file_and_one_of_another_mesh_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let known = of(directory.path(), "smc");
        known.save(&mesh(&[ACCOUNT, POD]), NOW).unwrap();
        assert_eq!(names(&of(directory.path(), "other")), Err("is of another mesh".to_owned()));
        let whole = fs::read(&known.path).unwrap();
        for cut in [1, 20, whole.len() / 2, whole.len() - 1] {
            fs::write(&known.path, &whole[..cut]).unwrap();
            assert!(known.load(NOW).is_err(), "cut at {cut}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&known.path, &damaged).unwrap();
            assert!(known.load(NOW).is_err(), "damaged at {at}");
        }
        fs::write(&known.path, "").unwrap();
        let problem = known.unusable(&known.load(NOW).unwrap_err());
        assert!(problem.message.starts_with("is not in the format"), "{}", problem.message);
    }

    #[test]
    fn a_copy_is_served_for_a_day_and_never_of_a_time_to_come() {
        let directory = tempfile::tempdir().unwrap();
        let known = of(directory.path(), "smc");
        known.save(&mesh(&[ACCOUNT]), NOW).unwrap();
        for (minutes, expected) in [
            (-6, None),
            (0, None),
            (24 * 60 - 1, None),
            (24 * 60 + 1, Some("is 24 hours old, and may be 24: policy may have been taken back since")),
            (2200 * 60, Some("is 2200 hours old, and may be 24: policy may have been taken back since")),
            (-30, Some("is of a time to come: the clock of this replica is, or was, wrong")),
        ] {
            let loaded = known.load(Timestamp(NOW.0 + 60 * minutes)).map(|kept| kept.unwrap().objects.len());
            let expected = expected.map_or(Ok(1), |reason| Err(reason.to_owned()));
            assert_eq!(loaded.map_err(|error| error.to_string()), expected, "after {minutes} min");
        }
    }

    #[test]
    fn a_large_copy_is_written_less_often() {
        assert_eq!(pause_after(1000), SAVE_EVERY);
        assert_eq!(pause_after(10 * 1024 * 1024), SAVE_EVERY + Duration::from_secs(10));
    }
}
