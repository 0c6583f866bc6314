//! URLs of Azure Blob Storage with a shared access signature: of the account's key (service SAS) or of a key that an
//! identity was given (user delegation SAS).
//!
//! The string to sign has the object's key without its percent-encoding. See
//! <https://learn.microsoft.com/rest/api/storageservices/create-service-sas> and
//! <https://learn.microsoft.com/rest/api/storageservices/create-user-delegation-sas>.

use std::fmt;

use super::base64::decode_key;
use super::template::{Form, PathText, UrlTemplate};
use super::v4::{lifetime_seconds, utc_extended};
use crate::civil_time;
use crate::hashing::{BLOCK_BYTES, Engine, HmacKey};
use crate::percent;
use crate::{Error, Result};

/// The version of the service that defines the string to sign.
const SERVICE_VERSION: &str = "2022-11-02";

/// The container and the credentials of a signer. `Debug` shows no secret.
#[derive(Debug, Clone)]
pub struct AzureOptions {
    /// The account's name.
    pub account: String,
    /// The container's name.
    pub container: String,
    /// `http(s)://host[:port][/path]` of the account's blobs; `None` for `https://{account}.blob.core.windows.net`.
    pub endpoint: Option<String>,
    /// The key that signs.
    pub key: AzureKey,
    /// When the identity's session expires, milliseconds since the epoch. URLs expire before this and before the key.
    pub credentials_expire_ms: Option<i64>,
    /// Disables hashing in wide registers.
    pub portable: bool,
}

impl AzureOptions {
    /// Options for a container of the public cloud.
    #[must_use]
    pub fn new(account: &str, container: &str, key: AzureKey) -> Self {
        let (account, container) = (account.to_owned(), container.to_owned());
        Self { account, container, endpoint: None, key, credentials_expire_ms: None, portable: false }
    }
}

/// A key that signs. `Debug` shows no secret.
#[derive(Clone)]
pub enum AzureKey {
    /// The account's key, in Base64.
    Account(String),
    /// A user delegation key.
    Delegation(DelegationKey),
}

/// A user delegation key, each field as the service returns it.
#[derive(Clone)]
pub struct DelegationKey {
    /// The object id of the identity (`SignedOid`).
    pub object_id: String,
    /// The id of its tenant (`SignedTid`).
    pub tenant_id: String,
    /// The start of its validity (`SignedStart`).
    pub start: String,
    /// The end of its validity (`SignedExpiry`), for example `2026-11-22T10:00:00Z`.
    pub expiry: String,
    /// The service for which it is valid (`SignedService`).
    pub service: String,
    /// The version of the service that made it (`SignedVersion`).
    pub version: String,
    /// The key in Base64 (`Value`).
    pub value: String,
}

impl fmt::Debug for AzureKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Account(_) => "Account(***)",
            Self::Delegation(_) => "Delegation(***)",
        })
    }
}

/// The checked address of an account.
pub(crate) struct AzureAddress {
    /// `https://account.blob.core.windows.net`
    pub(crate) endpoint: String,
    is_https: bool,
}

