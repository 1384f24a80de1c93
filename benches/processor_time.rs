//! Owns the reading of the processor time of a process (proc_pid_stat(5)).

use std::fs;
use std::ops::AddAssign;
use std::time::Duration;

use crate::Result;

/// The processor time of a process, of all its threads, in steps of 10 ms.
#[derive(Debug, Default, Clone, Copy)]
pub struct ProcessorTime {
    /// In user space.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

impl ProcessorTime {
    /// In user space and in the kernel.
    pub fn total(self) -> Duration {
        self.user + self.system
    }

    /// What was used since a former reading of the same process.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }
}

impl AddAssign for ProcessorTime {
    fn add_assign(&mut self, more: Self) {
        self.user += more.user;
        self.system += more.system;
    }
}

/// What a process has used so far.
pub fn of(pid: u32) -> Result<ProcessorTime> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program, in parentheses, may hold spaces. After it come the fields from the third.
    let (_, fields) = stat.rsplit_once(')').ok_or("no such field")?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || -> Result<Duration> {
        let ticks: u64 = fields.next().ok_or("no such field")?.parse()?;
        // User space counts 100 ticks a second on every architecture that Rust's Linux targets have.
        Ok(Duration::from_millis(10 * ticks))
    };
    Ok(ProcessorTime { user: next()?, system: next()? })
}
