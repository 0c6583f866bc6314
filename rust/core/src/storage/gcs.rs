//! One bucket of Google Cloud Storage.

use std::sync::Arc;

use object_store::StaticCredentialProvider;
use object_store::gcp::{GcpCredential, GcpSigningCredential, GoogleCloudStorageBuilder};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::credentials::{Credentials, Replaceable, checked_token};
use super::remote::{Access, Connection, Remote, RequestTimes, invalid_options};
use crate::error::{Error, Result};
use crate::sign::GCS_ENDPOINT;

/// Names the project that pays for a request.
const USER_PROJECT: HeaderName = HeaderName::from_static("x-goog-user-project");

/// The address of a bucket.
#[derive(Debug, Clone, Default)]
pub struct GcsOptions {
    /// The bucket's name.
    pub bucket: String,
    /// `http(s)://host[:port][/path]`; `None` for Google itself.
    pub endpoint: Option<String>,
    /// The project that pays for requests, if the requester pays.
    pub user_project: Option<String>,
    /// How long its requests may take.
    pub times: RequestTimes,
}

impl GcsOptions {
    /// Options for Google itself.
    #[must_use]
    pub fn new(bucket: impl Into<String>) -> Self {
        Self { bucket: bucket.into(), ..Self::default() }
    }
}

impl Access for Arc<Replaceable<GcpCredential>> {
    fn replace(&self, credentials: &Credentials<'_>) -> Result<()> {
        let Credentials::BearerToken(token) = credentials else {
            return Err(credentials.of_another_store("Google"));
        };
        self.set(GcpCredential { bearer: checked_token(token)? });
        Ok(())
    }
}

/// Opens a bucket. Sends no request.
pub(super) fn open(options: &GcsOptions) -> Result<Remote> {
    let invalid = |reason: &str| Error::InvalidArgument(format!("the storage's {reason}"));
    if options.bucket.is_empty() || options.bucket.contains('/') {
        return Err(invalid("bucket must be a bucket's name"));
    }
    let endpoint = options.endpoint.as_deref().unwrap_or(GCS_ENDPOINT).trim_end_matches('/');
    let url = url::Url::parse(endpoint).map_err(|_| invalid("endpoint is not a URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("endpoint must begin with http:// or https://"));
    }
    let connection = Connection::new(endpoint, options.times);
    let mut headers = HeaderMap::new();
    if let Some(project) = &options.user_project {
        let project =
            HeaderValue::from_str(project).map_err(|_| invalid("project cannot be sent in a header"))?;
        headers.insert(USER_PROJECT, project);
    }
    let connector = connection.connector(headers).map_err(|error| invalid_options(&error))?;
    let credentials = Arc::new(Replaceable::new(None, None));
    // Never used. Without it the client gets one that asks the metadata server.
    let no_signatures = GcpSigningCredential { email: String::new(), private_key: None };
    let store = GoogleCloudStorageBuilder::new()
        .with_bucket_name(&options.bucket)
        .with_base_url(endpoint)
        .with_credentials(Arc::clone(&credentials) as _)
        .with_signing_credentials(Arc::new(StaticCredentialProvider::new(no_signatures)))
        .with_http_connector(connector)
        .with_retry(connection.retries())
        .build()
        .map_err(|error| invalid_options(&error))?;
    Ok(Remote::new("gcs", store, credentials, &options.bucket, endpoint.to_owned(), options.times))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Storage;
    use crate::storage::remote::tests::head_of_a_read;

    fn open(endpoint: &str) -> Storage {
        let options = GcsOptions {
            endpoint: Some(endpoint.to_owned()),
            user_project: Some("payer-1".into()),
            ..GcsOptions::new("bu_cket.x")
        };
        let storage = Storage::gcs(&options).unwrap();
        storage.replace_bearer_token("first").unwrap();
        storage.replace_bearer_token("second").unwrap();
        storage
    }

    #[test]
    fn a_read_names_the_object_by_its_bytes_and_has_the_last_token_and_the_project() {
        for (key, encoded) in [
            ("t/p=a%20b/1", "t%2Fp%3Da%2520b%2F1"),
            ("a b+\u{e9}?#%41", "a%20b%2B%C3%A9%3F%23%2541"),
            ("q!'()*@$&,;:~", "q%21%27%28%29%2A%40%24%26%2C%3B%3A%7E"),
        ] {
            let (content, head) = head_of_a_read(key, open);
            assert_eq!(content.unwrap(), "file");
            assert!(head.starts_with(&format!("GET /bu%5Fcket%2Ex/{encoded} HTTP/1.1\r\n")), "{head}");
            let head = head.to_ascii_lowercase();
            assert!(head.contains("\r\nauthorization: bearer second\r\n"), "{head}");
            assert!(head.contains("\r\nx-goog-user-project: payer-1\r\n"), "{head}");
        }
    }
}
