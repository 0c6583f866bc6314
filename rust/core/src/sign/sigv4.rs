//! Presigned GET URLs of S3 and compatible stores: AWS Signature Version 4 in the query, with `UNSIGNED-PAYLOAD` and
//! `host` as the only signed header.
//!
//! Takes a bucket, an endpoint and credentials. Returns a template that signs any key for one time and lifetime. See
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html>.

use std::fmt;
use std::net::IpAddr;
use std::sync::Mutex;

use super::template::{DigestText, NO_SIGNATURE, PathText, UrlTemplate};
use crate::civil_time;
use crate::hash::{Engine, HmacKey, SHA256_INITIAL};
use crate::lock::lock;
use crate::percent;
use crate::{Error, Result};

/// Maximum lifetime that S3 accepts.
const LONGEST_LIFETIME_SECONDS: i64 = 7 * 24 * 3600;

/// Time between the expiration of a URL and that of its credentials: clocks differ, and a read takes time.
const CREDENTIALS_SKEW_MS: i64 = 60_000;

/// The bucket and the credentials of a signer. `Debug` shows no secret.
#[derive(Clone)]
pub struct S3Options {
    /// The bucket's name.
    pub bucket: String,
    /// The region in the credential scope.
    pub region: String,
    /// `http(s)://host[:port][/path]` of the URLs; `None` for AWS itself.
    pub endpoint: Option<String>,
    /// Puts the bucket into the path instead of the host. Also applies if the host cannot contain the bucket's name.
    pub path_style: bool,
    /// The credentials' id.
    pub access_key_id: String,
    /// The credentials' secret.
    pub secret_access_key: String,
    /// The token of temporary credentials.
    pub session_token: Option<String>,
    /// When temporary credentials expire, milliseconds since the epoch.
    pub credentials_expire_ms: Option<i64>,
    /// Disables hashing in wide registers.
    pub portable: bool,
}

impl S3Options {
    /// Options for a bucket of AWS with permanent keys.
    #[must_use]
    pub fn new(bucket: &str, region: &str, access_key_id: &str, secret_access_key: &str) -> Self {
        Self {
            bucket: bucket.to_owned(),
            region: region.to_owned(),
            endpoint: None,
            path_style: false,
            access_key_id: access_key_id.to_owned(),
            secret_access_key: secret_access_key.to_owned(),
            session_token: None,
            credentials_expire_ms: None,
            portable: false,
        }
    }
}

impl fmt::Debug for S3Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Options")
            .field("bucket", &self.bucket)
            .field("region", &self.region)
            .field("endpoint", &self.endpoint)
            .field("path_style", &self.path_style)
            .field("access_key_id", &"***")
            .field("secret_access_key", &"***")
            .field("session_token", &self.session_token.as_ref().map(|_| "***"))
            .field("credentials_expire_ms", &self.credentials_expire_ms)
            .field("portable", &self.portable)
            .finish()
    }
}

/// Signs for one bucket.
pub(super) struct S3Signer {
    options: S3Options,
    address: Address,
    /// The signing key of the last day. Deriving it costs more than a URL.
    signing_key: Mutex<Option<(String, HmacKey)>>,
}

/// The address of a bucket.
struct Address {
    /// `https://host`
    origin: String,
    /// The host header: no port where it is the scheme's own.
    host: String,
    /// The encoded path before a key, ends in `/`.
    path: String,
}

impl S3Signer {
    pub(super) fn new(options: S3Options) -> Result<Self> {
        let address = Address::new(&options)?;
        Ok(Self { options, address, signing_key: Mutex::new(None) })
    }

    pub(super) fn options(&self) -> &S3Options {
        &self.options
    }

    /// Signs keys below `prefix`.
    pub(super) fn template(&self, prefix: &str, now_ms: i64, lifetime_seconds: i64) -> Result<UrlTemplate> {
        let now_seconds = now_ms.div_euclid(1000);
        let expires_in_seconds = self.lifetime_seconds(now_seconds, lifetime_seconds)?;
        let time = utc_basic(now_seconds)?;
        let date = &time[..8];
        let scope = format!("{date}/{}/s3/aws4_request", self.options.region);
        let key = self.signing_key(date);

        let query = self.query(&scope, &time, expires_in_seconds);
        let mut path = self.address.path.clone().into_bytes();
        percent::append_key(prefix.as_bytes(), &mut path);
        let canonical_head = [b"GET\n", path.as_slice()].concat();
        let canonical_tail = format!("\n{query}\nhost:{}\n\nhost\nUNSIGNED-PAYLOAD", self.address.host);
        Ok(UrlTemplate {
            head: [self.address.origin.as_bytes(), &path].concat(),
            tail: format!("?{query}&X-Amz-Signature={NO_SIGNATURE}").into_bytes(),
            text: PathText::new(SHA256_INITIAL, 0, &canonical_head, canonical_tail.as_bytes()),
            string_to_sign: Some(DigestText::new(
                &key,
                format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n").as_bytes(),
            )),
            outer: key.outer(),
            expires_ms: (now_seconds + expires_in_seconds) * 1000,
            engine: Engine::detect(self.options.portable),
        })
    }

