//! Locks a mutex whatever happened to its last holder.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Waits for the lock. Panics are reported where they happen, and guarded values are consistent at every point where a
/// holder could panic, so a poisoned lock is used as any other.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns `None` if another thread holds the lock.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
