//! Token buckets whose whole state is one word.
//!
//! The generic cell rate algorithm: a bucket is the time at which it will be full again. It equals a bucket that counts
//! tokens, and to take from it is one compare-and-swap.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The words of a bucket: full again at, the identity of the terms, interval, capacity.
pub(crate) const WORDS: usize = 4;

/// How a bucket fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The time in which one token is added.
    pub interval_ns: u64,
    /// The largest number of tokens.
    pub capacity: u64,
}

impl Terms {
    fn identity(self) -> u64 {
        // Never zero, which is a bucket without terms.
        (self.interval_ns.rotate_left(32) ^ self.capacity) | 1 << 63
    }

    fn capacity_ns(self) -> u64 {
        self.capacity.saturating_mul(self.interval_ns)
    }
}

/// Returns when a bucket is full again after tokens are taken from it.
pub(crate) fn charged(full_at_ns: u64, tokens: u64, terms: Terms, now_ns: u64) -> u64 {
    full_at_ns.max(now_ns).saturating_add(tokens.saturating_mul(terms.interval_ns))
}

/// Returns the time until that many tokens are available.
pub(crate) fn wait_ns(full_at_ns: u64, tokens: u64, terms: Terms, now_ns: u64) -> u64 {
    (charged(full_at_ns, tokens, terms, now_ns) - now_ns).saturating_sub(terms.capacity_ns())
}

/// A bucket in the file.
pub struct Bucket<'a>(pub(crate) &'a [AtomicU64]);

impl Bucket<'_> {
    /// Sets the terms. A balance stays, up to the new capacity.
    pub fn set_terms(&self, terms: Terms, now_ns: u64) {
        let [full_at, identity, interval, capacity] = self.0 else { return };
        let before = identity.load(Acquire);
        // The process that sets the identity converts the balance, the others find it converted.
        if before == terms.identity()
            || identity.compare_exchange(before, terms.identity(), AcqRel, Relaxed).is_err()
        {
            return;
        }
        let old = Terms { interval_ns: interval.load(Acquire), capacity: capacity.load(Acquire) };
        interval.store(terms.interval_ns, Release);
        capacity.store(terms.capacity, Release);
        if before != 0 {
            let _ = full_at.fetch_update(AcqRel, Acquire, |at| Some(converted(at, old, terms, now_ns)));
        }
    }

    /// Takes tokens if they are available after a wait of at most `patience_ns`; returns the wait in any case.
    #[must_use]
    pub fn take(&self, tokens: u64, terms: Terms, now_ns: u64, patience_ns: u64) -> u64 {
        let mut at = self.0[0].load(Acquire);
        loop {
            let wait = wait_ns(at, tokens, terms, now_ns);
            if wait > patience_ns {
                return wait;
            }
            match self.0[0].compare_exchange_weak(at, charged(at, tokens, terms, now_ns), AcqRel, Acquire) {
                Ok(_) => return wait,
                Err(other) => at = other,
            }
        }
    }

    /// Takes tokens, also when they are not available.
    pub fn charge(&self, tokens: u64, terms: Terms, now_ns: u64) {
        let _ = self.0[0].fetch_update(AcqRel, Acquire, |at| Some(charged(at, tokens, terms, now_ns)));
    }

    /// Returns the time until that many tokens are available.
    #[must_use]
    pub fn wait_ns(&self, tokens: u64, terms: Terms, now_ns: u64) -> u64 {
        wait_ns(self.0[0].load(Acquire), tokens, terms, now_ns)
    }
}

/// Keeps a balance, up to the new capacity.
fn converted(full_at_ns: u64, old: Terms, new: Terms, now_ns: u64) -> u64 {
    let missing = full_at_ns.saturating_sub(now_ns).div_ceil(old.interval_ns.max(1));
    let balance = i128::from(old.capacity) - i128::from(missing);
    let missing = i128::from(new.capacity) - balance.min(i128::from(new.capacity));
    now_ns.saturating_add(u64::try_from(missing).unwrap_or(u64::MAX).saturating_mul(new.interval_ns))
}
