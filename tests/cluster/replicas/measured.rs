//! Owns what is measured of a replica: what its process costs, logs and prints.

use std::process::{Command, Output};
use std::time::Duration;

use smc_testkit::memory::memory_kib;
use tokio::task::spawn_blocking;

use super::{Replicas, program};

impl Replicas {
    fn pid(&self, replica: u64) -> u32 {
        self.running.lock().unwrap()[usize::try_from(replica).unwrap()].as_ref().unwrap().id()
    }

    /// The resident memory of a replica's process, in KiB (`VmRSS`, proc(5)).
    pub(crate) fn memory(&self, replica: u64) -> u64 {
        memory_kib(self.pid(replica), "VmRSS").unwrap()
    }

    /// The processor time that a replica's process has taken, by all its threads (proc_pid_stat(5)).
    pub(crate) fn processor_time(&self, replica: u64) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid(replica))).unwrap();
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        // In hundredths of a second, the same on all architectures that Linux runs on.
        let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 10)
    }

    /// The number of lines in a replica's log.
    pub(crate) fn log_lines(&self, replica: u64) -> usize {
        std::fs::read_to_string(self.log(replica)).unwrap().lines().count()
    }

    /// The bytes of a replica's log.
    pub(crate) fn log_bytes(&self, replica: u64) -> u64 {
        std::fs::metadata(self.log(replica)).unwrap().len()
    }

    /// A replica's log, from its first start on.
    pub(crate) fn log_text(&self, replica: u64) -> String {
        std::fs::read_to_string(self.log(replica)).unwrap()
    }

    /// What a command of `smc` prints of a replica, whatever it finds.
    pub(crate) async fn print(&self, replica: u64, arguments: &[&'static str]) -> Vec<u8> {
        let (socket, arguments) = (self.data(replica).join("admin.sock"), arguments.to_vec());
        let run = move || Command::new(program()).args(arguments).arg("--admin-socket").arg(socket).output();
        let Output { status, stdout, stderr } = spawn_blocking(run).await.unwrap().unwrap();
        assert!(!stdout.is_empty(), "{status}: {}", String::from_utf8_lossy(&stderr));
        stdout
    }
}
