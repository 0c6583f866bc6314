//! One bucket or container of a store: the requests that all stores have in common.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use object_store::client::HttpError;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    BackoffConfig, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig,
};
use reqwest::header::HeaderMap;

use super::answer::{self, Answer};
use super::credentials::Credentials;
use super::direct::{Direct, Exchange};
use super::lines::LineLengths;
use super::properties::plain_tag;
use super::transport::{Connector, UNKNOWN_LENGTH};
use super::{
    Directories, FileProperties, LogFileEntry, MAX_WHOLE_FILE_BYTES, PendingReads, check_size, replaced,
    runtime,
};
use crate::error::{Error, Result};
use crate::log_memory::Admitted;
use crate::log_path::{self, log_file_path};

mod directories;
mod pages;

use pages::Pages;

/// Sorts after the characters of keys.
const LAST: char = '\u{10FFFF}';

/// Requests in flight for one batch of whole files: enough to hide a store's latency behind its throughput.
const READS_IN_FLIGHT: usize = 48;

const LONGEST_CONNECT: Duration = Duration::from_secs(3);

/// How long requests of a store may take.
#[derive(Debug, Clone, Copy)]
pub struct RequestTimes {
    /// One request; connections time out after at most three seconds.
    pub request: Duration,
    /// The retries of one request.
    pub retries: Duration,
    /// A whole listing.
    pub listing: Duration,
}

impl Default for RequestTimes {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(30),
            retries: Duration::from_secs(5),
            // The usual time limit of requests to this server, which a listing is part of.
            listing: Duration::from_secs(300),
        }
    }
}

pub(super) struct Remote {
    /// The name of the kind of store.
    kind: &'static str,
    store: Arc<dyn ObjectStore>,
    /// The same store, for listings that stop after some pages.
    pages: Arc<dyn PaginatedListStore>,
    access: Box<dyn Access>,
    /// The name of the bucket or container.
    bucket: String,
    /// What distinguishes buckets of one name. Empty for AWS.
    endpoint: String,
    /// Whether listings are ordered by name, so that they can stop after the log files.
    pub(super) ordered_listings: bool,
    /// Whether names were seen in another order, or to be missing in a listing that begins at a name.
    lists_whole: AtomicBool,
    /// The time that a whole listing may take.
    listing_time: Duration,
    /// Whether reads of listed objects were refused for their listed entity tags: objects have others, or the store
    /// compares none.
    refuses_tags: AtomicBool,
}

/// The credentials of requests, which are replaced while requests run.
pub(super) trait Access: Send + Sync {
    /// The requests that need no thread of the runtime.
    fn direct(&self) -> Option<&Direct> {
        None
    }

    /// Authorizes later requests with these credentials. A request that is repeated keeps its signature.
    fn replace(&self, credentials: &Credentials<'_>) -> Result<()>;
}

impl fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Storage::{}({:?})", self.kind, self.bucket)
    }
}

impl Remote {
    /// A store with ordered listings.
    pub(super) fn new(
        kind: &'static str,
        store: impl ObjectStore + PaginatedListStore,
        access: impl Access + 'static,
        bucket: &str,
        endpoint: String,
        times: RequestTimes,
    ) -> Self {
        let store = Arc::new(store);
        Self {
            kind,
            pages: Arc::clone(&store) as _,
            store,
            access: Box::new(access),
            bucket: bucket.to_owned(),
            endpoint,
            ordered_listings: true,
            lists_whole: AtomicBool::default(),
            listing_time: times.listing,
            refuses_tags: AtomicBool::default(),
        }
    }

    /// The kind, the endpoint and the bucket.
    pub(super) fn location(&self) -> [&str; 3] {
        [self.kind, &self.endpoint, &self.bucket]
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
        self.within_time(directory, self.log_files(directory, from_name))
    }

    pub(super) fn list_directories(&self, root: &str) -> Result<Directories> {
        let prefix = if root.is_empty() { None } else { Some(format!("{}/", key(root)?)) };
        self.within_time(root, directories::list(self, root, prefix))
    }

