//! The credentials of a bucket, replaced as a whole while requests run, because temporary ones expire.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use object_store::CredentialProvider;

use crate::error::{Error, Result};

/// A key pair. `Debug` shows no secret.
#[derive(Clone)]
pub struct S3Credentials {
    /// The public half.
    pub access_key_id: String,
    /// The secret half.
    pub secret_access_key: String,
    /// The session token of temporary credentials.
    pub session_token: Option<String>,
}

impl fmt::Debug for S3Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("S3Credentials")
            .field("access_key_id", &self.access_key_id)
            .field("secret_access_key", &"***")
            .field("session_token", &self.session_token.as_ref().map(|_| "***"))
            .finish()
    }
}

/// Credentials of any kind, each of some stores.
pub(super) enum Credentials<'a> {
    AccessKeys(&'a S3Credentials),
    /// In Base64.
    AccountKey(&'a str),
    BearerToken(&'a str),
}

impl Credentials<'_> {
    /// The error of a store without credentials of this kind.
    pub(super) fn of_another_store(&self, store: &str) -> Error {
        let kind = match self {
            Self::AccessKeys(_) => "access keys",
            Self::AccountKey(_) => "account key",
            Self::BearerToken(_) => "bearer token",
        };
        Error::InvalidArgument(format!("a storage on {store} has no {kind}"))
    }
}

/// Returns a token that can be sent: the client would panic with another one.
pub(super) fn checked_token(token: &str) -> Result<String> {
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::InvalidArgument("the storage's token cannot be sent in a header".into()));
    }
    Ok(token.to_owned())
}

/// Credentials of one kind of store. `Debug` shows no secret.
pub(super) struct Replaceable<C> {
    given: RwLock<Option<Arc<C>>>,
    /// The provider of credentials until some are set. Without one, requests before that are denied.
    otherwise: Option<Arc<dyn CredentialProvider<Credential = C>>>,
}

impl<C> Replaceable<C> {
    pub(super) fn new(
        given: Option<C>,
        otherwise: Option<Arc<dyn CredentialProvider<Credential = C>>>,
    ) -> Self {
        Self { given: RwLock::new(given.map(Arc::new)), otherwise }
    }

    /// Authorizes later requests with these credentials. A request that is repeated keeps its signature.
    pub(super) fn set(&self, credentials: C) {
        *self.given.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(credentials));
    }
}

#[async_trait]
impl<C: Send + Sync + 'static> CredentialProvider for Replaceable<C> {
    type Credential = C;

    async fn get_credential(&self) -> object_store::Result<Arc<C>> {
        let given = self.given.read().unwrap_or_else(PoisonError::into_inner).clone();
        match (given, &self.otherwise) {
            (Some(credentials), _) => Ok(credentials),
            (None, Some(otherwise)) => otherwise.get_credential().await,
            (None, None) => Err(object_store::Error::Unauthenticated {
                path: String::new(),
                source: "the storage has no credentials yet".into(),
            }),
        }
    }
}

impl<C> fmt::Debug for Replaceable<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Replaceable(***)")
    }
}