impl AzureAddress {
    /// Checks the names of an account and a container, and the endpoint.
    pub(crate) fn new(account: &str, container: &str, endpoint: Option<&str>) -> Result<Self> {
        let invalid = |reason: &str| Error::InvalidArgument(format!("the storage's {reason}"));
        let endpoint = match endpoint {
            Some(endpoint) => endpoint.trim_end_matches('/').to_owned(),
            None => format!("https://{account}.blob.core.windows.net"),
        };
        let url = url::Url::parse(&endpoint).map_err(|_| invalid("endpoint is not a URL"))?;
        let is_plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
            && endpoint.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\<>^`{|}".contains(&byte));
        if !matches!(url.scheme(), "http" | "https") || !is_plain {
            return Err(invalid("endpoint must be http(s)://host, perhaps with a port and a path"));
        }
        if !is_name(account, 3..=24, false) {
            return Err(invalid("account must have 3 to 24 small letters and digits"));
        }
        let name = container.strip_prefix('$').unwrap_or(container);
        if !is_name(name, 3..=63, true) {
            return Err(invalid("container must have 3 to 63 small letters, digits and hyphens"));
        }
        Ok(Self { is_https: url.scheme() == "https", endpoint })
    }
}

/// Signs for one container.
pub(super) struct AzureSigner {
    pub(super) options: AzureOptions,
    /// `https://account.blob.core.windows.net/container/`
    base: String,
    is_https: bool,
    key: HmacKey,
    key_expires_ms: Option<i64>,
}

impl AzureSigner {
    pub(super) fn new(options: AzureOptions) -> Result<Self> {
        let invalid = |reason: &str| Error::InvalidArgument(format!("the storage's {reason}"));
        let AzureAddress { endpoint, is_https } =
            AzureAddress::new(&options.account, &options.container, options.endpoint.as_deref())?;
        let (value, key_expires_ms) = match &options.key {
            AzureKey::Account(value) => (value, options.credentials_expire_ms),
            AzureKey::Delegation(key) => {
                let expiry =
                    seconds_of(&key.expiry).ok_or_else(|| invalid("delegation key has no expiry"))?;
                let expiry_ms = expiry.saturating_mul(1000);
                (&key.value, Some(options.credentials_expire_ms.map_or(expiry_ms, |ms| ms.min(expiry_ms))))
            }
        };
        let secret = decode_key(value).ok_or_else(|| invalid("key is not Base64"))?;
        if secret.is_empty() {
            return Err(invalid("key is empty"));
        }
        let base = format!("{endpoint}/{}/", options.container);
        Ok(Self { base, is_https, key: HmacKey::new(&secret), key_expires_ms, options })
    }

    /// Signs keys below `prefix`.
    pub(super) fn template(&self, prefix: &str, now_ms: i64, configured_seconds: i64) -> Result<UrlTemplate> {
        let now_seconds = now_ms.div_euclid(1000);
        let seconds = lifetime_seconds(now_seconds, configured_seconds, self.key_expires_ms)?;
        let expires_seconds = now_seconds + seconds;
        let expiry = utc_extended(expires_seconds)?;
        // A store without TLS refuses a signature that requires it.
        let protocol = if self.is_https { "https" } else { "" };
        let AzureOptions { account, container, .. } = &self.options;
        let mut identity = String::new();
        let mut query = format!("sv={SERVICE_VERSION}&se={}&sr=b&sp=r", percent::query_value(&expiry));
        if self.is_https {
            query.push_str("&spr=https");
        }
        if let AzureKey::Delegation(key) = &self.options.key {
            let fields = [
                ("skoid", &key.object_id),
                ("sktid", &key.tenant_id),
                ("skt", &key.start),
                ("ske", &key.expiry),
                ("sks", &key.service),
                ("skv", &key.version),
            ];
            for (name, value) in fields {
                identity.extend(["\n", value]);
                query.extend(["&", name, "=", &percent::query_value(value)]);
            }
            // The authorized and the unauthorized user, and the correlation id.
            identity.push_str("\n\n\n");
        }
        let text_head = format!("r\n\n{expiry}\n/blob/{account}/{container}/{prefix}");
        let policy = if identity.is_empty() { "\n" } else { "" };
        // A service SAS has a line for a stored policy. Then the address, the protocol, the version, a blob, and empty
        // lines for the snapshot, the encryption scope and five headers of the response.
        let text_tail = format!("{identity}{policy}\n\n{protocol}\n{SERVICE_VERSION}\nb\n\n\n\n\n\n\n");
        let form = Form::Base64;
        let mut head = self.base.clone().into_bytes();
        percent::append_key(prefix.as_bytes(), &mut head);
        Ok(UrlTemplate {
            head,
            tail: format!("?{query}&sig={}", form.pending()).into_bytes(),
            text: PathText::new(self.key.inner(), BLOCK_BYTES, text_head.as_bytes(), text_tail.as_bytes()),
            is_decoded: true,
            string_to_sign: None,
            outer: self.key.outer(),
            signature_bytes: form.bytes(),
            form,
            expires_ms: expires_seconds * 1000,
            engine: Engine::detect(self.options.portable),
        })
    }
}

fn is_name(name: &str, length: std::ops::RangeInclusive<usize>, with_hyphens: bool) -> bool {
    length.contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || (with_hyphens && byte == b'-'))
}

/// Returns the seconds since the epoch of `2026-11-22T10:00:00Z`.
fn seconds_of(text: &str) -> Option<i64> {
    let time = civil_time::parse(text).filter(|time| time.zoned)?;
    i64::try_from(time.micros.div_euclid(1_000_000)).ok()
}

#[cfg(test)]
mod tests;
