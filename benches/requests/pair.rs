//! Owns the processes of the two Envoys that a request passes, and the processor time that they use.

use std::fs;
use std::time::Duration;

use smc_benches::{Result, processor_time};

/// The Envoy of the caller, and that of the server.
#[derive(Debug)]
pub(crate) struct Pair {
    caller: u32,
    server: u32,
}

/// The processor time of one Envoy: in user space, and in the kernel.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Used {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl Pair {
    /// The Envoys that have these arguments.
    pub(crate) fn find(caller: &str, server: &str) -> Result<Self> {
        Ok(Self { caller: process(caller)?, server: process(server)? })
    }

    /// What the caller's and the server's have used so far.
    pub(crate) fn used(&self) -> Result<[Used; 2]> {
        Ok([used(self.caller)?, used(self.server)?])
    }
}

impl Used {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.user += more.user;
        self.system += more.system;
    }
}

fn used(pid: u32) -> Result<Used> {
    let (user, system) = processor_time::of(pid)?;
    Ok(Used { user, system })
}

/// The only Envoy that has this argument.
pub(crate) fn process(argument: &str) -> Result<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may have ended meanwhile.
        let Ok(command) = fs::read(entry.path().join("cmdline")) else { continue };
        let mut arguments = command.split(|byte| *byte == 0);
        let is_envoy = arguments.next() == Some(smc_lab::ENVOY.as_bytes());
        if is_envoy && arguments.any(|other| other == argument.as_bytes()) {
            found.push(pid);
        }
    }
    match found[..] {
        [pid] => Ok(pid),
        _ => Err(format!("the Envoys with the argument {argument}: {found:?}").into()),
    }
}
