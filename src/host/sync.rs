//! Locks that survive a panic.
//!
//! Owns taking a lock that a panicking thread poisoned: the guard is returned all the same. Does
//! not suit data that a panic can leave half-changed: what these locks protect changes in one step,
//! or after all checks.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks `mutex`, poisoned or not.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `lock` for reading, poisoned or not.
pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `lock` for writing, poisoned or not.
pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_lock_that_a_panic_poisoned_is_taken_all_the_same() {
        let locks = Arc::new((Mutex::new(1), RwLock::new(2)));
        let poison = Arc::clone(&locks);
        let poisoned = std::thread::spawn(move || {
            let _both = (poison.0.lock(), poison.1.write());
            panic!("while both are held");
        });
        assert!(poisoned.join().is_err() && locks.0.is_poisoned() && locks.1.is_poisoned());
        assert_eq!(*lock(&locks.0), 1);
        assert_eq!(*read(&locks.1), 2);
        assert_eq!(*write(&locks.1), 2);
    }
}
