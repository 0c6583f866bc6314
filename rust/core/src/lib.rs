//! Reads Delta logs as streams of files, prunes them by predicates, signs their URLs and writes the NDJSON
//! lines of Delta Sharing.
//!
//! Rooms, from the log to the line: [`storage`] and [`log_path`] find files, [`segment`] chooses those that
//! rebuild a version, [`commit`] and [`checkpoint`] decode them to batches of [`actions`] with their values coded
//! by [`partition`], [`replay`] says which are live, [`snapshot`] answers for one version, [`history`] for times and
//! [`changes`] for a range, [`scan`] streams live files past a [`predicate`], from the log or from [`column_cache`] columns,
//! [`sign`] makes URLs (hashed in groups by `hash`) and [`ndjson`] writes lines on the threads of a [`pool`].
//! [`table`] is one table over time, [`query`] puts an answer together.

#![deny(unsafe_code)]

pub mod actions;
pub mod changes;
pub mod checkpoint;
mod civil_time;
pub mod column_cache;
pub mod commit;
mod crc;
pub mod deletion_vector;
pub mod error;
mod escape;
pub mod explain;
mod features;
mod file_id;
mod hash;
mod hash_block;
pub mod history;
#[cfg(test)]
#[path = "../tests/support/known_tables.rs"]
mod known_tables;
pub mod log_path;
pub mod ndjson;
pub mod partition;
mod percent;
pub mod pool;
pub mod predicate;
pub mod query;
pub mod replay;
pub mod scan;
pub mod schema;
pub mod segment;
pub mod sign;
#[cfg(target_arch = "x86_64")]
mod simd;
pub mod snapshot;
pub mod stop;
pub mod storage;
pub mod stream;
pub mod table;

pub use error::{Error, Result};
