//! Owns the format of image archives: tar files of the `docker save` form, which containerd imports.
//! Pure but for the files that an image is made of.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ring::digest::{SHA256, digest};
use serde_json::json;

use crate::ClusterError;

/// Size of a tar block, in bytes.
const BLOCK: usize = 512;
/// The longest path that a header of the ustar form has room for without its prefix field.
const MAX_PATH: usize = 100;

/// A tar file in memory. Entries belong to root and have no time, so that equal content has an equal
/// digest.
#[derive(Debug, Default)]
pub(crate) struct Tar(Vec<u8>);

impl Tar {
    pub(crate) fn directory(&mut self, path: &str, mode: u32) -> Result<(), ClusterError> {
        self.header(path, b'5', mode, 0, "")
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) -> Result<(), ClusterError> {
        self.header(path, b'2', 0o777, 0, target)
    }

    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<(), ClusterError> {
        self.header(path, b'0', mode, content.len(), "")?;
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
        Ok(())
    }

    /// Adds a file of this machine, through links, with its mode.
    pub(crate) fn copy(&mut self, path: &str, source: &Path) -> Result<(), ClusterError> {
        let content = fs::read(source).map_err(ClusterError::file("read", source))?;
        let metadata = fs::metadata(source).map_err(ClusterError::file("inspect", source))?;
        self.file(path, metadata.permissions().mode() & 0o755, &content)
    }

    fn header(
        &mut self,
        path: &str,
        kind: u8,
        mode: u32,
        size: usize,
        target: &str,
    ) -> Result<(), ClusterError> {
        let path = path.trim_start_matches('/');
        for text in [path, target] {
            if text.len() > MAX_PATH {
                return Err(ClusterError::Invalid { what: "path in an image", text: text.to_owned() });
            }
        }
        let mut header = [0; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(field) = header.get_mut(at..at + bytes.len()) {
                field.copy_from_slice(bytes);
            }
        };
        put(0, path.as_bytes());
        put(100, format!("{mode:07o}\0").as_bytes());
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{size:011o}\0").as_bytes());
        put(136, b"00000000000\0");
        // The checksum counts its own field as spaces.
        put(148, b"        ");
        put(156, &[kind]);
        put(157, target.as_bytes());
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        if let Some(field) = header.get_mut(148..156) {
            field.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        self.0.extend_from_slice(&header);
        Ok(())
    }

    /// The finished file.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK, 0);
        self.0
    }
}

/// Wraps a layer as an image. `user` is the user and group of its processes.
pub(crate) fn image(
    name: &str,
    entrypoint: &[String],
    user: &str,
    layer: &[u8],
) -> Result<Vec<u8>, ClusterError> {
    let hex = data_encoding::HEXLOWER.encode(digest(&SHA256, layer).as_ref());
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Entrypoint": entrypoint,
            "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "User": user,
            "WorkingDir": "/",
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{hex}")] },
    });
    let manifest = json!([{ "Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"] }]);
    let mut archive = Tar::default();
    archive.file("manifest.json", 0o644, manifest.to_string().as_bytes())?;
    archive.file("config.json", 0o644, config.to_string().as_bytes())?;
    archive.file("layer.tar", 0o644, layer)?;
    Ok(archive.finish())
}

/// This machine's, as images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tar_reads_what_is_written() {
        let mut tar = Tar::default();
        tar.directory("/etc", 0o755).unwrap();
        tar.file("/etc/hello", 0o644, b"world").unwrap();
        tar.link("/etc/link", "hello").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.tar");
        fs::write(&file, tar.finish()).unwrap();
        let output = Command::new("tar").arg("-xf").arg(&file).arg("-C").arg(directory.path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::read(directory.path().join("etc/link")).unwrap(), b"world");
        assert_eq!(fs::read_link(directory.path().join("etc/link")).unwrap(), Path::new("hello"));
    }

    #[test]
    fn a_path_that_a_header_has_no_room_for_is_refused() {
        assert!(Tar::default().file(&"a".repeat(101), 0o644, b"").is_err());
    }
}
