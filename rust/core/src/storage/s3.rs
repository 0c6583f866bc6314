//! One S3-compatible bucket.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use object_store::aws::{AmazonS3, AmazonS3Builder, AwsCredential, AwsCredentialProvider};
use object_store::{Certificate, ClientOptions, CredentialProvider};
use reqwest::header::HeaderMap;

use super::credentials::{Credentials, Replaceable, S3Credentials};
use super::direct::Direct;
use super::remote::{Access, Connection, Remote, RequestTimes, invalid_options};
use super::transport::authorities;
use crate::error::{Error, Result};
use crate::sign;

/// The address and the credentials of a bucket.
#[derive(Debug, Clone, Default)]
pub struct S3Options {
    /// The bucket's name.
    pub bucket: String,
    /// Its region.
    pub region: String,
    /// The URL of a store that is not AWS, such as `http://127.0.0.1:9000`.
    pub endpoint: Option<String>,
    /// Whether the bucket is a part of the path; otherwise it is a part of the host, if this can contain its name.
    pub path_style: bool,
    /// Whether requests accept that their sender pays for them.
    pub requester_pays: bool,
    /// `None` uses the default chain of the environment (variables, web identity, instance role).
    pub credentials: Option<S3Credentials>,
    /// How long its requests may take.
    pub times: RequestTimes,
}

impl S3Options {
    /// Options for AWS with the default credential chain.
    #[must_use]
    pub fn new(bucket: impl Into<String>, region: impl Into<String>) -> Self {
        Self { bucket: bucket.into(), region: region.into(), ..Self::default() }
    }
}

/// The credentials of a bucket, and the requests without the runtime that they sign.
struct S3Access {
    keys: Arc<Replaceable<AwsCredential>>,
    /// Sends requests without the runtime. `None` if they need more than an address and keys.
    direct: Option<Direct>,
    /// What `direct` signs requests by, without keys.
    address: sign::S3Options,
}

impl Access for S3Access {
    fn direct(&self) -> Option<&Direct> {
        self.direct.as_ref()
    }

    fn replace(&self, credentials: &Credentials<'_>) -> Result<()> {
        let Credentials::AccessKeys(keys) = credentials else {
            return Err(credentials.of_another_store("S3"));
        };
        self.keys.set(credential(keys));
        self.sign_direct(keys);
        Ok(())
    }
}

impl S3Access {
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
}

/// Opens a bucket. Sends no request.
pub(super) fn open(options: &S3Options) -> Result<Remote> {
    if options.bucket.is_empty() {
        return Err(Error::InvalidArgument("the bucket's name is empty".into()));
    }
    let options = &addressed(options);
    let endpoint = options.endpoint.clone().unwrap_or_default();
    let connection = Connection::new(&endpoint, options.times);
    let (store, keys) = build(options, &connection).map_err(|error| invalid_options(&error))?;
    let direct = is_plain(options)
        .then(|| Direct::new(options.times.request, connection.connect_timeout(), options.times.retries));
    let access = S3Access {
        keys,
        direct,
        address: sign::S3Options {
            endpoint: options.endpoint.clone(),
            path_style: options.path_style,
            ..sign::S3Options::new(&options.bucket, &options.region, "", "")
        },
    };
    if let Some(credentials) = &options.credentials {
        access.sign_direct(credentials);
    }
    let mut remote = Remote::new("s3", store, access, &options.bucket, endpoint, options.times);
    remote.ordered_listings = !is_directory_bucket(options);
    Ok(remote)
}

/// Returns whether it is a bucket of S3 Express, which needs a session and lists in no order.
fn is_directory_bucket(options: &S3Options) -> bool {
    options.bucket.ends_with("--x-s3")
}

/// Returns the options with the bucket in the path if the host cannot contain its name, as in signed URLs.
fn addressed(options: &S3Options) -> S3Options {
    let in_path = options.path_style || sign::is_in_path(&options.bucket, options.endpoint.as_deref());
    S3Options { path_style: in_path, ..options.clone() }
}

/// Returns the client and its credentials.
fn build(
    options: &S3Options,
    connection: &Connection,
) -> object_store::Result<(AmazonS3, Arc<Replaceable<AwsCredential>>)> {
    let connector = connection.connector(HeaderMap::new())?;
    let keys = Arc::new(match &options.credentials {
        Some(keys) => Replaceable::new(Some(credential(keys)), None),
        None => Replaceable::new(None, Some(Arc::new(Environment::of(options)) as _)),
    });
    let mut builder = configured(AmazonS3Builder::new(), options, connection)
        .with_http_connector(connector)
        .with_request_payer(options.requester_pays);
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(service_endpoint(options, endpoint)?);
    }
    Ok((builder.with_credentials(Arc::clone(&keys) as _).build()?, keys))
}

fn configured(builder: AmazonS3Builder, options: &S3Options, connection: &Connection) -> AmazonS3Builder {
    builder
        .with_bucket_name(&options.bucket)
        .with_region(&options.region)
        .with_virtual_hosted_style_request(!options.path_style)
        .with_retry(connection.retries())
}

/// The credentials of the environment. Nothing of it is read before a request needs them: settings in it that the client
/// does not accept must not keep a bucket with keys of its own from being opened.
#[derive(Debug)]
struct Environment {
    options: S3Options,
    /// Once it could be made: a file that is missing at the first request may be there at the next one.
    chain: OnceLock<AwsCredentialProvider>,
}

