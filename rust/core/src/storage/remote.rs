//! One S3-compatible bucket.

use std::fmt;
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig,
};

use super::credentials::ReplaceableCredentials;
use super::direct::{Direct, Exchange};
use super::properties::plain_tag;
use super::{
    Directories, FileProperties, LogFileEntry, MAX_DIRECTORY_ENTRIES, PendingReads, check_whole_file_size,
    runtime,
};
use crate::error::{Error, Result};
use crate::{log_path, sign};

/// Requests in flight for one batch of whole files: enough to hide a store's latency behind its throughput.
const READS_IN_FLIGHT: usize = 48;

/// Connection timeout.
const LONGEST_CONNECT: Duration = Duration::from_secs(3);

/// The address and the credentials of a bucket.
#[derive(Debug, Clone)]
pub struct S3Options {
    /// The bucket's name.
    pub bucket: String,
    /// Its region.
    pub region: String,
    /// The URL of a store that is not AWS, such as `http://127.0.0.1:9000`.
    pub endpoint: Option<String>,
    /// Whether the bucket is a part of the path; otherwise it is a part of the host.
    pub path_style: bool,
    /// `None` uses the default chain of the environment (variables, web identity, instance role).
    pub credentials: Option<S3Credentials>,
    /// Timeout of one request; connections time out after at most three seconds.
    pub timeout: Duration,
    /// Total time of retries of one request.
    pub retry_budget: Duration,
}

impl S3Options {
    /// Options for AWS with the default credential chain, a timeout of 30 seconds and 5 seconds of retries.
    #[must_use]
    pub fn new(bucket: impl Into<String>, region: impl Into<String>) -> Self {
        Self {
            bucket: bucket.into(),
            region: region.into(),
            endpoint: None,
            path_style: false,
            credentials: None,
            timeout: Duration::from_secs(30),
            retry_budget: Duration::from_secs(5),
        }
    }
}

/// A key pair. `Debug` shows no secret.
#[derive(Clone)]
pub struct S3Credentials {
    /// The public half.
    pub access_key_id: String,
    /// The secret half.
    pub secret_access_key: String,
    /// The session token of temporary credentials.
    pub session_token: Option<String>,
}

impl fmt::Debug for S3Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("S3Credentials")
            .field("access_key_id", &self.access_key_id)
            .field("secret_access_key", &"***")
            .field("session_token", &self.session_token.as_ref().map(|_| "***"))
            .finish()
    }
}

pub(super) struct Remote {
    store: Arc<dyn ObjectStore>,
    /// The same store, for listings that stop after some pages.
    pages: Arc<dyn PaginatedListStore>,
    keys: Arc<ReplaceableCredentials>,
    /// Sends requests without the runtime. `None` if they need more than an address and keys.
    direct: Option<Direct>,
    /// What `direct` signs requests by, without keys.
    address: sign::S3Options,
    bucket: String,
    /// Empty for AWS.
    endpoint: String,
    /// Whether listings are ordered by name, so that they can stop after the log files.
    ordered_listings: bool,
}

impl fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Storage::s3({:?})", self.bucket)
    }
}

impl Remote {
    pub(super) fn s3(options: &S3Options) -> Result<Self> {
        if options.bucket.is_empty() {
            return Err(Error::InvalidArgument("the bucket's name is empty".into()));
        }
        let (store, keys, is_plain) = build_s3(options)
            .map_err(|error| Error::InvalidArgument(format!("the storage's options cannot work: {error}")))?;
        // Directory buckets (S3 Express) list in no order.
        let endpoint = options.endpoint.clone().unwrap_or_default();
        let ordered_listings = !options.bucket.ends_with("--x-s3");
        let store = Arc::new(store);
        let direct =
            is_plain.then(|| Direct::new(options.timeout, connect_timeout(options), options.retry_budget));
        let remote = Self {
            store: Arc::clone(&store) as _,
            pages: store,
            keys,
            direct,
            address: sign::S3Options {
                endpoint: options.endpoint.clone(),
                path_style: options.path_style,
                ..sign::S3Options::new(&options.bucket, &options.region, "", "")
            },
            bucket: options.bucket.clone(),
            endpoint,
            ordered_listings,
        };
        if let Some(credentials) = &options.credentials {
            remote.sign_direct(credentials);
        }
        Ok(remote)
    }

