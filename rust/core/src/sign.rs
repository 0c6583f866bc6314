//! Makes URLs that open one object each, for a limited time.
//!
//! A [`Signer`] signs for one bucket or one local table. A [`SignerSet`] selects the signer of a location, and rejects
//! paths outside of all locations. A [`UrlStream`] appends URLs for the paths of a log to an output and fills in their
//! signatures in groups.

mod azure;
mod base64;
mod gcs;
mod group;
mod head_request;
mod local;
mod location;
mod remote;
mod roots;
mod rsa;
mod sigv4;
mod stream;
mod template;
mod v4;

use std::fmt;
use std::sync::Arc;

pub(crate) use azure::AzureAddress;
pub use azure::{AzureKey, AzureOptions, DelegationKey};
pub(crate) use base64::decode_key;
pub(crate) use gcs::GCS_ENDPOINT;
pub use gcs::{GcsKey, GcsOptions};
pub(crate) use head_request::{HeadSigner, USER_AGENT};
pub use local::verify_local_url;
pub use remote::SigningService;
pub use roots::{SignerSet, SigningRoot};
pub use sigv4::S3Options;
pub use stream::UrlStream;
pub(crate) use v4::{begins_with_bucket, is_in_path};

use crate::{Error, Result, percent};
use azure::AzureSigner;
use gcs::GcsSigner;
use group::Group;
use local::LocalSigner;
use remote::Requests;
use sigv4::S3Signer;
use template::UrlTemplate;

/// Signs URLs of one bucket or one local table. Cheap to clone; `Debug` shows no secret.
#[derive(Clone)]
pub struct Signer(Arc<Scheme>);

enum Scheme {
    S3(Box<S3Signer>),
    Azure(Box<AzureSigner>),
    Gcs(Box<GcsSigner>),
    Local(LocalSigner),
}

impl Signer {
    /// Creates a signer for S3 with `SigV4` query presigning.
    pub fn s3(options: S3Options) -> Result<Self> {
        Ok(Self(Arc::new(Scheme::S3(Box::new(S3Signer::new(options)?)))))
    }

    /// Creates a signer for Azure with a shared access signature of one blob.
    pub fn azure(options: AzureOptions) -> Result<Self> {
        Ok(Self(Arc::new(Scheme::Azure(Box::new(AzureSigner::new(options)?)))))
    }

    /// Creates a signer for Google Cloud Storage.
    pub fn gcs(options: GcsOptions) -> Result<Self> {
        Ok(Self(Arc::new(Scheme::Gcs(Box::new(GcsSigner::new(options)?)))))
    }

    /// Creates a signer for the gateway's files route: `{base_url}/{percent-encoded
    /// key}?sp=r&expires={s}&signature={hex}`.
    pub fn local(base_url: &str, key: &[u8]) -> Result<Self> {
        Ok(Self(Arc::new(Scheme::Local(LocalSigner::new(base_url, key)?))))
    }

    /// Returns a URL for the object `key` (not encoded), and its expiration in milliseconds since the epoch.
    pub fn sign(&self, key: &str, now_ms: i64, lifetime_seconds: i64) -> Result<(String, i64)> {
        let template = self.template("", now_ms, lifetime_seconds)?;
        let (mut group, mut url) = (Group::default(), Vec::new());
        group.append(&template, &mut url, |out| {
            percent::append_key(key.as_bytes(), out);
            template.is_decoded.then_some(key.as_bytes())
        });
        group.sign(&template, &mut url);
        group.sign_by_service(&template, &Requests::default(), &mut url)?;
        let url = String::from_utf8(url).map_err(|error| Error::Internal { detail: error.to_string() })?;
        Ok((url, template.expires_ms))
    }

    /// Returns whether each URL is signed by a request.
    fn sends_requests(&self) -> bool {
        matches!(&*self.0, Scheme::Gcs(signer) if matches!(signer.options.key, GcsKey::Remote { .. }))
    }

    /// Returns the account of a container of Azure.
    fn account(&self) -> Option<&str> {
        match &*self.0 {
            Scheme::Azure(signer) => Some(&signer.options.account),
            Scheme::S3(_) | Scheme::Gcs(_) | Scheme::Local(_) => None,
        }
    }

    fn template(&self, prefix: &str, now_ms: i64, lifetime_seconds: i64) -> Result<UrlTemplate> {
        match &*self.0 {
            Scheme::S3(signer) => signer.template(prefix, now_ms, lifetime_seconds),
            Scheme::Azure(signer) => signer.template(prefix, now_ms, lifetime_seconds),
            Scheme::Gcs(signer) => signer.template(prefix, now_ms, lifetime_seconds),
            Scheme::Local(signer) => signer.template(prefix, now_ms, lifetime_seconds),
        }
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Scheme::S3(signer) => f.debug_tuple("Signer").field(&signer.options).finish(),
            Scheme::Azure(signer) => f.debug_tuple("Signer").field(&signer.options).finish(),
            Scheme::Gcs(signer) => f.debug_tuple("Signer").field(&signer.options).finish(),
            Scheme::Local(_) => f.write_str("Signer(local, key: ***)"),
        }
    }
}
