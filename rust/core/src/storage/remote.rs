//! One bucket or container of a store: the requests that all stores have in common.

use std::fmt;
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::list::PaginatedListStore;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig,
};

use super::answer::{self, Answer};
use super::credentials::Credentials;
use super::direct::{Direct, Exchange};
use super::properties::plain_tag;
use super::{Directories, FileProperties, LogFileEntry, PendingReads, check_whole_file_size, runtime};
use crate::error::{Error, Result};
use crate::log_path;

mod directories;

/// Requests in flight for one batch of whole files: enough to hide a store's latency behind its throughput.
const READS_IN_FLIGHT: usize = 48;

/// Connection timeout.
const LONGEST_CONNECT: Duration = Duration::from_secs(3);

pub(super) struct Remote {
    store: Arc<dyn ObjectStore>,
    /// The same store, for listings that stop after some pages.
    pages: Arc<dyn PaginatedListStore>,
    access: Box<dyn Access>,
    bucket: String,
    endpoint: String,
    ordered_listings: bool,
}

/// What distinguishes one store from another.
pub(super) struct StoreParts<S> {
    pub(super) store: Arc<S>,
    pub(super) access: Box<dyn Access>,
    /// The name of the bucket or container.
    pub(super) bucket: String,
    /// What distinguishes buckets of one name. Empty for AWS.
    pub(super) endpoint: String,
    /// Whether listings are ordered by name, so that they can stop after the log files.
    pub(super) ordered_listings: bool,
}

/// The credentials of requests, which are replaced while requests run.
pub(super) trait Access: Send + Sync {
    /// The name of the kind of store.
    fn kind(&self) -> &'static str;

    /// The requests that need no thread of the runtime.
    fn direct(&self) -> Option<&Direct> {
        None
    }

    /// Authorizes later requests, and retries of running ones, with these credentials.
    fn replace(&self, credentials: &Credentials<'_>) -> Result<()>;
}

impl fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Storage::{}({:?})", self.kind(), self.bucket)
    }
}

impl Remote {
    pub(super) fn of<S: ObjectStore + PaginatedListStore>(parts: StoreParts<S>) -> Self {
        let StoreParts { store, access, bucket, endpoint, ordered_listings } = parts;
        let pages = Arc::clone(&store) as _;
        Self { store, pages, access, bucket, endpoint, ordered_listings }
    }

