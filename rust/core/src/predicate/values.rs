//! Values as order-preserving numbers, and sets of values as ranges of these numbers.

pub(super) mod bounds;
pub(super) mod keys;
pub(super) mod number;
pub(super) mod ranges;
