//! The local file system.
//!
//! A directory may be a mount of a remote file system that hangs. Calls that may block run inside
//! [`pool::block_in_place`], so a hanging mount delays only streams of its own tables.

use std::fs::File;
use std::io::Result as IoResult;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::UNIX_EPOCH;

use bytes::Bytes;

use super::{Directories, FileProperties, LogFileEntry, MAX_DIRECTORY_ENTRIES, check_whole_file_size};
use crate::error::{Error, Result};
use crate::{log_path, pool};

/// Lists the regular files of a directory from a name on, in any order. A missing directory is empty.
pub(super) fn list(directory: &str, from_name: &str) -> Result<Vec<LogFileEntry>> {
    pool::block_in_place(|| list_blocking(directory, from_name))
}

/// Lists the directories directly below one, in any order. A missing directory is empty.
pub(super) fn list_directories(directory: &str) -> Result<Directories> {
    pool::block_in_place(|| {
        let failed = |error: &std::io::Error| store_error(directory, error);
        let mut found = Directories { names: Vec::new(), is_truncated: false };
        for (index, entry) in read_directory(directory)?.into_iter().flatten().enumerate() {
            if index == MAX_DIRECTORY_ENTRIES {
                found.is_truncated = true;
                break;
            }
            let entry = entry.map_err(|error| failed(&error))?;
            // Follows links, as a read does.
            let is_directory = std::fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir());
            if is_directory && let Ok(name) = entry.file_name().into_string() {
                found.names.push(name);
            }
        }
        Ok(found)
    })
}

/// Reads a whole file.
pub(super) fn read(path: &str) -> Result<Bytes> {
    pool::block_in_place(|| {
        check_whole_file_size(path, size(path)?)?;
        std::fs::read(path).map(Bytes::from).map_err(|error| store_error(path, &error))
    })
}

/// Returns the properties of a regular file; `None` if there is none.
pub(super) fn properties(path: &str) -> Result<Option<FileProperties>> {
    match pool::block_in_place(|| std::fs::metadata(path)) {
        Ok(metadata) => Ok(metadata.is_file().then(|| FileProperties {
            size: metadata.len(),
            modified_s: modified_ms(&metadata).div_euclid(1000),
            entity_tag: Some(entity_tag(&metadata)),
        })),
        Err(error) => match store_error(path, &error) {
            Error::FileNotFound { .. } => Ok(None),
            error => Err(error),
        },
    }
}

/// Opens a file for reads of ranges, and returns its size. With an entity tag, only a file with this tag.
pub(super) fn open(path: &str, wanted_tag: Option<&str>) -> Result<(File, u64)> {
    let failed = |error: std::io::Error| store_error(path, &error);
    pool::block_in_place(|| {
        size(path)?;
        let file = File::open(path).map_err(failed)?;
        // From the open file, because the path may refer to another one now.
        let metadata = file.metadata().map_err(failed)?;
        if wanted_tag.is_some_and(|wanted| *wanted != *entity_tag(&metadata)) {
            return Err(Error::FileNotFound { file: log_path::file_name(path).to_owned() });
        }
        Ok((file, metadata.len()))
    })
}

/// Fills a buffer from an offset on. Data in the page cache is copied immediately: running another step meanwhile
/// would cost more.
pub(super) fn read_exact_at(file: &File, buffer: &mut [u8], start: u64) -> IoResult<()> {
    let at_hand = read_at_hand(file, buffer, start);
    let rest = &mut buffer[at_hand..];
    if rest.is_empty() {
        return Ok(());
    }
    pool::block_in_place(|| file.read_exact_at(rest, start + at_hand as u64))
}

/// Returns how many bytes are available without blocking; zero if the file system does not report it.
#[cfg(target_os = "linux")]
fn read_at_hand(file: &File, buffer: &mut [u8], start: u64) -> usize {
    use rustix::io::{ReadWriteFlags, preadv2};
    preadv2(file, &mut [std::io::IoSliceMut::new(buffer)], start, ReadWriteFlags::NOWAIT).unwrap_or(0)
}

#[cfg(not(target_os = "linux"))]
fn read_at_hand(_: &File, _: &mut [u8], _: u64) -> usize {
    0
}

fn list_blocking(directory: &str, from_name: &str) -> Result<Vec<LogFileEntry>> {
    let failed = |error: &std::io::Error| store_error(directory, error);
    let mut found = Vec::new();
    for entry in read_directory(directory)?.into_iter().flatten() {
        let entry = entry.map_err(|error| failed(&error))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.as_str() < from_name {
            continue;
        }
        // Follows links, as a read does. Skips files deleted since the listing.
        let Ok(metadata) = std::fs::metadata(entry.path()) else { continue };
        if metadata.is_file() {
            let entity_tag = Some(entity_tag(&metadata));
            let (size, modified_ms) = (metadata.len(), modified_ms(&metadata));
            found.push(LogFileEntry { name, size, modified_ms, entity_tag });
        }
    }
    Ok(found)
}

/// Opens a directory; `None` if there is none.
fn read_directory(directory: &str) -> Result<Option<std::fs::ReadDir>> {
    match std::fs::read_dir(directory).map_err(|error| store_error(directory, &error)) {
        Ok(entries) => Ok(Some(entries)),
        Err(Error::FileNotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The modification time in full precision. The inode is not included: replicas with copies of one directory must
/// agree.
fn entity_tag(metadata: &std::fs::Metadata) -> Box<str> {
    format!("{}.{}", metadata.mtime(), metadata.mtime_nsec()).into()
}

fn modified_ms(metadata: &std::fs::Metadata) -> i64 {
    let Ok(modified) = metadata.modified() else { return 0 };
    match modified.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
    }
}

/// Returns the size of a regular file. Other types are rejected: opening a pipe waits for its writer.
fn size(path: &str) -> Result<u64> {
    let metadata = std::fs::metadata(path).map_err(|error| store_error(path, &error))?;
    if metadata.is_file() {
        Ok(metadata.len())
    } else {
        Err(Error::FileNotFound { file: log_path::file_name(path).to_owned() })
    }
}

/// Converts an error of the file system.
pub(super) fn store_error(path: &str, error: &std::io::Error) -> Error {
    use std::io::ErrorKind;
    match error.kind() {
        // No file can have a name that is too long.
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename => {
            Error::FileNotFound { file: log_path::file_name(path).to_owned() }
        }
        ErrorKind::PermissionDenied => Error::StorageDenied { detail: format!("{path}: {error}") },
        _ => Error::StorageUnavailable { detail: format!("{path}: {error}") },
    }
}