    pub(super) fn kind(&self) -> &'static str {
        self.access.kind()
    }

    pub(super) fn bucket(&self) -> &str {
        &self.bucket
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(super) fn replace_credentials(&self, credentials: &Credentials<'_>) -> Result<()> {
        self.access.replace(credentials)
    }

    /// Sends the requests of [`Self::both_properties`] by the calling thread. `None` if it cannot send them at once.
    pub(super) fn send_properties(&self, paths: &[String; 2]) -> Option<Exchange> {
        let direct = self.access.direct()?;
        let [first, second] = [key(&paths[0]).ok()?, key(&paths[1]).ok()?];
        direct.send([first.as_ref(), second.as_ref()])
    }

    pub(super) fn list(&self, directory: &str, from_name: &str) -> Result<Vec<LogFileEntry>> {
        let prefix = key(directory)?;
        // `start-after` excludes its own key; all but the last letter of a name sorts before the name.
        let mut before = from_name.to_owned();
        before.pop();
        let listing = if before.is_empty() {
            self.store.list(Some(&prefix))
        } else {
            self.store.list_with_offset(Some(&prefix), &key(&format!("{directory}/{before}"))?)
        };
        let prefix_length = prefix.as_ref().len();
        let name_of = move |meta: &ObjectMeta| {
            meta.location.as_ref().get(prefix_length..).unwrap_or_default().trim_start_matches('/').to_owned()
        };
        let stops_at_words = self.ordered_listings;
        let entries = listing
            .map_ok(move |meta| (name_of(&meta), meta))
            .try_take_while(move |(name, _)| {
                // The names of versions sort before `_last_checkpoint`, `_sidecars/..` and `_staged_commits/..`.
                let is_past_versions = name.bytes().next().is_some_and(|first| first > b'9');
                futures::future::ready(Ok(!(stops_at_words && is_past_versions)))
            })
            .try_filter_map(|(name, meta)| {
                let is_direct = !name.is_empty() && !name.contains('/');
                futures::future::ready(Ok(is_direct.then(|| LogFileEntry {
                    name,
                    size: meta.size,
                    modified_ms: meta.last_modified.timestamp_millis(),
                    entity_tag: meta.e_tag.as_deref().and_then(plain_tag).map(Box::from),
                })))
            })
            .try_collect::<Vec<_>>();
        let entries = runtime::block_on(entries)?.map_err(|error| listing_error(directory, &error))?;
        Ok(entries.into_iter().filter(|entry| entry.name.as_str() >= from_name).collect())
    }

    pub(super) fn list_directories(&self, root: &str) -> Result<Directories> {
        let prefix = if root.is_empty() { None } else { Some(format!("{}/", key(root)?)) };
        let listing = directories::list(&*self.pages, prefix.as_deref());
        runtime::block_on(listing)?.map_err(|error| listing_error(root, &error))
    }

    pub(super) fn read(&self, path: &str) -> Result<Bytes> {
        runtime::block_on(self.read_whole(path))?
    }

    pub(super) fn read_many(&self, paths: &[String]) -> Vec<Result<Bytes>> {
        let reads = futures::stream::iter(paths.iter().map(|path| self.read_whole(path)))
            .buffered(READS_IN_FLIGHT)
            .collect::<Vec<_>>();
        match runtime::block_on(reads) {
            Ok(results) => results,
            Err(error) => paths.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    pub(super) fn start_reads(self: &Arc<Self>, paths: Vec<String>) -> PendingReads {
        let (sender, results) = std::sync::mpsc::channel();
        let count = paths.len();
        let remote = Arc::clone(self);
        let reads = async move {
            let reads = paths.into_iter().map(|path| {
                let remote = Arc::clone(&remote);
                async move { remote.read_whole(&path).await }
            });
            let results = futures::stream::iter(reads).buffered(READS_IN_FLIGHT).collect::<Vec<_>>().await;
            // The receiver is gone: the stream was cancelled.
            drop(sender.send(results));
        };
        // If nothing can be started the sender is dropped, and the receiver reports it.
        drop(runtime::spawn(reads));
        PendingReads::remote(results, count)
    }

    pub(super) fn size(&self, path: &str) -> Result<u64> {
        let location = key(path)?;
        let meta =
            runtime::block_on(self.store.head(&location))?.map_err(|error| store_error(path, &error))?;
        Ok(meta.size)
    }

    /// The properties of two objects; `None` for an absent one.
    pub(super) async fn both_properties(&self, paths: &[String; 2]) -> Result<[Option<FileProperties>; 2]> {
        let [first, second] = paths.each_ref().map(|path| self.properties(path));
        let (first, second) = futures::future::try_join(first, second).await?;
        Ok([first, second])
    }

    async fn properties(&self, path: &str) -> Result<Option<FileProperties>> {
        match self.store.head(&key(path)?).await {
            Ok(meta) => Ok(Some(FileProperties {
                size: meta.size,
                modified_s: meta.last_modified.timestamp(),
                entity_tag: meta.e_tag.as_deref().and_then(plain_tag).map(Box::from),
            })),
            Err(error) => match store_error(path, &error) {
                Error::FileNotFound { .. } => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Reads a range of an object with the properties of the object. With `same_as` the object must still have that
    /// tag.
    pub(super) async fn read_range(
        &self,
        path: &str,
        range: std::ops::Range<u64>,
        same_as: Option<String>,
    ) -> Result<Piece> {
        // By RFC 9110 no weak tag ever matches; the caller compares the answers' tags.
        let if_match = same_as.filter(|tag| !tag.starts_with("W/"));
        let options = GetOptions { range: Some(GetRange::Bounded(range)), if_match, ..GetOptions::default() };
        let failed = |error: &object_store::Error| store_error(path, error);
        let answer = match self.store.get_opts(&key(path)?, options).await {
            Ok(answer) => answer,
            Err(error) if Answer::of(&error).is_some_and(|answer| answer.has_status("416")) => {
                return Ok(Piece::default());
            }
            Err(error) => return Err(failed(&error)),
        };
        let object_size = Some(answer.meta.size);
        let entity_tag = answer.meta.e_tag.clone().filter(|tag| plain_tag(tag).is_some());
        let modified_s = answer.meta.last_modified.timestamp();
        let bytes = answer.bytes().await.map_err(|error| failed(&error))?;
        Ok(Piece { bytes, object_size, entity_tag, modified_s })
    }

    async fn read_whole(&self, path: &str) -> Result<Bytes> {
        let failed = |error: &object_store::Error| store_error(path, error);
        let answer = self.store.get(&key(path)?).await.map_err(|error| failed(&error))?;
        check_whole_file_size(path, answer.meta.size)?;
        answer.bytes().await.map_err(|error| failed(&error))
    }
}

/// A range of an object.
#[derive(Default)]
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    /// `None` for an object that ends before the range.
    pub(super) object_size: Option<u64>,
    /// The entity tag of the object, in the form of the store.
    pub(super) entity_tag: Option<String>,
    /// The modification time of the object in seconds since the epoch, as HTTP has no fractions.
    pub(super) modified_s: i64,
}

#[cfg(test)]
impl Remote {
    /// Reads from a store of the process.
    pub(super) fn with_store(self, store: Arc<dyn ObjectStore>) -> Self {
        Self { store, ..self }
    }
}

/// Reads an object by one request, and returns the request's head too. `open` takes the endpoint.
#[cfg(test)]
pub(super) fn head_of_a_read(
    key: &str,
    open: impl FnOnce(&str) -> super::Storage,
) -> (Result<Bytes>, String) {
    use std::io::{Read, Write};

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let storage = open(&format!("http://{}", listener.local_addr().unwrap()));
    let server = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            connection.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: \"tag\"\r\n\
                      Last-Modified: Fri, 24 May 2013 00:00:00 GMT\r\n\r\nfile";
        connection.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(head).unwrap()
    });
    (storage.read(key), server.join().unwrap())
}

/// The limits of the requests to one endpoint.
pub(super) struct Connection {
    is_plain_http: bool,
    timeout: Duration,
    retry_budget: Duration,
}

impl Connection {
    pub(super) fn new(endpoint: &str, timeout: Duration, retry_budget: Duration) -> Self {
        Self { is_plain_http: endpoint.starts_with("http://"), timeout, retry_budget }
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.timeout.min(LONGEST_CONNECT)
    }

    pub(super) fn client(&self) -> ClientOptions {
        install_tls_provider();
        ClientOptions::new()
            .with_allow_http(self.is_plain_http)
            .with_connect_timeout(self.connect_timeout())
            .with_timeout(self.timeout)
    }

    pub(super) fn retries(&self) -> RetryConfig {
        RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(5),
                base: 2.0,
            },
            max_retries: 10,
            retry_timeout: self.retry_budget,
        }
    }
}

