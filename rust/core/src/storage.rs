//! The storage of tables: the local file system, or one bucket or container of an object store.
//!
//! A [`Storage`] returns listings, bytes and [`StoredFile`]s by blocking calls from any thread. Only this module uses
//! tokio and `object_store`. Errors name the file without its directory; the message of the store is in `detail`.

mod addresses;
mod answer;
mod azure;
mod credentials;
mod direct;
mod gcs;
mod iam;
mod lines;
mod local;
mod pending;
mod properties;
mod ratified;
mod remote;
mod runtime;
mod s3;
mod stored_file;
mod transport;
mod window;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::log_memory;
use crate::log_path::{self, LOG_DIRECTORY, LogFileName, STAGED_COMMITS, log_file_path};

pub use azure::AzureOptions;
use credentials::Credentials;
pub use credentials::S3Credentials;
pub(crate) use direct::{Exchange, Progress};
pub use gcs::GcsOptions;
pub use iam::IamSigner;
pub(crate) use lines::MAX_LINE_BYTES;
pub use pending::PendingReads;
pub use properties::FileProperties;
pub(crate) use ratified::DIFFER;
pub use ratified::{Ratified, RatifiedCommit, TableCatalog};
pub use remote::RequestTimes;
pub use s3::S3Options;
pub use stored_file::StoredFile;

/// The maximum number of entries, files included, that a listing of directories reads.
const MAX_DIRECTORY_ENTRIES: usize = 16_000;

/// Log files read whole (JSON, checksums) are smaller than this; Arrow's views address 4 GiB at most.
const MAX_WHOLE_FILE_BYTES: u64 = 2 << 30;

/// A hint to a checkpoint is smaller, also with the schema of 10,000 columns. Unlike listed files it is read beside the
/// memory of logs, by each refresh.
const MAX_UNLISTED_BYTES: u64 = MAX_LINE_BYTES as u64;

/// A file in a listing of `_delta_log/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFileEntry {
    /// The name without the directory of the log.
    pub name: String,
    /// The size in bytes.
    pub size: u64,
    /// The modification time in the store, in milliseconds since the epoch.
    pub modified_ms: i64,
    /// A value that changes with the content, without quotes: the entity tag of an object, the exact modification
    /// time of a local file, which copies of a directory share. `None` if the store has none.
    pub entity_tag: Option<Box<str>>,
    /// A digest of what identifies a local file on this machine: device, inode, size, and times of the content and of
    /// the status. Zero for objects, and for files that no listing has shown.
    pub identity: u64,
}

impl LogFileEntry {
    /// Returns whether it is a staged commit. Its name has a UUID, so the size alone is compared: the time is that of
    /// the catalog.
    pub(crate) fn is_staged(&self) -> bool {
        self.name.starts_with(STAGED_COMMITS)
    }
}

/// The directories directly below a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories {
    /// The names, in order.
    pub names: Vec<String>,
    /// Whether there may be more.
    pub is_truncated: bool,
}

/// The storage of tables. Cheap to clone; `Debug` shows no secret.
#[derive(Clone)]
pub struct Storage {
    inner: Inner,
    /// The catalog of the one table that is read.
    catalog: Option<Arc<TableCatalog>>,
}

#[derive(Clone)]
enum Inner {
    Local,
    Remote(Arc<remote::Remote>),
}

impl Storage {
    /// The local file system. Roots are directories.
    #[must_use]
    pub fn local() -> Self {
        Self::of(Inner::Local)
    }

    /// A bucket of S3. Roots are key prefixes. Sends no request; invalid options are an [`Error::InvalidArgument`].
    pub fn s3(options: &S3Options) -> Result<Self> {
        Ok(Self::of(Inner::Remote(Arc::new(s3::open(options)?))))
    }

    /// As [`Self::s3`], for a container of Azure. Requests are denied until credentials are set.
    pub fn azure(options: &AzureOptions) -> Result<Self> {
        Ok(Self::of(Inner::Remote(Arc::new(azure::open(options)?))))
    }

    /// As [`Self::s3`], for a bucket of Google. Requests are denied until a token is set.
    pub fn gcs(options: &GcsOptions) -> Result<Self> {
        Ok(Self::of(Inner::Remote(Arc::new(gcs::open(options)?))))
    }

    fn of(inner: Inner) -> Self {
        Self { inner, catalog: None }
    }

    /// Returns the storage of a table whose commits a catalog ratifies; `None` for one that has no catalog.
    #[must_use]
    pub fn of_table(&self, catalog: Option<Arc<TableCatalog>>) -> Self {
        Self { inner: self.inner.clone(), catalog }
    }

    /// The catalog of the table.
    #[must_use]
    pub fn catalog(&self) -> Option<&Arc<TableCatalog>> {
        self.catalog.as_ref()
    }