    fn within_time<T>(&self, directory: &str, listing: impl Future<Output = Result<T>>) -> Result<T> {
        let time = self.listing_time;
        runtime::block_on(async {
            runtime::timeout(time, listing).await.unwrap_or_else(|_| {
                let detail = format!("the listing of {directory} did not end within {} s", time.as_secs());
                Err(Error::StorageUnavailable { detail })
            })
        })?
    }

    async fn log_files(&self, directory: &str, from_name: &str) -> Result<Vec<LogFileEntry>> {
        // `start-after` excludes its own key; all but the last letter of a name sorts before the name.
        let before = from_name.char_indices().next_back().map_or("", |(last, _)| &from_name[..last]);
        let mut finds_nothing = false;
        if !before.is_empty() && self.lists_by_name() {
            match self.log_files_after(before, directory, from_name).await {
                // A store that orders encrypted names, such as Storj, lists others than those that follow.
                Ok(files) if self.lists_by_name() && !files.is_empty() => return Ok(files),
                // A store that cannot begin at a name finds nothing or refuses, as OneLake and gateways of MinIO did.
                Ok(_) => finds_nothing = true,
                // This may be the answer of something in between, once.
                Err(Error::StorageRefused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let files = self.log_files_after("", directory, from_name).await?;
        if finds_nothing && !files.is_empty() {
            self.lists_whole.store(true, Ordering::Relaxed);
        }
        Ok(files)
    }

    /// Returns whether listings may begin at a name, and end after the names of versions.
    fn lists_by_name(&self) -> bool {
        self.ordered_listings && !self.lists_whole.load(Ordering::Relaxed)
    }

    async fn log_files_after(
        &self,
        before: &str,
        directory: &str,
        from_name: &str,
    ) -> Result<Vec<LogFileEntry>> {
        let prefix = format!("{}/", key(directory)?);
        let options = PaginatedListOptions {
            offset: (!before.is_empty()).then(|| format!("{prefix}{before}")),
            ..PaginatedListOptions::default()
        };
        let prefix_length = prefix.len();
        let mut pages = Pages::new(&*self.pages, directory, Some(prefix), options, self.ordered_listings);
        let mut files = Vec::new();
        while let Some(page) = pages.next().await? {
            let objects = page.map_err(|error| pages.refusal(&error))?.objects;
            // The names of versions sort before `_last_checkpoint`, `_sidecars/..` and `_staged_commits/..`.
            let name_of = |meta: &ObjectMeta| {
                let name = meta.location.as_ref().get(prefix_length..).unwrap_or_default();
                (name.to_owned(), name.bytes().next().is_some_and(|first| first > b'9'))
            };
            let is_past_versions = objects.last().is_some_and(|last| name_of(last).1);
            files.extend(objects.into_iter().filter_map(|meta| {
                let (name, is_past_versions) = name_of(&meta);
                let is_wanted = !is_past_versions && !name.contains('/') && *name >= *from_name;
                is_wanted.then(|| log_file(name, &meta))
            }));
            if !pages.is_in_order() {
                self.lists_whole.store(true, Ordering::Relaxed);
            } else if is_past_versions && !files.is_empty() && self.lists_by_name() {
                // A store with another order of letters may list the other names first.
                break;
            }
        }
        Ok(files)
    }

    pub(super) fn read(&self, path: &str, max_bytes: u64) -> Result<Bytes> {
        runtime::block_on(self.read_whole(path, None, max_bytes))?
    }

    pub(super) fn read_log_files(&self, root: &str, files: &[&LogFileEntry]) -> Vec<Result<Bytes>> {
        let reads = files.iter().map(|file| self.read_log_file(root, file));
        let reads = futures::stream::iter(reads).buffered(READS_IN_FLIGHT).collect::<Vec<_>>();
        match runtime::block_on(reads) {
            Ok(results) => results,
            Err(error) => files.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    pub(super) fn start_log_reads(
        self: &Arc<Self>,
        root: &str,
        files: Vec<LogFileEntry>,
        admitted: Admitted,
    ) -> PendingReads {
        let (sender, results) = std::sync::mpsc::channel();
        let count = files.len();
        let (remote, root) = (Arc::clone(self), root.to_owned());
        let reads = async move {
            let reads = files.into_iter().map(|file| {
                let (remote, root) = (Arc::clone(&remote), root.clone());
                async move { remote.read_log_file(&root, &file).await }
            });
            let results = futures::stream::iter(reads).buffered(READS_IN_FLIGHT).collect::<Vec<_>>().await;
            // The receiver is gone: the stream was cancelled.
            drop(sender.send(results));
        };
        // If nothing can be started the sender is dropped, and the receiver reports it.
        drop(runtime::spawn(reads));
        PendingReads::remote(results, count, admitted)
    }

    /// The properties of two objects; `None` for an absent one.
    pub(super) async fn both_properties(&self, paths: &[String; 2]) -> Result<[Option<FileProperties>; 2]> {
        let [first, second] = paths.each_ref().map(|path| self.properties(path));
        let (first, second) = futures::future::try_join(first, second).await?;
        Ok([first, second])
    }

    async fn properties(&self, path: &str) -> Result<Option<FileProperties>> {
        match self.store.head(&key(path)?).await {
            Ok(meta) if meta.size == UNKNOWN_LENGTH => {
                Err(Error::StorageRefused { detail: "the store does not say the size of an object".into() })
            }
            Ok(meta) => Ok(Some(FileProperties {
                size: meta.size,
                modified_s: meta.last_modified.timestamp(),
                entity_tag: meta.e_tag.as_deref().and_then(plain_tag).map(Box::from),
                identity: 0,
            })),
            Err(error) => match store_error(path, &error) {
                Error::FileNotFound { .. } => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Reads a range of an object with the properties of the object, by which the caller knows whether it is the same
    /// object: some stores refuse the tag that they send, as `SeaweedFS` 3.97 does.
    pub(super) async fn read_range(&self, path: &str, range: std::ops::Range<u64>) -> Result<Piece> {
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        let answer = match self.store.get_opts(&key(path)?, options).await {
            Ok(answer) => answer,
            Err(error) if Answer::of(&error).and_then(|answer| answer.status()) == Some(416) => {
                return Ok(Piece::default());
            }
            Err(error) => return Err(store_error(path, &error)),
        };
        let head = Piece::of(&answer);
        let length = answer.range.end - answer.range.start;
        Ok(Piece { bytes: body(path, answer, length, length, None).await?, ..head })
    }

    async fn read_log_file(&self, root: &str, file: &LogFileEntry) -> Result<Bytes> {
        self.read_whole(&log_file_path(root, &file.name), Some(file), MAX_WHOLE_FILE_BYTES).await
    }

    /// Reads an object of at most `max_bytes`; with `listed`, only the listed one, whole.
    async fn read_whole(&self, path: &str, listed: Option<&LogFileEntry>, max_bytes: u64) -> Result<Bytes> {
        let failed = |error: &object_store::Error| store_error(path, error);
        let tag = listed.and_then(|file| file.entity_tag.as_ref());
        let is_sendable = |tag: &str| tag.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
        let tag = tag.filter(|tag| is_sendable(tag) && !self.refuses_tags.load(Ordering::Relaxed));
        let if_match = tag.map(|tag| format!("\"{tag}\""));
        let options = GetOptions { if_match, ..GetOptions::default() };
        let is_conditional = options.if_match.is_some();
        let answer = match self.store.get_opts(&key(path)?, options).await {
            // The object was replaced, or the store lists other tags than objects have, or refuses to compare them.
            Err(error) if is_conditional && may_be_for_its_tag(path, &error) => {
                let answer = self.store.get(&key(path)?).await.map_err(|error| failed(&error))?;
                if listed.is_some_and(|listed| Piece::of(&answer).is_of(listed)) {
                    self.refuses_tags.store(true, Ordering::Relaxed);
                }
                answer
            }
            answer => answer.map_err(|error| failed(&error))?,
        };
        let head = Piece::of(&answer);
        // Some stores do not say the length.
        let size = listed.map_or(answer.meta.size, |listed| listed.size);
        let is_of_size = [size, UNKNOWN_LENGTH].contains(&answer.meta.size);
        if listed.is_some_and(|listed| !is_of_size || !head.is_of(listed)) {
            return Err(replaced(path));
        }
        body(path, answer, size, max_bytes, Some(LineLengths::of(path))).await
    }
}

/// Collects the body of an answer, whole: of `size` bytes, or of at most `max_bytes` if that is unknown.
async fn body(
    path: &str,
    answer: GetResult,
    size: u64,
    max_bytes: u64,
    mut lines: Option<LineLengths<'_>>,
) -> Result<Bytes> {
    let least = if size == UNKNOWN_LENGTH { 0 } else { size };
    check_size(path, least, max_bytes)?;
    let (mut chunks, mut content) = (answer.into_stream(), BytesMut::with_capacity(least as usize));
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| cut_off(path, &error))?;
        // An answer in chunks may be longer than it says, and without end.
        let length = (content.len() + chunk.len()) as u64;
        if length > size {
            return Err(replaced(path));
        }
        check_size(path, length, max_bytes)?;
        if let Some(lines) = &mut lines {
            lines.take(&chunk)?;
        }
        content.extend_from_slice(&chunk);
    }
    if (content.len() as u64) < least { Err(replaced(path)) } else { Ok(content.freeze()) }
}

fn log_file(name: String, meta: &ObjectMeta) -> LogFileEntry {
    LogFileEntry {
        name,
        size: meta.size,
        modified_ms: meta.last_modified.timestamp_millis(),
        entity_tag: meta.e_tag.as_deref().and_then(plain_tag).map(Box::from),
        identity: 0,
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

impl Piece {
    /// Returns the properties of an answer's object.
    fn of(answer: &GetResult) -> Self {
        Self {
            bytes: Bytes::new(),
            object_size: Some(answer.meta.size),
            entity_tag: answer.meta.e_tag.clone().filter(|tag| plain_tag(tag).is_some()),
            modified_s: answer.meta.last_modified.timestamp(),
        }
    }

    /// Returns whether this is of the listed object, given equal sizes. Some stores and proxies send another tag than
    /// they list, so a different tag alone does not mean that the object was replaced.
    pub(super) fn is_of(&self, listed: &LogFileEntry) -> bool {
        let listed_s = listed.modified_ms.div_euclid(1000);
        if listed.is_staged() {
            return true;
        }
        match (&listed.entity_tag, self.entity_tag.as_deref().and_then(plain_tag)) {
            (Some(tag), Some(found)) => **tag == *found || listed_s == self.modified_s,
            // Without a time in the answer, nothing but the size is known. A store may round the time.
            _ => self.modified_s == 0 || listed_s.abs_diff(self.modified_s) <= 1,
        }
    }
}

#[cfg(test)]
impl Remote {
    /// Reads from a store of the process.
    pub(super) fn with_store(self, store: Arc<dyn ObjectStore>) -> Self {
        Self { store, ..self }
    }
}

/// The limits of the requests to one endpoint.
pub(super) struct Connection {
    is_plain_http: bool,
    times: RequestTimes,
}

impl Connection {
    pub(super) fn new(endpoint: &str, times: RequestTimes) -> Self {
        Self { is_plain_http: endpoint.starts_with("http://"), times }
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.times.request.min(LONGEST_CONNECT)
    }

    /// Returns what connects the client of a store, which sends `headers` with each request.
    pub(super) fn connector(&self, headers: HeaderMap) -> object_store::Result<Connector> {
        install_tls_provider();
        let client = reqwest::Client::builder()
            .default_headers(headers)
            .connect_timeout(self.connect_timeout())
            .timeout(self.times.request)
            .https_only(!self.is_plain_http);
        Connector::new(client)
    }

    pub(super) fn retries(&self) -> RetryConfig {
        RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(5),
                base: 2.0,
            },
            max_retries: 10,
            retry_timeout: self.times.retries,
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

/// Error codes with status 404 for an absent bucket or container: of S3 and Google, and of Azure.
const ABSENT_CODES: [&str; 5] =
    ["NoSuchBucket", "NoSuchAccessPoint", "ContainerNotFound", "FilesystemNotFound", "ResourceNotFound"];

/// The code with status 403 for an archived object.
const ARCHIVED_CODE: &str = "InvalidObjectState";

fn store_error(path: &str, error: &object_store::Error) -> Error {
    use object_store::Error as Store;
    let not_found = || Error::FileNotFound { file: log_path::file_name(path).to_owned() };
    match error {
        // Most often the next version of a table, which has no detail.
        Store::NotFound { .. } => return not_found(),
        Store::Precondition { .. } => return replaced(path),
        _ => {}
    }
    let answer = Answer::of(error);
    let code = answer.as_ref().and_then(Answer::code);
    let context = answer::context(error);
    let detail = match (&answer, answer::connection_problem(error)) {
        (Some(answer), _) => format!("the store {answer} ({context})"),
        (None, Some(problem)) => format!("{problem} ({context})"),
        (None, None) => context,
    };
    let begins_as =
        |known: &[&str]| code.is_some_and(|code| known.iter().any(|known| code.starts_with(known)));
    if code == Some(ARCHIVED_CODE) {
        return Error::StorageRefused { detail };
    }
    if matches!(error, Store::PermissionDenied { .. } | Store::Unauthenticated { .. })
        || begins_as(&CREDENTIAL_CODES)
    {
        return Error::StorageDenied { detail };
    }
    // Errors of listings have no kind.
    match answer.as_ref().map(Answer::status) {
        Some(Some(401 | 403)) => Error::StorageDenied { detail },
        Some(Some(404)) => not_found(),
        Some(Some(412)) => replaced(path),
        _ if begins_as(&NAME_CODES) => not_found(),
        Some(Some(408 | 425 | 429)) => Error::StorageUnavailable { detail },
        // The store works, and answers the same to a repeated request.
        Some(Some(400..=499 | 501)) => Error::StorageRefused { detail },
        None if !is_of_connection(error) => Error::StorageRefused { detail },
        _ => Error::StorageUnavailable { detail },
    }
}

/// Returns whether a read with a listed tag may succeed without it.
fn may_be_for_its_tag(path: &str, error: &object_store::Error) -> bool {
    matches!(store_error(path, error), Error::FileReplaced { .. } | Error::StorageRefused { .. })
}

/// Converts an error of a body whose head was read: its connection was cut, and the store could not continue.
fn cut_off(path: &str, error: &object_store::Error) -> Error {
    match store_error(path, error) {
        Error::StorageRefused { detail } => Error::StorageUnavailable { detail },
        error => error,
    }
}

/// Returns whether an error is one of a connection, and not of an answer that the client cannot use.
fn is_of_connection(error: &object_store::Error) -> bool {
    answer::causes(error).any(|error| error.is::<HttpError>() || error.is::<std::io::Error>())
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
    match (store_error(path, error), Answer::of(error)) {
        // Of a proxy that has no route, as while a store starts: no table is gone.
        (Error::FileNotFound { .. }, Some(answer))
            if !answer.code().is_some_and(|code| ABSENT_CODES.contains(&code)) =>
        {
            let detail =
                format!("to a listing, the store {answer}, which does not say that a bucket is absent");
            Error::StorageUnavailable { detail }
        }
        (Error::FileNotFound { .. }, answer) => {
            Error::TableNotFound { detail: answer.map(|answer| format!("the store {answer}")) }
        }
        (error, _) => error,
    }
}

#[cfg(test)]
pub(super) mod tests;
