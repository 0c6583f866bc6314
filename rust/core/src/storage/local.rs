//! The local file system.
//!
//! A directory may be a mount of a remote file system that hangs. Calls that may block run inside
//! [`pool::block_in_place`], so a hanging mount delays only streams of its own tables.

use std::fs::{DirEntry, File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Read, Result as IoResult};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::UNIX_EPOCH;

use bytes::Bytes;

use super::lines::LineLengths;
use super::{Directories, FileProperties, LogFileEntry, MAX_DIRECTORY_ENTRIES, check_size, replaced};
use crate::error::{Error, Result};
use crate::log_path::{self, LogFileName};
use crate::pool;

/// How often a directory is listed that another one replaces meanwhile.
const MAX_LISTED: u32 = 3;

/// Lists the regular files of a directory from a name on, and whatever has the name of a commit, in any order. A missing
/// directory is empty.
pub(super) fn list(directory: &str, from_name: &str) -> Result<Vec<LogFileEntry>> {
    pool::block_in_place(|| in_place(directory, || list_blocking(directory, from_name)))
}

/// Returns the listing of a directory that stays in its place meanwhile. One that is replaced each time that it is listed
/// is [`Error::FileReplaced`].
///
/// A directory that is renamed and deleted while it is read shows some of its files: a log of them ends with a version
/// that was not the latest one. A mount may number the same directory anew: then its listing stays the same.
fn in_place<T: PartialEq>(directory: &str, list: impl Fn() -> Result<T>) -> Result<T> {
    let mut before = None;
    for _ in 0..MAX_LISTED {
        let place = place_of(directory)?;
        let listed = list()?;
        if place_of(directory)? == place || before.as_ref() == Some(&listed) {
            return Ok(listed);
        }
        before = Some(listed);
    }
    Err(replaced(directory))
}

/// Returns what has a path at the moment: the device and the number of the file.
fn place_of(path: &str) -> Result<Option<(u64, u64)>> {
    let metadata = found_at(path, std::fs::metadata(path))?;
    Ok(metadata.map(|metadata| (metadata.dev(), metadata.ino())))
}

/// What is read of a file before its lines are looked at.
const PIECE_BYTES: u64 = 4 << 20;

/// Lists the directories directly below one, in any order. A missing directory is empty.
pub(super) fn list_directories(directory: &str) -> Result<Directories> {
    pool::block_in_place(|| in_place(directory, || list_directories_blocking(directory)))
}

/// Reads a whole file of at most `max_bytes`; with `listed`, only the listed one.
pub(super) fn read(path: &str, listed: Option<&LogFileEntry>, max_bytes: u64) -> Result<Bytes> {
    let failed = |error: std::io::Error| store_error(path, &error);
    pool::block_in_place(|| {
        let (mut file, before) = open_blocking(path, listed)?;
        check_size(path, before.len(), max_bytes)?;
        let (mut content, mut lines) = (Vec::with_capacity(before.len() as usize), LineLengths::of(path));
        loop {
            let known = content.len();
            (&mut file).take(PIECE_BYTES).read_to_end(&mut content).map_err(failed)?;
            if content.len() == known {
                break;
            }
            check_size(path, content.len() as u64, max_bytes)?;
            lines.take(&content[known..])?;
        }
        // A writer that does not know of Delta may have written over the file meanwhile.
        let is_same = has_same_content(&before, &file.metadata().map_err(failed)?);
        if listed.is_some() && !(is_same && content.len() as u64 == before.len()) {
            return Err(replaced(path));
        }
        Ok(content.into())
    })
}

/// Returns the properties of what has a path; `None` if nothing has it.
pub(super) fn properties(path: &str) -> Result<Option<FileProperties>> {
    // A link that leads nowhere is listed, too.
    let or_link = |error| std::fs::symlink_metadata(path).ok().filter(Metadata::is_symlink).ok_or(error);
    let found = pool::block_in_place(|| std::fs::metadata(path).or_else(or_link));
    Ok(found_at(path, found)?.map(|metadata| FileProperties {
        size: metadata.len(),
        modified_s: modified_ms(&metadata).div_euclid(1000),
        entity_tag: Some(entity_tag(&metadata)),
        identity: identity(&metadata),
    }))
}

/// Opens a file for reads of ranges; with `listed`, only the listed one.
pub(super) fn open(path: &str, listed: Option<&LogFileEntry>) -> Result<OpenFile> {
    let (file, metadata) = pool::block_in_place(|| open_blocking(path, listed))?;
    Ok(OpenFile { file, size: metadata.len(), opened: metadata })
}

/// An open file, as it was when it was opened.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) size: u64,
    opened: Metadata,
}

impl OpenFile {
    /// Returns whether the file was not written to since.
    pub(super) fn is_unchanged(&self) -> IoResult<bool> {
        Ok(has_same_content(&self.opened, &self.file.metadata()?))
    }
}

fn open_blocking(path: &str, listed: Option<&LogFileEntry>) -> Result<(File, Metadata)> {
    let failed = |error: std::io::Error| store_error(path, &error);
    // Opening a pipe waits for its writer.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::FileNotFound { file: log_path::file_name(path).to_owned() });
    }
    let file = File::open(path).map_err(failed)?;
    // From the open file, because the path may refer to another one now.
    let metadata = file.metadata().map_err(failed)?;
    match listed {
        Some(listed) if !is_listed(&metadata, listed) => Err(replaced(path)),
        _ => Ok((file, metadata)),
    }
}

