//! What the query signatures, version 4, of AWS and of Google have in common: the canonical request, the string to sign
//! and the derived key. They differ in a few names.

use std::net::IpAddr;
use std::sync::Mutex;

use super::template::{DigestText, Form, PathText, UrlTemplate};
use crate::civil_time;
use crate::hashing::{Engine, HmacKey, SHA256_INITIAL};
use crate::lock::lock;
use crate::percent;
use crate::{Error, Result};

/// Maximum lifetime that stores accept.
const LONGEST_LIFETIME_SECONDS: i64 = 7 * 24 * 3600;

/// Time between the expiration of a URL and the expiration of its credentials: clocks differ, and a read takes time.
const CREDENTIALS_SKEW_MS: i64 = 60_000;

/// The names of a provider.
pub(super) struct Dialect {
    /// The algorithm of an HMAC.
    pub(super) hmac: &'static str,
    /// The prefix of parameters in the query.
    pub(super) parameter: &'static str,
    /// The prefix of the secret.
    pub(super) secret: &'static str,
    pub(super) service: &'static str,
    pub(super) terminator: &'static str,
}

pub(super) const AWS: Dialect = Dialect {
    hmac: "AWS4-HMAC-SHA256",
    parameter: "X-Amz",
    secret: "AWS4",
    service: "s3",
    terminator: "aws4_request",
};

pub(super) const GOOGLE: Dialect = Dialect {
    hmac: "GOOG4-HMAC-SHA256",
    parameter: "X-Goog",
    secret: "GOOG4",
    service: "storage",
    terminator: "goog4_request",
};

/// The common part of the URLs of one time.
pub(super) struct Request<'a> {
    pub(super) dialect: &'static Dialect,
    pub(super) algorithm: &'a str,
    pub(super) address: &'a Address,
    /// Below which keys are signed.
    pub(super) prefix: &'a str,
    pub(super) region: &'a str,
    pub(super) access_id: &'a str,
    pub(super) now_seconds: i64,
    pub(super) lifetime_seconds: i64,
    /// Encoded parameters of temporary credentials, each with a leading `&`.
    pub(super) token: &'a str,
    /// Encoded parameters that are sorted after all others, each with a leading `&`.
    pub(super) more: &'a str,
}

/// How a request is signed.
pub(super) enum Signing<'a> {
    Hmac(&'a HmacKey),
    /// Makes the form of a signature from the string to sign without its digest.
    Other(&'a dyn Fn(Vec<u8>) -> Form),
}

impl Request<'_> {
    /// Returns `20130524` of the time of the request.
    pub(super) fn date(&self) -> Result<String> {
        let mut time = utc_basic(self.now_seconds)?;
        time.truncate(8);
        Ok(time)
    }

    pub(super) fn template(&self, signing: &Signing<'_>, portable: bool) -> Result<UrlTemplate> {
        let time = utc_basic(self.now_seconds)?;
        let Dialect { service, terminator, .. } = self.dialect;
        let scope = format!("{}/{}/{service}/{terminator}", self.date()?, self.region);
        let query = self.query(&scope, &time);
        let mut path = self.address.path.clone().into_bytes();
        percent::append_key(self.prefix.as_bytes(), &mut path);
        let canonical_head = [b"GET\n", path.as_slice()].concat();
        let canonical_tail = format!("\n{query}\nhost:{}\n\nhost\nUNSIGNED-PAYLOAD", self.address.host);
        let string_head = format!("{}\n{time}\n{scope}\n", self.algorithm).into_bytes();
        let (string_to_sign, outer, form) = match signing {
            Signing::Hmac(key) => (Some(DigestText::new(key, &string_head)), key.outer(), Form::Hex),
            Signing::Other(form) => (None, SHA256_INITIAL, form(string_head)),
        };
        Ok(UrlTemplate {
            head: [self.address.origin.as_bytes(), &path].concat(),
            tail: format!("?{query}&{}-Signature={}", self.dialect.parameter, form.pending()).into_bytes(),
            text: PathText::new(SHA256_INITIAL, 0, &canonical_head, canonical_tail.as_bytes()),
            is_decoded: false,
            string_to_sign,
            outer,
            signature_bytes: form.bytes(),
            form,
            expires_ms: (self.now_seconds + self.lifetime_seconds) * 1000,
            engine: Engine::detect(portable),
        })
    }

    /// Returns the query sorted by name, as the canonical request requires.
    fn query(&self, scope: &str, time: &str) -> String {
        let name = self.dialect.parameter;
        let credential = percent::query_value(&format!("{}/{scope}", self.access_id));
        let Self { algorithm, lifetime_seconds, token, more, .. } = self;
        format!(
            "{name}-Algorithm={algorithm}&{name}-Credential={credential}&{name}-Date={time}\
             &{name}-Expires={lifetime_seconds}{token}&{name}-SignedHeaders=host{more}"
        )
    }
}

