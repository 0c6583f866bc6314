//! One container of Azure Blob Storage.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use object_store::azure::{AzureAccessKey, AzureCredential, MicrosoftAzureBuilder};
use reqwest::header::HeaderMap;

use super::credentials::{Credentials, Replaceable, checked_token};
use super::remote::{Access, Connection, Remote, RequestTimes, invalid_options};
use crate::error::{Error, Result};
use crate::sign::{AzureAddress, decode_key};

/// The address of a container.
#[derive(Debug, Clone, Default)]
pub struct AzureOptions {
    /// The account's name.
    pub account: String,
    /// The container's name.
    pub container: String,
    /// `http(s)://host[:port][/path]` of the account's blobs; `None` for `https://{account}.blob.core.windows.net`.
    pub endpoint: Option<String>,
    /// How long its requests may take.
    pub times: RequestTimes,
}

impl AzureOptions {
    /// Options for the public cloud.
    #[must_use]
    pub fn new(account: impl Into<String>, container: impl Into<String>) -> Self {
        Self { account: account.into(), container: container.into(), ..Self::default() }
    }
}

impl Access for Arc<Replaceable<AzureCredential>> {
    fn replace(&self, credentials: &Credentials<'_>) -> Result<()> {
        self.set(match credentials {
            Credentials::AccountKey(key) => AzureCredential::AccessKey(access_key(key)?),
            Credentials::BearerToken(token) => AzureCredential::BearerToken(checked_token(token)?),
            Credentials::AccessKeys(_) => return Err(credentials.of_another_store("Azure")),
        });
        Ok(())
    }
}

/// Returns the account's key. The client accepts its canonical Base64 only.
fn access_key(key: &str) -> Result<AzureAccessKey> {
    decode_key(key)
        .and_then(|key| AzureAccessKey::try_new(&STANDARD.encode(key)).ok())
        .ok_or_else(|| Error::InvalidArgument("the storage's key is not Base64".into()))
}

/// Opens a container. Sends no request.
pub(super) fn open(options: &AzureOptions) -> Result<Remote> {
    let AzureOptions { account, container, endpoint, .. } = options;
    let address = AzureAddress::new(account, container, endpoint.as_deref())?;
    let connection = Connection::new(&address.endpoint, options.times);
    let connector = connection.connector(HeaderMap::new()).map_err(|error| invalid_options(&error))?;
    let credentials = Arc::new(Replaceable::new(None, None));
    let store = MicrosoftAzureBuilder::new()
        .with_account(account)
        .with_container_name(container)
        .with_endpoint(address.endpoint.clone())
        .with_credentials(Arc::clone(&credentials) as _)
        .with_http_connector(connector)
        .with_retry(connection.retries())
        .build()
        .map_err(|error| invalid_options(&error))?;
    // The endpoint of an emulator or a proxy may serve several accounts.
    let endpoint = format!("{account}@{}", address.endpoint);
    Ok(Remote::new("azure", store, credentials, container, endpoint, options.times))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Storage;
    use crate::storage::remote::tests::head_of_a_read;

    fn open(endpoint: &str) -> Storage {
        let endpoint = Some(format!("{endpoint}/account1"));
        let storage =
            Storage::azure(&AzureOptions { endpoint, ..AzureOptions::new("account1", "data-1") }).unwrap();
        storage.replace_account_key("aHVzaA==").unwrap();
        storage.replace_bearer_token("second").unwrap();
        storage
    }

    #[test]
    fn a_key_may_have_unused_bits_in_its_last_character_as_in_the_libraries_of_azure() {
        for key in ["QUJDRA==", "QUJDRB==", "QUJDRP=="] {
            assert_eq!(access_key(key).unwrap(), AzureAccessKey::try_new("QUJDRA==").unwrap(), "{key}");
        }
        for key in ["QUJDRA", "QUJDRA=", "QUJDRA==x", "QUJ DRA==", "QUJDR!=="] {
            assert!(matches!(access_key(key), Err(Error::InvalidArgument(_))), "{key}");
        }
    }

    #[test]
    fn a_read_names_the_blob_by_its_bytes_and_has_the_last_credentials() {
        for (key, encoded) in [
            ("t/p=a%20b/1", "t/p=a%2520b/1"),
            ("a b+\u{e9}?#%41", "a%20b+%C3%A9%3F%23%2541"),
            ("q!'()*@$&,;:~", "q!'()*@$&,;:~"),
        ] {
            let (content, head) = head_of_a_read(key, open);
            assert_eq!(content.unwrap(), "file");
            assert!(head.starts_with(&format!("GET /account1/data-1/{encoded} HTTP/1.1\r\n")), "{head}");
            let head = head.to_ascii_lowercase();
            assert!(head.contains("\r\nauthorization: bearer second\r\n"), "{head}");
        }
    }
}
