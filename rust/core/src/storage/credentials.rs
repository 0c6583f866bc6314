//! The credentials of a bucket, replaced as a whole while requests run, because temporary ones expire.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::{AwsCredential, AwsCredentialProvider};

use super::S3Credentials;

#[derive(Debug)]
pub(super) struct ReplaceableCredentials {
    given: RwLock<Option<Arc<AwsCredential>>>,
    /// The provider of credentials until keys are set.
    otherwise: AwsCredentialProvider,
}

impl ReplaceableCredentials {
    pub(super) fn new(given: Option<&S3Credentials>, otherwise: AwsCredentialProvider) -> Self {
        Self { given: RwLock::new(given.map(credential)), otherwise }
    }

    /// Signs later requests, and retries of running ones, with these keys.
    pub(super) fn replace(&self, keys: &S3Credentials) {
        *self.given.write().unwrap_or_else(PoisonError::into_inner) = Some(credential(keys));
    }
}

#[async_trait]
impl CredentialProvider for ReplaceableCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let given = self.given.read().unwrap_or_else(PoisonError::into_inner).clone();
        match given {
            Some(keys) => Ok(keys),
            None => self.otherwise.get_credential().await,
        }
    }
}

fn credential(keys: &S3Credentials) -> Arc<AwsCredential> {
    Arc::new(AwsCredential {
        key_id: keys.access_key_id.clone(),
        secret_key: keys.secret_access_key.clone(),
        token: keys.session_token.clone(),
    })
}
