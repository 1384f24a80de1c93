//! How much was asked, and with which answers.

use std::fmt;

use smc_policy::Version;

/// The answers to all questions.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) meshes: u64,
    http1: Requests,
    http2: Requests,
    /// Connections to ports that services share by their names.
    pub(crate) shared: u64,
    /// Requests and connections that sidecars of callers took.
    pub(crate) routed: u64,
    /// Those of them that a split sent elsewhere.
    pub(crate) elsewhere: u64,
    /// Those of them that ended at the pod that was dialled.
    pub(crate) dialled: u64,
    /// Those of them that may end at a machine.
    pub(crate) machines: u64,
    /// Connections that sidecars of callers closed.
    pub(crate) closed: u64,
    /// Connections to ports that are not HTTP.
    pub(crate) connected: u64,
    pub(crate) refused: u64,
    /// Requests from outside of the mesh.
    pub(crate) let_in: u64,
    pub(crate) kept_out: u64,
}

/// The answers to the requests of one version.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) malformed: u64,
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { allowed, denied, malformed } = self;
        write!(f, "{allowed} allowed, {denied} denied, {malformed} malformed")
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            meshes,
            http1,
            http2,
            shared,
            routed,
            elsewhere,
            dialled,
            machines,
            closed,
            connected,
            refused,
            let_in,
            kept_out,
        } = self;
        write!(
            f,
            "{meshes} meshes; requests of HTTP/1.1: {http1}; of HTTP/2: {http2}; routed: {routed}, {elsewhere} of \
             them by a split, {dialled} to the pod that was dialled, {machines} perhaps to a machine; {closed} closed by the caller's sidecar; \
             connections: {connected} let in, {refused} refused; {shared} to ports that services share by their \
             names; from outside: {let_in} let in, {kept_out} kept out"
        )
    }
}

impl Tally {
    pub(crate) fn requests(&mut self, version: Version) -> &mut Requests {
        match version {
            Version::Http10 | Version::Http1 => &mut self.http1,
            Version::Http2 => &mut self.http2,
        }
    }

    /// As [`Self::assert_that_it_says_something`], of what comes from outside.
    pub(crate) fn assert_that_some_are_let_in(&self) {
        let often = |count: u64| count >= 4 * self.meshes;
        assert!(self.meshes < 24 || often(self.let_in) && often(self.kept_out), "{self}");
    }

    /// Every answer was given often: nothing is agreed upon because nothing happens.
    pub(crate) fn assert_that_it_says_something(&self) {
        if self.meshes < 40 {
            return;
        }
        let often = |counts: &[u64]| counts.iter().all(|count| count * 4 >= self.meshes);
        assert!(
            often(&[
                self.shared,
                self.elsewhere,
                self.dialled,
                self.machines,
                self.closed,
                self.connected,
                self.refused
            ]),
            "{self}"
        );
        for Requests { allowed, denied, malformed } in [&self.http1, &self.http2] {
            assert!(often(&[*allowed, *denied]) && malformed * 4 < allowed + denied, "{self}");
            assert!(allowed * 6 >= allowed + denied, "most requests are denied, whatever the policy: {self}");
        }
    }
}
