//! Presigned GET URLs of S3 and compatible stores: AWS Signature Version 4 in the query, with `UNSIGNED-PAYLOAD` and
//! `host` as the only signed header.
//!
//! Takes a bucket, an endpoint and credentials. Returns a template that signs any key for one time and lifetime. See
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html>.

use std::fmt;

use super::template::UrlTemplate;
use super::v4::{AWS, Address, Request, Signing, SigningKeys, lifetime_seconds};
use crate::Result;
use crate::percent;

/// The parameter of requests that their sender pays for.
const REQUESTER_PAYS: &str = "&x-amz-request-payer=requester";

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
    /// Whether readers of the URLs pay for their requests.
    pub requester_pays: bool,
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
            requester_pays: false,
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
            .field("requester_pays", &self.requester_pays)
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
    pub(super) options: S3Options,
    pub(super) address: Address,
    pub(super) keys: SigningKeys,
}

impl S3Signer {
    pub(super) fn new(options: S3Options) -> Result<Self> {
        let endpoint = match &options.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => format!("https://s3.{}.{}", options.region, domain(&options.region)),
        };
        let address = Address::new(&endpoint, &options.bucket, options.path_style)?;
        let keys = SigningKeys::new(&AWS, &options.secret_access_key, &options.region);
        Ok(Self { options, address, keys })
    }

    /// Signs keys below `prefix`.
    pub(super) fn template(&self, prefix: &str, now_ms: i64, configured_seconds: i64) -> Result<UrlTemplate> {
        let now_seconds = now_ms.div_euclid(1000);
        let token = match &self.options.session_token {
            Some(token) => format!("&X-Amz-Security-Token={}", percent::query_value(token)),
            None => String::new(),
        };
        let lifetime_seconds =
            lifetime_seconds(now_seconds, configured_seconds, self.options.credentials_expire_ms)?;
        let request = Request {
            dialect: &AWS,
            algorithm: AWS.hmac,
            address: &self.address,
            prefix,
            region: &self.options.region,
            access_id: &self.options.access_key_id,
            now_seconds,
            lifetime_seconds,
            token: &token,
            more: if self.options.requester_pays { REQUESTER_PAYS } else { "" },
        };
        let key = self.keys.of(&request.date()?);
        request.template(&Signing::Hmac(&key), self.options.portable)
    }
}

fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

#[cfg(test)]
mod tests;