    /// Sorted by name, as the canonical request wants it.
    fn query(&self, scope: &str, time: &str, expires_in_seconds: i64) -> String {
        let credential = percent::query_value(&format!("{}/{scope}", self.options.access_key_id));
        let token = match &self.options.session_token {
            Some(token) => format!("&X-Amz-Security-Token={}", percent::query_value(token)),
            None => String::new(),
        };
        format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={time}\
             &X-Amz-Expires={expires_in_seconds}{token}&X-Amz-SignedHeaders=host"
        )
    }

    fn lifetime_seconds(&self, now_seconds: i64, configured_seconds: i64) -> Result<i64> {
        let credentials_seconds = match self.options.credentials_expire_ms {
            Some(expire_ms) => (expire_ms - CREDENTIALS_SKEW_MS).div_euclid(1000) - now_seconds,
            None => i64::MAX,
        };
        let seconds = configured_seconds.min(credentials_seconds).min(LONGEST_LIFETIME_SECONDS);
        if configured_seconds <= 0 {
            return Err(Error::InvalidArgument("a URL's lifetime must be at least one second".to_owned()));
        }
        if seconds <= 0 {
            return Err(Error::StorageDenied {
                detail: "the session credentials that sign URLs have expired".to_owned(),
            });
        }
        Ok(seconds)
    }

    fn signing_key(&self, date: &str) -> HmacKey {
        let mut cached = lock(&self.signing_key);
        match &*cached {
            Some((day, key)) if day == date => *key,
            _ => {
                let key = derive_signing_key(&self.options.secret_access_key, date, &self.options.region);
                *cached = Some((date.to_owned(), key));
                key
            }
        }
    }
}

fn derive_signing_key(secret_access_key: &str, date: &str, region: &str) -> HmacKey {
    let secret = HmacKey::new(format!("AWS4{secret_access_key}").as_bytes());
    [date, region, "s3", "aws4_request"]
        .into_iter()
        .fold(secret, |key, part| HmacKey::new(&key.sign(part.as_bytes())))
}

impl Address {
    fn new(options: &S3Options) -> Result<Self> {
        let endpoint = match &options.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => format!("https://s3.{}.{}", options.region, domain(&options.region)),
        };
        let invalid = |reason: &str| Error::InvalidArgument(format!("the storage's endpoint {reason}"));
        let url = url::Url::parse(&endpoint).map_err(|_| invalid("is not a URL"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid("must begin with http:// or https://"));
        }
        if !url.username().is_empty()
            || url.password().is_some()
            || url.query().is_some()
            || url.fragment().is_some()
        {
            return Err(invalid("must be a scheme, a host and perhaps a port and a path"));
        }
        if options.bucket.is_empty() || options.bucket.contains('/') {
            return Err(Error::InvalidArgument("the storage's bucket must be a bucket's name".to_owned()));
        }
        let host = url.host_str().ok_or_else(|| invalid("has no host"))?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let base = url.path().trim_end_matches('/');
        let in_path = options.path_style || !fits_into_host(&options.bucket, host, url.scheme());
        let (host, path) = if in_path {
            (format!("{host}{port}"), format!("{base}/{}/", percent::query_value(&options.bucket)))
        } else {
            (format!("{}.{host}{port}", options.bucket), format!("{base}/"))
        };
        Ok(Self { origin: format!("{}://{host}", url.scheme()), host, path })
    }
}

fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

/// A certificate for `*.host` covers no second dot, an address has no subdomains, and a host has no upper case.
fn fits_into_host(bucket: &str, host: &str, scheme: &str) -> bool {
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let is_host_name = bucket.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
        && !bucket.starts_with(['-', '.'])
        && !bucket.ends_with(['-', '.']);
    !is_address && is_host_name && !(scheme == "https" && bucket.contains('.'))
}

/// `20130524T000000Z`
fn utc_basic(seconds: i64) -> Result<String> {
    let (year, month, day) = civil_time::date_of(seconds.div_euclid(86_400));
    let second_of_day = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    if !(0..=9999).contains(&year) {
        return Err(Error::InvalidArgument("the clock is outside of the years 0 to 9999".to_owned()));
    }
    Ok(format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z"))
}

#[cfg(test)]
mod tests;
