//! Limits that the processes of one server share.
//!
//! In: a file that the supervisor makes, empty and unnamed, and the index of a worker. Out: token buckets, counts of
//! streams and failure budgets that hold over all workers, because each of them maps the file. All state is words that
//! are changed atomically: no request waits for another process, and a process that is killed leaves no lock that a
//! request needs. What it had admitted is given back by [`SharedLimits::clear_worker`].

#![deny(unsafe_code)]

mod bucket;
mod key;
mod memory;
mod recent;
mod recipients;
mod shared;

pub use bucket::{Bucket, Terms};
pub use key::Key;
pub use recipients::Kind;
pub use shared::SharedLimits;