impl Environment {
    fn of(options: &S3Options) -> Self {
        Self { options: options.clone(), chain: OnceLock::new() }
    }

    /// Takes the credentials alone: URLs are signed without the endpoint and the other settings of the environment.
    fn chain(&self) -> object_store::Result<AwsCredentialProvider> {
        let connection = Connection::new("", self.options.times);
        let client = ClientOptions::new()
            .with_timeout(self.options.times.request)
            .with_connect_timeout(connection.connect_timeout());
        let authorities = Certificate::from_pem_bundle(&authorities()?)?.into_iter();
        let client = authorities.fold(client, ClientOptions::with_root_certificate);
        let builder = configured(AmazonS3Builder::from_env(), &self.options, &connection);
        Ok(Arc::clone(builder.with_client_options(client).build()?.credentials()))
    }
}

#[async_trait]
impl CredentialProvider for Environment {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let chain = if let Some(chain) = self.chain.get() {
            chain
        } else {
            let made = self.chain().map_err(|error| object_store::Error::Unauthenticated {
                path: String::new(),
                source: Box::new(error),
            })?;
            self.chain.get_or_init(|| made)
        };
        chain.get_credential().await
    }
}

fn credential(keys: &S3Credentials) -> AwsCredential {
    AwsCredential {
        key_id: keys.access_key_id.clone(),
        secret_key: keys.secret_access_key.clone(),
        token: keys.session_token.clone(),
    }
}

/// Variables of the environment that set a proxy.
const PROXIES: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// Returns whether requests need no more than the address and the credentials.
fn is_plain(options: &S3Options) -> bool {
    !is_directory_bucket(options)
        && !options.requester_pays
        && PROXIES.iter().all(|name| std::env::var_os(name).is_none_or(|value| value.is_empty()))
}

/// `object_store` expects the bucket in the endpoint of a virtual-hosted bucket, unlike our configuration.
fn service_endpoint(options: &S3Options, endpoint: &str) -> object_store::Result<String> {
    let invalid = |reason: String| object_store::Error::Generic { store: "S3", source: reason.into() };
    let url =
        url::Url::parse(endpoint).map_err(|error| invalid(format!("the endpoint is no URL: {error}")))?;
    let host = url.host_str().ok_or_else(|| invalid("the endpoint has no host".into()))?;
    let endpoint = endpoint.trim_end_matches('/');
    if options.path_style || sign::begins_with_bucket(host, &options.bucket) {
        return Ok(endpoint.to_owned());
    }
    Ok(endpoint.replacen("://", &format!("://{}.", options.bucket), 1))
}

#[cfg(test)]
mod tests {
    use object_store::signer::Signer;
    use reqwest::Method;

    use super::*;
    use crate::storage::remote::tests::head_of_a_read;
    use crate::storage::{Storage, runtime};

    fn options(endpoint: &str, requester_pays: bool) -> S3Options {
        S3Options {
            endpoint: Some(endpoint.to_owned()),
            path_style: true,
            requester_pays,
            credentials: Some(S3Credentials {
                access_key_id: "id".into(),
                secret_access_key: "secret".into(),
                session_token: None,
            }),
            ..S3Options::new("bucket", "us-east-1")
        }
    }

    #[test]
    fn requests_name_a_bucket_where_its_urls_do() {
        for (bucket, endpoint) in [
            ("plain-1", None),
            ("dots.in.name", None),
            ("Upper_Case", None),
            ("dots.in.name", Some("https://store.example.com")),
            ("dots.in.name", Some("http://store.example.com:9000")),
            ("plain-1", Some("https://store.example.com")),
            // The address of a bucket, as consoles of stores show it.
            ("plain-1", Some("https://plain-1.store.example.com:8443/base")),
            ("plain-1", Some("https://plain-10.store.example.com")),
            ("plain-1", Some("http://127.0.0.1:9000")),
        ] {
            let signer = sign::Signer::s3(sign::S3Options {
                endpoint: endpoint.map(str::to_owned),
                ..sign::S3Options::new(bucket, "us-east-1", "id", "secret")
            })
            .unwrap();
            let url = signer.sign("key", 0, 60).unwrap().0;
            let options = addressed(&S3Options {
                bucket: bucket.into(),
                endpoint: endpoint.map(str::to_owned),
                path_style: false,
                ..options("", false)
            });
            let connection = Connection::new(endpoint.unwrap_or_default(), options.times);
            let (store, ..) = build(&options, &connection).unwrap();
            let key = "key".into();
            let read = store.signed_url(Method::GET, &key, options.times.request);
            let mut read = runtime::block_on(read).unwrap().unwrap();
            read.set_query(None);
            assert_eq!(url.split('?').next(), Some(read.as_str()), "{bucket} at {endpoint:?}");
        }
    }

    #[test]
    fn a_requester_that_pays_says_so_in_each_request_and_sends_none_without_the_runtime() {
        for requester_pays in [false, true] {
            let open = |endpoint: &str| Storage::s3(&options(endpoint, requester_pays)).unwrap();
            let (content, head) = head_of_a_read("key", open);
            assert_eq!(content.unwrap(), "file");
            let head = head.to_ascii_lowercase();
            assert_eq!(head.contains("\r\nx-amz-request-payer: requester\r\n"), requester_pays, "{head}");
            assert_eq!(head.contains(";x-amz-request-payer"), requester_pays, "{head}");
        }
        let remote = super::open(&options("http://127.0.0.1:1", true)).unwrap();
        assert!(remote.send_properties(&["a".into(), "b".into()]).is_none());
    }
}
