//! Selects the signer of a location.
//!
//! A relative path in a log is below the table's root. An absolute path must be below the root or below a location that
//! the configuration allows.

use std::fmt;
use std::sync::{Arc, Mutex};

use super::location::{account_of, append_canonical};
use super::stream::{StreamRoot, UrlStream};
use super::{AzureOptions, Signer};
use super::{Error, Result, Scheme};
use crate::lock::lock;
use crate::log_path::DataPath;
use crate::percent;

/// The domain of accounts of Azure where a location names none.
const PUBLIC_CLOUD: &str = "core.windows.net";

/// A location and the signer of the keys below it.
#[derive(Debug, Clone)]
pub struct SigningRoot {
    /// The canonical location, ends in `/`.
    location: Vec<u8>,
    key_prefix: String,
    signer: Signer,
}

impl SigningRoot {
    /// Creates a root from `s3://bucket/prefix`, `gs://bucket/prefix`, a location of Azure, `file:///directory` or
    /// `/directory`, not percent-encoded.
    ///
    /// A signer of a bucket must belong to the location's bucket; keys are `prefix/...`. A location of Azure without an
    /// account means the signer's account in the public cloud. Keys of a local signer are relative to the location.
    pub fn new(location: &str, signer: Signer) -> Result<Self> {
        let mut canonical = Vec::with_capacity(location.len() + 1);
        let account = signer.account().map(|account| format!("{account}.{PUBLIC_CLOUD}"));
        append_canonical(DataPath::parse(location), account.as_deref(), &mut canonical, |path, out| {
            out.extend_from_slice(path);
        });
        if canonical.last() != Some(&b'/') {
            canonical.push(b'/');
        }
        if matches!(DataPath::parse(location), DataPath::Relative(_)) {
            return Err(Error::InvalidArgument("a storage location must be absolute".to_owned()));
        }
        if percent::has_parent_segment(&canonical) {
            return Err(Error::InvalidArgument("a storage location must not contain '..'".to_owned()));
        }
        let key_prefix = match &*signer.0 {
            Scheme::Local(_) => String::new(),
            Scheme::S3(s3) => key_prefix(&canonical, &format!("s3://{}/", s3.options.bucket))?,
            Scheme::Gcs(gcs) => key_prefix(&canonical, &format!("gs://{}/", gcs.options.bucket))?,
            Scheme::Azure(azure) => {
                let AzureOptions { account, container, .. } = &azure.options;
                let host = account_of(&canonical).unwrap_or_default();
                if host.split('.').next() != Some(account) {
                    return Err(of_another_bucket());
                }
                key_prefix(&canonical, &format!("az:{host}/{container}/"))?
            }
        };
        Ok(Self { location: canonical, key_prefix, signer })
    }
}

fn key_prefix(location: &[u8], bucket: &str) -> Result<String> {
    let prefix = location.strip_prefix(bucket.as_bytes());
    match prefix.map(|prefix| String::from_utf8(prefix.to_vec())) {
        Some(Ok(prefix)) => Ok(prefix),
        _ => Err(of_another_bucket()),
    }
}

fn of_another_bucket() -> Error {
    Error::InvalidArgument("a storage location is not in the bucket of its signer".to_owned())
}

/// The table's root and the other locations that absolute paths may point to.
pub struct SignerSet {
    roots: Vec<SigningRoot>,
    /// Shared by the streams of one second, whose URLs contain the same time.
    prepared: Mutex<Option<Prepared>>,
}

/// The common parts of the URLs of one second and lifetime.
struct Prepared {
    now_seconds: i64,
    lifetime_seconds: i64,
    roots: Arc<[StreamRoot]>,
}

impl SignerSet {
    /// Creates a set. The longest location that contains a path signs it.
    #[must_use]
    pub fn new(root: SigningRoot, others: Vec<SigningRoot>) -> Self {
        let mut roots = vec![root];
        roots.extend(others);
        Self { roots, prepared: Mutex::new(None) }
    }

    /// Prepares the common parts of the URLs of a stream. `now_ms` is the time of all of them.
    ///
    /// Returns an error if the root's signer cannot sign. The error of another location's signer is returned when a
    /// path needs it.
    pub fn stream(&self, now_ms: i64, lifetime_seconds: i64) -> Result<UrlStream> {
        let roots = self.prepare(now_ms.div_euclid(1000), lifetime_seconds);
        if let Some(StreamRoot { template: Err(error), .. }) = roots.first() {
            return Err(error.clone());
        }
        Ok(UrlStream::over(roots))
    }

    /// Returns whether URLs are signed by requests, which block.
    #[must_use]
    pub fn sends_requests(&self) -> bool {
        self.roots.iter().any(|root| root.signer.sends_requests())
    }

    fn prepare(&self, now_seconds: i64, lifetime_seconds: i64) -> Arc<[StreamRoot]> {
        let mut last = lock(&self.prepared);
        if let Some(prepared) = &*last
            && (prepared.now_seconds, prepared.lifetime_seconds) == (now_seconds, lifetime_seconds)
        {
            return Arc::clone(&prepared.roots);
        }
        let template = |root: &SigningRoot| {
            root.signer.template(&root.key_prefix, now_seconds.saturating_mul(1000), lifetime_seconds)
        };
        let roots: Arc<[StreamRoot]> = self
            .roots
            .iter()
            .map(|root| StreamRoot {
                location: root.location.clone(),
                account: account_of(&root.location).map(Box::from),
                template: template(root),
            })
            .collect();
        *last = Some(Prepared { now_seconds, lifetime_seconds, roots: Arc::clone(&roots) });
        roots
    }
}

impl fmt::Debug for SignerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignerSet").field("roots", &self.roots).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
