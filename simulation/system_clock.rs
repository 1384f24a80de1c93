//! The system's clock of a thread that simulates.
//!
//! Owns `clock_gettime` of the programs that this package is linked into. During a step of a simulation it
//! stands at the simulated time. Libraries read the clock where no `Env` reaches: h2 forgets a stream a
//! second after it was reset, and answers what comes for it otherwise from then on, so that a run would
//! depend on the speed of the machine. Other threads see the real time.

#![expect(unsafe_code, reason = "the standard library asks the C library for the time")]

use std::cell::Cell;
use std::ffi::{c_int, c_long};
use std::time::Duration;

use nix::libc::{SYS_clock_gettime, clockid_t, syscall, timespec};

use crate::clock::START;

thread_local! {
    static SHOWN: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Calls `step` while the system's clock stands so long after the start of the simulation.
pub(crate) fn at<T>(elapsed: Duration, step: impl FnOnce() -> T) -> T {
    /// The real time is back, also after a panic.
    struct Real;
    impl Drop for Real {
        fn drop(&mut self) {
            SHOWN.set(None);
        }
    }
    let _real = Real;
    SHOWN.set(Some(elapsed));
    step()
}

/// The time of day and the monotonic clocks. In place of the C library's, since the linker meets it first.
///
/// # Safety
///
/// As of the C library's: `time` can be written to.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let Some(elapsed) = SHOWN.try_with(Cell::get).ok().flatten() else {
        // SAFETY: the kernel's call of the same name has the same arguments.
        let failed = unsafe { syscall(SYS_clock_gettime, clock, time) };
        return -c_int::from(failed != 0);
    };
    let shown = timespec {
        tv_sec: START.0.saturating_add_unsigned(elapsed.as_secs()),
        tv_nsec: c_long::from(elapsed.subsec_nanos()),
    };
    // SAFETY: the caller's promise.
    unsafe { time.write(shown) };
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "it is about the system's clock")]
    fn a_step_sees_the_simulated_time_and_all_else_the_real_one() {
        let now = || (std::time::SystemTime::now(), std::time::Instant::now());
        let elapsed = Duration::from_millis(1_234);
        let (before, real) = now();
        let (start, monotonic) = at(Duration::ZERO, now);
        std::thread::sleep(Duration::from_millis(2));
        let (shown, later) = at(elapsed, now);
        assert_eq!((shown.duration_since(start).unwrap(), later - monotonic), (elapsed, elapsed));
        let elsewhere = at(elapsed, || std::thread::spawn(now).join().unwrap());
        assert!(elsewhere.0 > before && elsewhere.1 > real, "another thread sees the real time");
        assert!(real.elapsed() >= Duration::from_millis(2), "it goes on");
    }
}