    pub(super) fn bucket(&self) -> &str {
        &self.bucket
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(super) fn replace_credentials(&self, credentials: &S3Credentials) {
        self.keys.replace(credentials);
        self.sign_direct(credentials);
    }

    fn sign_direct(&self, credentials: &S3Credentials) {
        if let Some(direct) = &self.direct {
            direct.sign_by(sign::S3Options {
                access_key_id: credentials.access_key_id.clone(),
                secret_access_key: credentials.secret_access_key.clone(),
                session_token: credentials.session_token.clone(),
                ..self.address.clone()
            });
        }
    }

    /// Sends the requests of [`Self::both_properties`] by the calling thread. `None` if it cannot send them at once.
    pub(super) fn send_properties(&self, paths: &[String; 2]) -> Option<Exchange> {
        let direct = self.direct.as_ref()?;
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
        let entries = match runtime::block_on(entries)?.map_err(|error| store_error(directory, &error)) {
            // A missing bucket has no table either.
            Err(Error::FileNotFound { .. }) => Vec::new(),
            entries => entries?,
        };
        Ok(entries.into_iter().filter(|entry| entry.name.as_str() >= from_name).collect())
    }

    pub(super) fn list_directories(&self, root: &str) -> Result<Directories> {
        let prefix = if root.is_empty() { None } else { Some(format!("{}/", key(root)?)) };
        let listing = async {
            let mut found = Directories { names: Vec::new(), is_truncated: false };
            let mut options =
                PaginatedListOptions { delimiter: Some("/".into()), ..PaginatedListOptions::default() };
            let mut entries = 0;
            loop {
                let page = self.pages.list_paginated(prefix.as_deref(), options.clone()).await?;
                entries += page.result.objects.len() + page.result.common_prefixes.len();
                let names = page.result.common_prefixes.iter().filter_map(Path::filename);
                found.names.extend(names.map(str::to_owned));
                found.is_truncated = page.page_token.is_some();
                if !found.is_truncated || entries >= MAX_DIRECTORY_ENTRIES {
                    return Ok(found);
                }
                options.page_token = page.page_token;
            }
        };
        runtime::block_on(listing)?.map_err(|error: object_store::Error| store_error(root, &error))
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

    /// Reads a range of an object of `size` bytes with the properties of the object. With `same_as` the object must
    /// still have that tag.
    pub(super) async fn read_range(
        &self,
        path: &str,
        range: std::ops::Range<u64>,
        size: u64,
        same_as: Option<String>,
    ) -> Result<Piece> {
        // By RFC 9110 no weak tag ever matches; the caller compares the answers' tags.
        let if_match = same_as.filter(|tag| !tag.starts_with("W/"));
        let options = GetOptions { range: Some(GetRange::Bounded(range)), if_match, ..GetOptions::default() };
        let failed = |error: &object_store::Error| store_error(path, error);
        let answer = self.store.get_opts(&key(path)?, options).await.map_err(|error| failed(&error))?;
        if answer.meta.size != size {
            return Err(Error::StorageUnavailable {
                detail: format!("{path} was replaced while it was read"),
            });
        }
        let entity_tag = answer.meta.e_tag.clone().filter(|tag| plain_tag(tag).is_some());
        let modified_s = answer.meta.last_modified.timestamp();
        let bytes = answer.bytes().await.map_err(|error| failed(&error))?;
        Ok(Piece { bytes, entity_tag, modified_s })
    }

    async fn read_whole(&self, path: &str) -> Result<Bytes> {
        let failed = |error: &object_store::Error| store_error(path, error);
        let answer = self.store.get(&key(path)?).await.map_err(|error| failed(&error))?;
        check_whole_file_size(path, answer.meta.size)?;
        answer.bytes().await.map_err(|error| failed(&error))
    }
}

/// A range of an object.
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    /// The entity tag of the object, in the form of the store.
    pub(super) entity_tag: Option<String>,
    /// The modification time of the object in seconds since the epoch, as HTTP has no fractions.
    pub(super) modified_s: i64,
}

#[cfg(test)]
impl Remote {
    /// Reads from a store of the process.
    pub(super) fn with_store(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, ..Self::s3(&S3Options::new("bucket", "us-east-1")).unwrap() }
    }
}