    /// The kind, the endpoint and the bucket: what distinguishes equal roots of different storages.
    pub(crate) fn location(&self) -> [&str; 3] {
        match &self.inner {
            Inner::Local => ["file", "", ""],
            Inner::Remote(remote) => remote.location(),
        }
    }

    /// Returns whether each read is a network request.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.inner, Inner::Remote(_))
    }

    /// Replaces the credentials of a bucket of S3. Has no effect on local storage.
    pub fn replace_credentials(&self, credentials: &S3Credentials) -> Result<()> {
        self.replace(&Credentials::AccessKeys(credentials))
    }

    /// Replaces the credentials of a container of Azure by its account's key, in Base64. Has no effect on local storage.
    pub fn replace_account_key(&self, key: &str) -> Result<()> {
        self.replace(&Credentials::AccountKey(key))
    }

    /// Replaces the credentials of a container of Azure or a bucket of Google by a token. Has no effect on local storage.
    pub fn replace_bearer_token(&self, token: &str) -> Result<()> {
        self.replace(&Credentials::BearerToken(token))
    }

    fn replace(&self, credentials: &Credentials<'_>) -> Result<()> {
        match &self.inner {
            Inner::Local => Ok(()),
            Inner::Remote(remote) => remote.replace_credentials(credentials),
        }
    }

    /// Lists the files in `root/_delta_log/` from `from_name` on, by name. A missing directory is empty, as in a
    /// bucket. An absent bucket is [`Error::TableNotFound`] with the store's code.
    ///
    /// A table with a catalog has the commits that the catalog has ratified, in any place of the list.
    pub fn list_log(&self, root: &str, from_name: &str) -> Result<Vec<LogFileEntry>> {
        match &self.catalog {
            Some(catalog) => catalog.joined(from_name, || self.list_published(root, from_name)),
            None => self.list_published(root, from_name),
        }
    }

    fn list_published(&self, root: &str, from_name: &str) -> Result<Vec<LogFileEntry>> {
        let directory = log_path::join(root, LOG_DIRECTORY);
        let mut entries = match &self.inner {
            Inner::Local => local::list(&directory, from_name)?,
            Inner::Remote(remote) => remote.list(&directory, from_name)?,
        };
        // Of a name that an unordered listing has twice, the later entry is the newer one.
        entries.reverse();
        entries.sort_by(|left, right| left.name.cmp(&right.name));
        entries.dedup_by(|later, first| later.name == first.name);
        Ok(entries)
    }

    /// Lists the directories directly below a root, with a bounded number of entries read. A missing root is empty, as
    /// in a bucket. An absent bucket is an error, as in [`Self::list_log`].
    pub fn list_directories(&self, root: &str) -> Result<Directories> {
        let mut directories = match &self.inner {
            Inner::Local => local::list_directories(root)?,
            Inner::Remote(remote) => remote.list_directories(root)?,
        };
        directories.names.sort_unstable();
        // A store that does not continue after a key lists the names before it again.
        directories.names.dedup();
        Ok(directories)
    }

    /// Reads a small file that is not listed, of at most 32 MiB. A larger one is [`Error::CorruptLog`].
    pub fn read(&self, path: &str) -> Result<Bytes> {
        self.read_up_to(path, MAX_UNLISTED_BYTES)
    }

    fn read_up_to(&self, path: &str, max_bytes: u64) -> Result<Bytes> {
        match &self.inner {
            Inner::Local => local::read(path, None, max_bytes),
            Inner::Remote(remote) => remote.read(path, max_bytes),
        }
    }

    /// Reads a file of `root/_delta_log/` as it was listed. Another one, or a part of it, is [`Error::FileReplaced`].
    pub fn read_log_file(&self, root: &str, file: &LogFileEntry) -> Result<Bytes> {
        self.read_log_files(root, &[file])
            .pop()
            .unwrap_or_else(|| Err(Error::Internal { detail: "a batch of reads without its file".into() }))
    }

    /// Requests the properties of two files in parallel; `None` for an absent one. An absent object of a bucket is
    /// [`Error::StorageDenied`] where the credentials may not list the bucket.
    pub fn properties(&self, paths: &[String; 2]) -> Result<[Option<FileProperties>; 2]> {
        match &self.inner {
            Inner::Local => Ok([local::properties(&paths[0])?, local::properties(&paths[1])?]),
            Inner::Remote(remote) => runtime::block_on(remote.both_properties(paths))?,
        }
    }

    /// The properties of one file; `None` also where the store does not tell them.
    pub(crate) fn known_properties(&self, path: String) -> Result<Option<FileProperties>> {
        match self.properties(&[path.clone(), path]) {
            Ok([found, _]) => Ok(found),
            Err(Error::StorageDenied { .. } | Error::StorageRefused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`Self::properties`], in the background; `then` takes the result on a thread of the storage. Returns an
    /// error if nothing was started.
    pub fn start_properties(
        &self,
        paths: [String; 2],
        then: impl FnOnce(Result<[Option<FileProperties>; 2]>) + Send + 'static,
    ) -> Result<()> {
        match &self.inner {
            Inner::Local => {
                let storage = self.clone();
                runtime::spawn_blocking(move || then(storage.properties(&paths)))
            }
            Inner::Remote(remote) => {
                let remote = Arc::clone(remote);
                runtime::spawn(async move { then(remote.both_properties(&paths).await) })
            }
        }
    }

    /// As [`Self::properties`], sent and received by the calling thread. `None` if that cannot be done without blocking.
    pub(crate) fn send_properties(&self, paths: &[String; 2]) -> Option<Exchange> {
        match &self.inner {
            Inner::Local => None,
            Inner::Remote(remote) => remote.send_properties(paths),
        }
    }

    /// As [`Self::read_log_file`] for several files in parallel, with a bounded number of requests, in their order.
    #[must_use]
    pub fn read_log_files(&self, root: &str, files: &[&LogFileEntry]) -> Vec<Result<Bytes>> {
        let admitted = match log_memory::admit(files.iter().map(|file| file.size)) {
            Ok(admitted) => admitted,
            Err(error) => return files.iter().map(|_| Err(error.clone())).collect(),
        };
        let read = |file: &&LogFileEntry| {
            local::read(&log_file_path(root, &file.name), Some(file), MAX_WHOLE_FILE_BYTES)
        };
        let mut contents = match &self.inner {
            Inner::Local => files.iter().map(read).collect(),
            Inner::Remote(remote) => remote.read_log_files(root, files),
        };
        if let Some(catalog) = &self.catalog {
            for (file, content) in files.iter().zip(&mut contents) {
                if file.is_staged() && matches!(content, Err(Error::FileNotFound { .. })) {
                    *content = catalog.inline(file).map_or_else(|| self.read_published(root, file), Ok);
                }
            }
        }
        admitted.hold(contents)
    }

    /// Reads the published copy of a commit that the catalog no longer has, or whose staged file was deleted.
    fn read_published(&self, root: &str, file: &LogFileEntry) -> Result<Bytes> {
        let version = LogFileName::parse(&file.name).map_or(-1, |name| name.version());
        let path = log_file_path(root, &log_path::commit_name(version));
        let content = self.read_up_to(&path, MAX_WHOLE_FILE_BYTES)?;
        if content.len() as u64 == file.size { Ok(content) } else { Err(replaced(&path)) }
    }

    /// As [`Self::read_log_files`], in the background.
    #[must_use]
    pub fn start_log_reads(&self, root: &str, files: Vec<LogFileEntry>) -> PendingReads {
        if let Inner::Remote(remote) = &self.inner
            && !files.iter().any(LogFileEntry::is_staged)
            && let Some(admitted) = log_memory::try_admit(files.iter().map(|file| file.size))
        {
            return remote.start_log_reads(root, files, admitted);
        }
        PendingReads::later(self, root, files)
    }

    /// Opens a listed file for reads of ranges. Sends no request to a remote store. A range of another file is
    /// [`Error::FileReplaced`].
    ///
    /// Some remote stores list another entity tag than they send with the object. A file with the listed size and
    /// modification time (in whole seconds) counts as the listed one.
    pub fn open_listed(&self, path: &str, file: &LogFileEntry) -> Result<StoredFile> {
        match &self.inner {
            Inner::Local => StoredFile::local(path, Some(file)),
            Inner::Remote(remote) => Ok(StoredFile::remote(remote, path, file.size, Some(file))),
        }
    }

    /// Opens a file for reads of ranges, of which a log states the size. A file of another size is
    /// [`Error::CorruptLog`], since a repeated read gets the same.
    pub fn open_stated(&self, path: &str, size: u64) -> Result<StoredFile> {
        match &self.inner {
            Inner::Local => match StoredFile::local(path, None)? {
                file if file.size() == size => Ok(file),
                _ => Err(other_size_than_stated(path)),
            },
            Inner::Remote(remote) => Ok(StoredFile::remote(remote, path, size, None)),
        }
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            Inner::Local => formatter.write_str("Storage::local()"),
            Inner::Remote(remote) => fmt::Debug::fmt(remote, formatter),
        }
    }
}

fn replaced(path: &str) -> Error {
    Error::FileReplaced { file: log_path::file_name(path).to_owned() }
}

fn other_size_than_stated(path: &str) -> Error {
    Error::corrupt(log_path::file_name(path), "its size is not the one that the log states")
}

fn check_size(path: &str, size: u64, max_bytes: u64) -> Result<()> {
    if size > max_bytes {
        return Err(Error::corrupt(log_path::file_name(path), "the file is too large to be part of a log"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
