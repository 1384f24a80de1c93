//! Owns the processes of the two Envoys that a request passes, and the processor time that they use.

use std::fs;

use smc_benches::Result;
use smc_benches::processor_time::{self, ProcessorTime};

/// The Envoy of the caller, and that of the server.
#[derive(Debug)]
pub(crate) struct Pair {
    caller: u32,
    server: u32,
}

impl Pair {
    /// The Envoys that have these arguments.
    pub(crate) fn find(caller: &str, server: &str) -> Result<Self> {
        Ok(Self { caller: process(caller)?, server: process(server)? })
    }

    /// What the caller's and the server's have used so far.
    pub(crate) fn used(&self) -> Result<[ProcessorTime; 2]> {
        Ok([processor_time::of(self.caller)?, processor_time::of(self.server)?])
    }
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