pub(super) fn invalid_options(error: &object_store::Error) -> Error {
    Error::InvalidArgument(format!("the storage's options cannot work: {}", answer::context(error)))
}

/// Sets the cryptography of TLS connections for this process: `reqwest` is built without one, and panics when a client
/// starts before this. Later calls change nothing.
pub(super) fn install_tls_provider() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
}

/// Converts the path of a file, or a root. Keys with empty and relative parts exist, but the client sends no such key.
fn key(path: &str) -> Result<Path> {
    let has_empty_start = path.starts_with('/');
    if !has_empty_start && let Ok(key) = Path::parse(path) {
        return Ok(key);
    }
    let root = if path.starts_with(&LOG_PART[1..]) {
        ""
    } else {
        path.split_once(LOG_PART).map_or(path, |(root, _)| root)
    };
    if has_empty_start || Path::parse(root).is_err() {
        return Err(Error::TableNotFound {
            detail: Some("its location has an empty or relative part, or a control character".into()),
        });
    }
    Err(Error::InvalidPath("has an empty or relative part, or a control character"))
}

/// The end of a root in the path of a log file.
const LOG_PART: &str = "/_delta_log/";

/// Starts of error codes with status 400 that concern credentials: of S3, of Azure, and of a bucket of Google whose requester pays.
const CREDENTIAL_CODES: [&str; 5] =
    ["ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "InvalidAuthenticationInfo", "UserProjectMissing"];

/// Error codes with status 400 for a key that no object can have: of S3, of Google, of `MinIO`, and of Azure.
const NAME_CODES: [&str; 5] =
    ["KeyTooLong", "InvalidURI", "XMinioInvalidObjectName", "InvalidUri", "InvalidResourceName"];

fn store_error(path: &str, error: &object_store::Error) -> Error {
    use object_store::Error as Store;
    let not_found = || Error::FileNotFound { file: log_path::file_name(path).to_owned() };
    // Most often the next version of a table, which has no detail.
    if matches!(error, Store::NotFound { .. }) {
        return not_found();
    }
    let answer = Answer::of(error);
    let has_status = |status: &str| answer.as_ref().is_some_and(|answer| answer.has_status(status));
    let code = answer.as_ref().and_then(Answer::code);
    let context = answer::context(error);
    let detail =
        answer.as_ref().map_or_else(|| context.clone(), |answer| format!("the store {answer} ({context})"));
    match error {
        Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => Error::StorageDenied { detail },
        // Errors of listings have no kind.
        _ if has_status("401") || has_status("403") => Error::StorageDenied { detail },
        _ if code.is_some_and(|code| CREDENTIAL_CODES.iter().any(|known| code.starts_with(known))) => {
            Error::StorageDenied { detail }
        }
        _ if has_status("404") => not_found(),
        _ if code.is_some_and(|code| NAME_CODES.iter().any(|known| code.starts_with(known))) => not_found(),
        _ => Error::StorageUnavailable { detail },
    }
}

/// Converts an error of a listing, where nothing but the bucket or the container can be absent.
fn listing_error(path: &str, error: &object_store::Error) -> Error {
    if directories::odd_key(error).is_some() {
        // No failure of the store, which would keep other tables from being read.
        return Error::CorruptLog {
            file: log_path::file_name(path).to_owned(),
            reason: "a name in this directory has an empty or relative part, or a control character".into(),
        };
    }
    match store_error(path, error) {
        Error::FileNotFound { .. } => {
            Error::TableNotFound { detail: Answer::of(error).map(|answer| format!("the store {answer}")) }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests;
