//! The memory of a process.
//!
//! Owns the reading of `/proc/PID/status` (proc_pid_status(5)).

use std::{fs, io};

/// The value of `field`, such as `VmRSS` (resident) or `VmHWM` (the most of it), in KiB. Fails when the
/// process is gone, and for a field that it does not have.
pub fn memory_kib(pid: u32, field: &str) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let value = value.and_then(|value| value.trim().strip_suffix(" kB")?.parse().ok());
    value.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("process {pid} has no {field}")))
}