/// Derives the signing key of a day from a secret, and keeps the key of the last day: deriving a key costs more than a
/// URL.
pub(super) struct SigningKeys {
    dialect: &'static Dialect,
    secret: String,
    region: String,
    last: Mutex<Option<(String, HmacKey)>>,
}

impl SigningKeys {
    pub(super) fn new(dialect: &'static Dialect, secret: &str, region: &str) -> Self {
        Self { dialect, secret: secret.to_owned(), region: region.to_owned(), last: Mutex::new(None) }
    }

    pub(super) fn of(&self, date: &str) -> HmacKey {
        let mut last = lock(&self.last);
        match &*last {
            Some((day, key)) if day == date => *key,
            _ => {
                let Dialect { secret, service, terminator, .. } = self.dialect;
                let secret = HmacKey::new(format!("{secret}{}", self.secret).as_bytes());
                let key = [date, &self.region, service, terminator]
                    .into_iter()
                    .fold(secret, |key, part| HmacKey::new(&key.sign(part.as_bytes())));
                *last = Some((date.to_owned(), key));
                key
            }
        }
    }
}

/// Returns the seconds until URLs expire: those that are configured, but no more than stores accept and credentials have
/// left.
pub(super) fn lifetime_seconds(
    now_seconds: i64,
    configured_seconds: i64,
    credentials_expire_ms: Option<i64>,
) -> Result<i64> {
    let credentials_seconds = match credentials_expire_ms {
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

pub(super) struct Address {
    /// `https://host`
    pub(super) origin: String,
    /// The host header: no port where it is the scheme's own.
    pub(super) host: String,
    /// The encoded path before a key, ends in `/`.
    pub(super) path: String,
}

impl Address {
    /// `endpoint` is `http(s)://host[:port][/path]`.
    pub(super) fn new(endpoint: &str, bucket: &str, path_style: bool) -> Result<Self> {
        let invalid = |reason: &str| Error::InvalidArgument(format!("the storage's endpoint {reason}"));
        let url = url::Url::parse(endpoint).map_err(|_| invalid("is not a URL"))?;
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
        if bucket.is_empty() || bucket.contains('/') {
            return Err(Error::InvalidArgument("the storage's bucket must be a bucket's name".to_owned()));
        }
        let host = url.host_str().ok_or_else(|| invalid("has no host"))?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let base = url.path().trim_end_matches('/');
        let in_path = path_style || !fits_into_host(bucket, host, url.scheme());
        let (host, path) = if in_path {
            (format!("{host}{port}"), format!("{base}/{}/", percent::query_value(bucket)))
        } else if begins_with_bucket(host, bucket) {
            (format!("{host}{port}"), format!("{base}/"))
        } else {
            (format!("{bucket}.{host}{port}"), format!("{base}/"))
        };
        Ok(Self { origin: format!("{}://{host}", url.scheme()), host, path })
    }
}

/// Returns whether requests for a bucket name it in the path, as the URLs of [`Address`] do. `endpoint` is a URL; `None`
/// for AWS itself.
pub(crate) fn is_in_path(bucket: &str, endpoint: Option<&str>) -> bool {
    match endpoint.map(url::Url::parse) {
        None => !fits_into_host(bucket, "s3.amazonaws.com", "https"),
        Some(Ok(url)) => url.host_str().is_some_and(|host| !fits_into_host(bucket, host, url.scheme())),
        // Refused elsewhere.
        Some(Err(_)) => false,
    }
}

/// Returns whether the host of an endpoint is the bucket's own, as consoles of stores show it.
pub(crate) fn begins_with_bucket(host: &str, bucket: &str) -> bool {
    host.strip_prefix(bucket).is_some_and(|rest| rest.starts_with('.'))
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
pub(super) fn utc_basic(seconds: i64) -> Result<String> {
    Ok(utc_extended(seconds)?.replace(['-', ':'], ""))
}

/// `2013-05-24T00:00:00Z`
pub(super) fn utc_extended(seconds: i64) -> Result<String> {
    let mut text = String::new();
    civil_time::push_date_time(&mut text, seconds, 'T');
    if text.starts_with(civil_time::SIGNS) {
        return Err(Error::InvalidArgument("the clock is outside of the years 0 to 9999".to_owned()));
    }
    Ok(text + "Z")
}