/// Returns the client, its credentials, and whether requests need no more than the address and these credentials.
fn build_s3(options: &S3Options) -> object_store::Result<(AmazonS3, Arc<ReplaceableCredentials>, bool)> {
    install_tls_provider();
    let is_plain_http = options.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    // With given keys the environment is ignored: its other settings do not belong to them.
    let mut builder = match &options.credentials {
        None => AmazonS3Builder::from_env(),
        Some(_) => AmazonS3Builder::new(),
    };
    let is_plain = is_plain(options, &builder);
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(service_endpoint(options, endpoint)?);
    }
    builder = builder
        .with_bucket_name(&options.bucket)
        .with_region(&options.region)
        .with_virtual_hosted_style_request(!options.path_style)
        .with_client_options(
            ClientOptions::new()
                .with_allow_http(is_plain_http)
                .with_connect_timeout(connect_timeout(options))
                .with_timeout(options.timeout),
        )
        .with_retry(RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(5),
                base: 2.0,
            },
            max_retries: 10,
            retry_timeout: options.retry_budget,
        });
    let chain = Arc::clone(builder.clone().build()?.credentials());
    let keys = Arc::new(ReplaceableCredentials::new(options.credentials.as_ref(), chain));
    Ok((builder.with_credentials(Arc::clone(&keys) as _).build()?, keys, is_plain))
}

fn connect_timeout(options: &S3Options) -> Duration {
    options.timeout.min(LONGEST_CONNECT)
}

/// Variables of the environment that set a proxy.
const PROXIES: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// Returns whether `configured`, the settings of the environment, add nothing to a request.
fn is_plain(options: &S3Options, configured: &AmazonS3Builder) -> bool {
    use object_store::ClientConfigKey as Client;
    use object_store::aws::AmazonS3ConfigKey as Key;
    // Directory buckets (S3 Express) need a session.
    !options.bucket.ends_with("--x-s3")
        && PROXIES.iter().all(|name| std::env::var_os(name).is_none_or(|value| value.is_empty()))
        && [
            Key::Endpoint,
            Key::S3Express,
            Key::SkipSignature,
            Key::UnsignedPayload,
            Key::RequestPayer,
            Key::Client(Client::ProxyUrl),
            Key::Client(Client::AllowInvalidCertificates),
        ]
        .iter()
        .all(|key| configured.get_config_value(key).is_none_or(|value| value.is_empty() || value == "false"))
}

/// Sets the cryptography of TLS connections for this process: `reqwest` is built without one, and panics when a client
/// starts before this. Later calls change nothing.
fn install_tls_provider() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
}

/// `object_store` expects the bucket in the endpoint of a virtual-hosted bucket, unlike our configuration.
fn service_endpoint(options: &S3Options, endpoint: &str) -> object_store::Result<String> {
    let invalid = |reason: String| object_store::Error::Generic { store: "S3", source: reason.into() };
    let url =
        url::Url::parse(endpoint).map_err(|error| invalid(format!("the endpoint is no URL: {error}")))?;
    let host = url.host_str().ok_or_else(|| invalid("the endpoint has no host".into()))?;
    let endpoint = endpoint.trim_end_matches('/');
    if options.path_style || host.starts_with(&format!("{}.", options.bucket)) {
        return Ok(endpoint.to_owned());
    }
    Ok(endpoint.replacen("://", &format!("://{}.", options.bucket), 1))
}

fn key(path: &str) -> Result<Path> {
    Path::parse(path)
        .map_err(|_| Error::InvalidArgument("a table's root has an empty or relative part".into()))
}

/// Error codes of S3 with status 400 that concern credentials.
const CREDENTIAL_CODES: [&str; 3] = ["ExpiredToken", "InvalidToken", "InvalidAccessKeyId"];
/// Maximum length of the store's message, which may repeat the whole request.
const MAX_DETAIL_CHARS: usize = 500;

fn store_error(path: &str, error: &object_store::Error) -> Error {
    use object_store::Error as Store;
    let words = error.to_string();
    let detail = words.chars().take(MAX_DETAIL_CHARS).collect();
    // Listings contain the status only in their message.
    let has_status = |status: &str| words.contains(&format!("status code: {status}"));
    match error {
        Store::NotFound { .. } => Error::FileNotFound { file: log_path::file_name(path).to_owned() },
        Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => Error::StorageDenied { detail },
        _ if has_status("401") || has_status("403") => Error::StorageDenied { detail },
        _ if CREDENTIAL_CODES.iter().any(|code| words.contains(code)) => Error::StorageDenied { detail },
        _ if has_status("404") => Error::FileNotFound { file: log_path::file_name(path).to_owned() },
        _ => Error::StorageUnavailable { detail },
    }
}
