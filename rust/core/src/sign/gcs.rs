//! URLs of Google Cloud Storage with a signature of version 4: by an HMAC key, by the RSA key of a service account, or by a
//! service that holds this key.
//!
//! See <https://cloud.google.com/storage/docs/authentication/canonical-requests>.

use std::fmt;
use std::sync::Arc;

use super::remote::{RemoteSignature, SigningService};
use super::rsa::{RsaKey, RsaSignature};
use super::template::{Form, UrlTemplate};
use super::v4::{Address, GOOGLE, Request, Signing, SigningKeys, lifetime_seconds};
use crate::Result;
use crate::percent;

pub(crate) const GCS_ENDPOINT: &str = "https://storage.googleapis.com";

/// The region of all signatures.
const REGION: &str = "auto";

/// The lifetime of URLs that a service signs: Google replaces the keys of service accounts, and each is valid for twelve
/// more hours.
const LONGEST_REMOTE_SECONDS: i64 = 12 * 3600;

/// The algorithm of signatures by RSA.
const RSA: &str = "GOOG4-RSA-SHA256";

/// The bucket and the credentials of a signer. `Debug` shows no secret.
#[derive(Debug, Clone)]
pub struct GcsOptions {
    /// The bucket's name.
    pub bucket: String,
    /// `http(s)://host[:port][/path]` of the URLs; `None` for Google itself.
    pub endpoint: Option<String>,
    /// The key that signs.
    pub key: GcsKey,
    /// The project that pays for reads, if the requester pays.
    pub user_project: Option<String>,
    /// When the identity's session expires, milliseconds since the epoch.
    pub credentials_expire_ms: Option<i64>,
    /// Disables hashing in wide registers.
    pub portable: bool,
}

impl GcsOptions {
    /// Options for a bucket of Google itself.
    #[must_use]
    pub fn new(bucket: &str, key: GcsKey) -> Self {
        let bucket = bucket.to_owned();
        Self { bucket, endpoint: None, key, user_project: None, credentials_expire_ms: None, portable: false }
    }
}

/// A key that signs. `Debug` shows no secret.
#[derive(Clone)]
pub enum GcsKey {
    /// An HMAC key.
    Hmac {
        /// Its id.
        access_id: String,
        /// Its secret.
        secret: String,
    },
    /// The key of a service account.
    ServiceAccount {
        /// The account's address.
        email: String,
        /// The private key in PEM form.
        private_key: String,
    },
    /// A service account whose key a service holds.
    Remote {
        /// The account's address.
        email: String,
        /// Makes the signatures.
        service: Arc<dyn SigningService>,
        /// The maximum number of signatures of one stream.
        max_signatures: Option<u64>,
    },
}

impl fmt::Debug for GcsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hmac { .. } => "Hmac(***)",
            Self::ServiceAccount { .. } => "ServiceAccount(***)",
            Self::Remote { .. } => "Remote(***)",
        })
    }
}

/// Signs for one bucket.
pub(super) struct GcsSigner {
    pub(super) options: GcsOptions,
    address: Address,
    key: Key,
    /// The encoded parameter of requests that the requester pays.
    more: String,
}

enum Key {
    Hmac(SigningKeys),
    Rsa(RsaKey),
    Remote(Arc<dyn SigningService>, Option<u64>),
}

impl GcsSigner {
    pub(super) fn new(options: GcsOptions) -> Result<Self> {
        // In the path: names of buckets may have dots and underscores.
        let endpoint = options.endpoint.as_deref().unwrap_or(GCS_ENDPOINT);
        let address = Address::new(endpoint, &options.bucket, true)?;
        let key = match &options.key {
            GcsKey::Hmac { secret, .. } => Key::Hmac(SigningKeys::new(&GOOGLE, secret, REGION)),
            GcsKey::ServiceAccount { private_key, .. } => Key::Rsa(RsaKey::of_pem(private_key)?),
            GcsKey::Remote { service, max_signatures, .. } => {
                Key::Remote(Arc::clone(service), *max_signatures)
            }
        };
        let more = match &options.user_project {
            Some(project) => format!("&userProject={}", percent::query_value(project)),
            None => String::new(),
        };
        Ok(Self { options, address, key, more })
    }

    /// Signs keys below `prefix`.
    pub(super) fn template(&self, prefix: &str, now_ms: i64, configured_seconds: i64) -> Result<UrlTemplate> {
        let now_seconds = now_ms.div_euclid(1000);
        let configured_seconds = match &self.key {
            Key::Remote(..) => configured_seconds.min(LONGEST_REMOTE_SECONDS),
            Key::Hmac(_) | Key::Rsa(_) => configured_seconds,
        };
        let (algorithm, access_id) = match &self.options.key {
            GcsKey::Hmac { access_id, .. } => (GOOGLE.hmac, access_id),
            GcsKey::ServiceAccount { email, .. } | GcsKey::Remote { email, .. } => (RSA, email),
        };
        let lifetime_seconds =
            lifetime_seconds(now_seconds, configured_seconds, self.options.credentials_expire_ms)?;
        let request = Request {
            dialect: &GOOGLE,
            algorithm,
            address: &self.address,
            prefix,
            region: REGION,
            access_id,
            now_seconds,
            lifetime_seconds,
            token: "",
            more: &self.more,
        };
        let sign = |signing: &Signing<'_>| request.template(signing, self.options.portable);
        match &self.key {
            Key::Hmac(keys) => sign(&Signing::Hmac(&keys.of(&request.date()?))),
            Key::Rsa(key) => {
                sign(&Signing::Other(&|head| Form::Rsa(RsaSignature::new(key.clone(), head).into())))
            }
            Key::Remote(service, most) => sign(&Signing::Other(&|head| {
                Form::Remote(RemoteSignature::new(Arc::clone(service), head, *most).into())
            })),
        }
    }
}

#[cfg(test)]
mod tests;
