//! One Envoy process, which ends with the thread that started it.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) struct Envoy(Child);

impl Envoy {
    /// Starts Envoy with this bootstrap and waits until it listens on `last`. `Err` is what Envoy said.
    pub(crate) fn start(directory: &Path, bootstrap: &[u8], last: &Path) -> Result<Self, String> {
        #[expect(clippy::disallowed_methods, reason = "where make put Envoy")]
        let binary = std::env::var_os("SMC_ENVOY").expect("SMC_ENVOY names the Envoy binary (make sets it)");
        let (file, log) = (directory.join("bootstrap.pb"), directory.join("log"));
        std::fs::write(&file, bootstrap).unwrap();
        let output = std::fs::File::create(&log).unwrap();
        // The kernel kills Envoy when this thread is gone, however it ends.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(binary)
            .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "error", "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .expect("setpriv (util-linux) runs");
        let mut envoy = Self(child);
        for _ in 0..3000 {
            if UnixStream::connect(last).is_ok() {
                return Ok(envoy);
            }
            if envoy.0.try_wait().unwrap().is_some() {
                break;
            }
            pause(Duration::from_millis(10));
        }
        Err(std::fs::read_to_string(&log).unwrap_or_default())
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _: io::Result<()> = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "no simulation steers a real Envoy")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
