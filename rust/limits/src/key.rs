//! Keys of recipients and of failed attempts.

/// The first bytes of a name's hash. Two names are one if all 128 bits are equal.
pub type Key = [u64; 2];
