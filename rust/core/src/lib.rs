//! Reads Delta logs, prunes their files with predicates, signs URLs and writes the NDJSON lines of Delta Sharing.
//!
//! The modules in the order of a query:
//! [`table`] finds the version, [`snapshot`] loads it from the files that [`segment`] selects and [`storage`] reads,
//! [`scan`] streams its live files from the log or from the [`column_cache`], a [`predicate`] prunes them, [`sign`]
//! makes their URLs, [`ndjson`] writes their lines, and [`stream`] turns the lines into chunks on the threads of a
//! [`pool`]. [`query`] composes these parts. [`changes`] reads a range of versions and [`history`] maps timestamps to
//! versions. [`commit`] and [`checkpoint`] decode log files to batches of [`actions`]; [`replay`] decides which of them
//! are live.
//!
//! A table in a local directory:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use deltalog::column_cache::ColumnCache;
//! use deltalog::pool::Pool;
//! use deltalog::scan::{Scan, ScanOptions};
//! use deltalog::storage::Storage;
//! use deltalog::table::Table;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # std::fs::create_dir(directory.path().join("_delta_log"))?;
//! # std::fs::write(
//! #     directory.path().join("_delta_log/00000000000000000000.json"),
//! #     r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
//! # {"metaData":{"id":"t","format":{"provider":"parquet"},"schemaString":"{\"type\":\"struct\",\"fields\":[]}","partitionColumns":[],"configuration":{}}}
//! # {"add":{"path":"part-0.parquet","partitionValues":{},"size":100,"modificationTime":0,"dataChange":true}}
//! # "#,
//! # )?;
//! # let root = directory.path().to_str().unwrap().to_owned();
//! let pool = Pool::new(2)?;
//! let cache = Arc::new(ColumnCache::new(64 << 20));
//! let table = Arc::new(Table::new(Storage::local(), root, cache));
//! let snapshot = table.latest(Duration::ZERO, &pool)?;
//! let mut scan = Scan::new(Arc::clone(&snapshot), table.column_cache(&snapshot), ScanOptions::everything())?;
//! let mut paths = Vec::new();
//! while let Some(selected) = scan.next_files()? {
//!     let files = &selected.batch.files;
//!     paths.extend(selected.rows.iter().map(|row| files.path.value(*row as usize).to_owned()));
//! }
//! assert_eq!((snapshot.version(), paths), (0, vec!["part-0.parquet".to_owned()]));
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

pub mod actions;
pub mod changes;
pub mod checkpoint;
mod civil_time;
pub mod column_cache;
pub mod commit;
pub mod cpu;
mod crc;
pub mod deletion_vector;
pub mod error;
mod escape;
pub mod explain;
mod features;
mod file_id;
mod hashing;
pub mod history;
pub mod inventory;
mod json_scanner;
#[cfg(test)]
#[path = "../tests/support/known_tables.rs"]
mod known_tables;
mod lock;
pub mod log_faults;
pub mod log_memory;
pub mod log_path;
pub mod ndjson;
pub mod partition;
mod percent;
#[cfg(target_os = "linux")]
mod poller;
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
pub mod variant;
mod wakeup;

pub use error::{Error, Result};