fn is_listed(metadata: &Metadata, listed: &LogFileEntry) -> bool {
    metadata.len() == listed.size
        && (listed.identity == 0 || listed.identity == identity(metadata))
        && listed.entity_tag.as_ref().is_none_or(|tag| *tag == entity_tag(metadata))
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

fn list_directories_blocking(directory: &str) -> Result<Directories> {
    let failed = |error: &std::io::Error| store_error(directory, error);
    let mut directories = Directories { names: Vec::new(), is_truncated: false };
    for (index, entry) in read_directory(directory)?.into_iter().flatten().enumerate() {
        if index == MAX_DIRECTORY_ENTRIES {
            directories.is_truncated = true;
            break;
        }
        let entry = entry.map_err(|error| failed(&error))?;
        let is_directory = may_be_directory(&entry).map_err(|error| failed(&error))?;
        if is_directory && let Ok(name) = entry.file_name().into_string() {
            directories.names.push(name);
        }
    }
    Ok(directories)
}

fn list_blocking(directory: &str, from_name: &str) -> Result<Vec<LogFileEntry>> {
    let failed = |error: &std::io::Error| store_error(directory, error);
    let mut files = Vec::new();
    for entry in read_directory(directory)?.into_iter().flatten() {
        let entry = entry.map_err(|error| failed(&error))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.as_str() < from_name {
            continue;
        }
        let Some(metadata) = metadata_of(&entry, &name).map_err(|error| failed(&error))? else { continue };
        // A directory in the place of a commit cannot be read: the log ends with an error, not before it.
        let is_commit = matches!(LogFileName::parse(&name), Some(LogFileName::Commit(_)));
        if metadata.is_file() || is_commit {
            files.push(LogFileEntry {
                name,
                size: metadata.len(),
                modified_ms: modified_ms(&metadata),
                entity_tag: Some(entity_tag(&metadata)),
                identity: identity(&metadata),
            });
        }
    }
    Ok(files)
}

/// Returns the metadata of an entry of a log by the open directory, in whose place another one may be put meanwhile.
/// Links are followed, as by a read. `None` for a file that was deleted since.
///
/// A mount may list a file and then fail to show it: without its newest commit, a log would be that of an older version.
/// So such a log file is an error, and a commit behind a link that leads nowhere is there, for those who need it.
fn metadata_of(entry: &DirEntry, name: &str) -> IoResult<Option<Metadata>> {
    let own = entry.metadata();
    let followed = match &own {
        Ok(metadata) if metadata.is_symlink() => std::fs::metadata(entry.path()),
        _ => return absent_as_none(own, name),
    };
    match (followed, LogFileName::parse(name)) {
        (Err(_), Some(LogFileName::Commit(_))) => own.map(Some),
        (followed, _) => absent_as_none(followed, name),
    }
}

/// `None` for an absent file, and for any failure of one that no version needs.
fn absent_as_none(metadata: IoResult<Metadata>, name: &str) -> IoResult<Option<Metadata>> {
    let is_needed = !matches!(LogFileName::parse(name), None | Some(LogFileName::Checksum(_)));
    match metadata {
        Err(error) if is_needed && error.kind() != ErrorKind::NotFound => Err(error),
        metadata => Ok(metadata.ok()),
    }
}

/// Returns whether an entry is a directory, also behind a link, or one that cannot be told: a mount that does not show a
/// directory is no proof that its tables are gone.
fn may_be_directory(entry: &DirEntry) -> IoResult<bool> {
    match entry.file_type() {
        Ok(kind) if kind.is_symlink() => Ok(match std::fs::metadata(entry.path()) {
            Ok(metadata) => metadata.is_dir(),
            Err(error) => error.kind() != ErrorKind::NotFound,
        }),
        Ok(kind) => Ok(kind.is_dir()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens a directory; `None` if there is none.
fn read_directory(directory: &str) -> Result<Option<std::fs::ReadDir>> {
    found_at(directory, std::fs::read_dir(directory))
}

/// Returns what a call found at a path; `None` if nothing has the path.
fn found_at<T>(path: &str, found: IoResult<T>) -> Result<Option<T>> {
    match found.map_err(|error| store_error(path, &error)) {
        Ok(found) => Ok(Some(found)),
        Err(Error::FileNotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The modification time in full precision. The inode is not included: replicas with copies of one directory must
/// agree.
fn entity_tag(metadata: &Metadata) -> Box<str> {
    format!("{}.{}", metadata.mtime(), metadata.mtime_nsec()).into()
}

/// See [`LogFileEntry::identity`].
fn identity(metadata: &Metadata) -> u64 {
    let mut hasher = DefaultHasher::new();
    [metadata.dev(), metadata.ino(), metadata.len()].hash(&mut hasher);
    [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()].hash(&mut hasher);
    hasher.finish().max(1)
}

/// Returns whether an open file was not written to. Cleanup that deletes it, or a writer that removes another name of it,
/// changes the status time as well, but also the number of names.
fn has_same_content(before: &Metadata, now: &Metadata) -> bool {
    let content = |metadata: &Metadata| (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
    identity(before) == identity(now) || (before.nlink() != now.nlink() && content(before) == content(now))
}

fn modified_ms(metadata: &Metadata) -> i64 {
    let Ok(modified) = metadata.modified() else { return 0 };
    match modified.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
    }
}

/// Converts an error of the file system.
pub(super) fn store_error(path: &str, error: &std::io::Error) -> Error {
    match error.kind() {
        // No file can have a name that is too long.
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename => {
            Error::FileNotFound { file: log_path::file_name(path).to_owned() }
        }
        ErrorKind::PermissionDenied => Error::StorageDenied { detail: format!("{path}: {error}") },
        _ => Error::StorageUnavailable { detail: format!("{path}: {error}") },
    }
}
