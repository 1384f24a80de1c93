//! Owns the reading of the processor time of a process (proc_pid_stat(5)).

use std::fs;
use std::time::Duration;

use crate::Result;

/// What a process has used in user space and in the kernel, of all its threads, in steps of 10 ms.
pub fn of(pid: u32) -> Result<(Duration, Duration)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program, in parentheses, may hold spaces. After it come the fields from the third.
    let (_, fields) = stat.rsplit_once(')').ok_or("no such field")?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || -> Result<Duration> {
        let ticks: u64 = fields.next().ok_or("no such field")?.parse()?;
        // User space counts 100 ticks a second on every architecture that Rust's Linux targets have.
        Ok(Duration::from_millis(10 * ticks))
    };
    Ok((next()?, next()?))
}
