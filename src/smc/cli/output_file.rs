//! A file with a secret that a person names.
//!
//! Owns what happens to what is there already. A regular file is replaced whole, as [`private::replace`]
//! does. A device or a pipe is written to, as a shell's `>` does: `/dev/null`, `/dev/stdout`, `>(command)`.
//! Everything else is refused: what a symbolic link leads to may be another user's choice, and a disk is no
//! place for a file.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use smc_host::files::private;
use thiserror::Error;

/// The file cannot be written.
#[derive(Debug, Error)]
pub(super) enum OutputFileError {
    /// It is none of what is replaced or written to.
    #[error("will not write to {}: it is {what}", .path.display())]
    Refused { path: PathBuf, what: &'static str },
    #[error("cannot write {}", .path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// What becomes of the file that a person names.
#[derive(Debug)]
enum Way {
    /// It is this stream of the process, and is written to where that is.
    Stream(File),
    /// It is replaced whole, or is new.
    Replace,
    /// It is opened, and written to.
    Write,
    /// It is left as it is, since it is this.
    Refuse(&'static str),
}

/// Decides by what is there: of the name itself, and of what it leads to.
fn way(named: Option<&Metadata>, target: Option<&Metadata>, user: u32) -> Way {
    let (named, target) = match (named, target) {
        (None, _) => return Way::Replace,
        (Some(_), None) => return Way::Refuse("a symbolic link that leads nowhere"),
        (Some(named), Some(target)) => (named, target),
    };
    let kind = target.file_type();
    if kind.is_char_device() || kind.is_fifo() {
        // Of another user, it would hand the secret over.
        let trusted = [0, user].contains(&target.uid());
        return if trusted { Way::Write } else { Way::Refuse("a device or a pipe of another user") };
    }
    match kind {
        kind if kind.is_dir() => Way::Refuse("a directory"),
        kind if kind.is_block_device() => Way::Refuse("a disk"),
        kind if kind.is_socket() => Way::Refuse("a socket"),
        _ if named.file_type().is_symlink() => Way::Refuse("a symbolic link; name the file that it leads to"),
        _ => Way::Replace,
    }
}

/// Looks at what is there.
fn look(path: &Path) -> io::Result<Way> {
    let named = present(fs::symlink_metadata(path))?;
    let target = present(fs::metadata(path))?;
    if let Some(target) = &target
        && let Some(stream) = own_stream(target)?
    {
        return Ok(Way::Stream(stream));
    }
    Ok(way(named.as_ref(), target.as_ref(), geteuid().as_raw()))
}

/// Fails if [`write_secret`] would refuse `path`, so that no secret is made in vain.
pub(super) fn check_target(path: &Path) -> Result<(), OutputFileError> {
    match look(path).map_err(|source| OutputFileError::Io { path: path.to_owned(), source })? {
        Way::Refuse(what) => Err(OutputFileError::Refused { path: path.to_owned(), what }),
        _ => Ok(()),
    }
}

/// Writes a secret to `path`. Blocks; of a pipe, until it is read.
pub(super) fn write_secret(path: &Path, text: &[u8]) -> Result<(), OutputFileError> {
    let failed = |source| OutputFileError::Io { path: path.to_owned(), source };
    let refused = |what| Err(OutputFileError::Refused { path: path.to_owned(), what });
    match look(path).map_err(failed)? {
        Way::Stream(mut stream) => stream.write_all(text).map_err(failed),
        Way::Replace => private::replace(path, text).map_err(failed),
        Way::Refuse(what) => refused(what),
        Way::Write => {
            let mut file = OpenOptions::new().write(true).open(path).map_err(failed)?;
            // Of the open file, in case another one took its place.
            let opened = file.metadata().map_err(failed)?;
            match way(Some(&opened), Some(&opened), geteuid().as_raw()) {
                Way::Write => file.write_all(text).map_err(failed),
                _ => refused("another file by now"),
            }
        }
    }
}

fn present(metadata: io::Result<Metadata>) -> io::Result<Option<Metadata>> {
    match metadata {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        metadata => metadata.map(Some),
    }
}

/// Standard output or standard error, if the file is that: `/dev/stdout`, of which a shell has made a regular
/// file, is written to where the shell left off.
fn own_stream(target: &Metadata) -> io::Result<Option<File>> {
    for stream in [io::stdout().as_fd().try_clone_to_owned()?, io::stderr().as_fd().try_clone_to_owned()?] {
        let stream = File::from(stream);
        let metadata = stream.metadata()?;
        if (metadata.dev(), metadata.ino()) == (target.dev(), target.ino()) {
            return Ok(Some(stream));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    fn refused(path: &Path) -> String {
        write_secret(path, b"secret").unwrap_err().to_string()
    }

    #[test]
    fn files_are_replaced_whole_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("envoy.json");
        for text in ["first", "second, which is longer", "3"] {
            write_secret(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_device_stays_a_device() {
        check_target(Path::new("/dev/null")).unwrap();
        write_secret(Path::new("/dev/null"), b"secret").unwrap();
        let null = fs::symlink_metadata("/dev/null").unwrap();
        assert!(null.file_type().is_char_device() && null.permissions().mode() & 0o777 == 0o666);
    }

    #[test]
    fn a_pipe_is_written_to_also_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (pipe, link) = (directory.path().join("pipe"), directory.path().join("link"));
        mkfifo(&pipe, Mode::from_bits_truncate(0o600)).unwrap();
        symlink(&pipe, &link).unwrap();
        for path in [&pipe, &link] {
            let reading = std::thread::spawn({
                let pipe = pipe.clone();
                move || fs::read_to_string(pipe).unwrap()
            });
            write_secret(path, b"secret").unwrap();
            assert_eq!(reading.join().unwrap(), "secret");
        }
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_pipe_of_another_user_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        mkfifo(&pipe, Mode::from_bits_truncate(0o666)).unwrap();
        let metadata = fs::metadata(&pipe).unwrap();
        // A pipe of root's is trusted by all.
        if metadata.uid() != 0 {
            assert!(matches!(way(Some(&metadata), Some(&metadata), metadata.uid() + 1), Way::Refuse(_)));
        }
        assert!(matches!(way(Some(&metadata), Some(&metadata), metadata.uid()), Way::Write));
    }

    #[test]
    fn links_directories_and_sockets_are_refused_and_stay() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("precious"), "precious").unwrap();
        fs::create_dir(at("directory")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        symlink(at("precious"), at("link")).unwrap();
        symlink(at("missing"), at("dangling")).unwrap();
        symlink(at("directory"), at("link to a directory")).unwrap();
        for (name, reason) in [
            ("link", "a symbolic link; name the file that it leads to"),
            ("dangling", "a symbolic link that leads nowhere"),
            ("directory", "a directory"),
            ("link to a directory", "a directory"),
            ("socket", "a socket"),
        ] {
            let before = fs::symlink_metadata(at(name)).unwrap();
            assert!(refused(&at(name)).ends_with(reason), "{name}");
            assert!(check_target(&at(name)).unwrap_err().to_string().ends_with(reason), "{name}");
            let after = fs::symlink_metadata(at(name)).unwrap();
            assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()), "{name}");
        }
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), "precious");
        assert!(!at("missing").exists());
    }
}
