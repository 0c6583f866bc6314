//! `Signer` and `Signers`: the signers of URLs and their locations.

use std::sync::Arc;

use deltalog::Error;
use deltalog::sign::{
    AzureKey, AzureOptions, DelegationKey as DelegationKeyFields, GcsKey, GcsOptions, S3Options, SignerSet,
    SigningRoot, verify_local_url as verify,
};
use deltalog::storage::IamSigner;
use pyo3::prelude::*;

use crate::errors::run;

/// Makes URLs for objects under one root.
#[pyclass(frozen, from_py_object, module = "gateway._native")]
#[derive(Clone)]
pub(crate) struct Signer(deltalog::sign::Signer);

#[pymethods]
impl Signer {
    #[staticmethod]
    #[pyo3(signature = (bucket, *, region, endpoint=None, path_style=false, access_key_id, secret_access_key,
        session_token=None, credentials_expire_ms=None, portable=false, requester_pays=false))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of Python
    fn s3(
        py: Python<'_>,
        bucket: String,
        region: String,
        endpoint: Option<String>,
        path_style: bool,
        access_key_id: String,
        secret_access_key: String,
        session_token: Option<String>,
        credentials_expire_ms: Option<i64>,
        portable: bool,
        requester_pays: bool,
    ) -> PyResult<Self> {
        let options = S3Options {
            bucket,
            region,
            endpoint,
            path_style,
            requester_pays,
            access_key_id,
            secret_access_key,
            session_token,
            credentials_expire_ms,
            portable,
        };
        run(py, || deltalog::sign::Signer::s3(options)).map(Self)
    }

    #[staticmethod]
    #[pyo3(signature = (account, container, *, endpoint=None, account_key=None, delegation_key=None,
        credentials_expire_ms=None, portable=false))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of Python
    fn azure(
        py: Python<'_>,
        account: String,
        container: String,
        endpoint: Option<String>,
        account_key: Option<String>,
        delegation_key: Option<&DelegationKey>,
        credentials_expire_ms: Option<i64>,
        portable: bool,
    ) -> PyResult<Self> {
        run(py, || {
            let key = match (account_key, delegation_key) {
                (Some(key), None) => AzureKey::Account(key),
                (None, Some(key)) => AzureKey::Delegation(key.0.clone()),
                _ => return Err(one_key("account_key or delegation_key")),
            };
            let options = AzureOptions { account, container, endpoint, key, credentials_expire_ms, portable };
            deltalog::sign::Signer::azure(options)
        })
        .map(Self)
    }

    #[staticmethod]
    #[pyo3(signature = (bucket, *, endpoint=None, access_id=None, secret=None, email=None, private_key=None,
        access_token=None, iam_endpoint=None, user_project=None, max_remote_signatures=None,
        credentials_expire_ms=None, portable=false))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of Python
    fn gcs(
        py: Python<'_>,
        bucket: String,
        endpoint: Option<String>,
        access_id: Option<String>,
        secret: Option<String>,
        email: Option<String>,
        private_key: Option<String>,
        access_token: Option<&str>,
        iam_endpoint: Option<&str>,
        user_project: Option<String>,
        max_remote_signatures: Option<u64>,
        credentials_expire_ms: Option<i64>,
        portable: bool,
    ) -> PyResult<Self> {
        run(py, || {
            let key = match (access_id.zip(secret), email, private_key, access_token) {
                (Some((access_id, secret)), None, None, None) => GcsKey::Hmac { access_id, secret },
                (None, Some(email), Some(private_key), None) => GcsKey::ServiceAccount { email, private_key },
                (None, Some(email), None, Some(token)) => GcsKey::Remote {
                    service: Arc::new(IamSigner::new(&email, token, iam_endpoint)?),
                    email,
                    max_signatures: max_remote_signatures,
                },
                _ => {
                    let names = "access_id with secret, email with private_key, or email with access_token";
                    return Err(one_key(names));
                }
            };
            let options = GcsOptions { bucket, endpoint, key, user_project, credentials_expire_ms, portable };
            deltalog::sign::Signer::gcs(options)
        })
        .map(Self)
    }

    #[staticmethod]
    #[pyo3(signature = (base_url, *, key))]
    fn local(py: Python<'_>, base_url: &str, key: &[u8]) -> PyResult<Self> {
        run(py, || deltalog::sign::Signer::local(base_url, key)).map(Self)
    }

    #[pyo3(signature = (key, *, now_ms, lifetime_seconds))]
    fn sign(&self, py: Python<'_>, key: &str, now_ms: i64, lifetime_seconds: i64) -> PyResult<(String, i64)> {
        run(py, || self.0.sign(key, now_ms, lifetime_seconds))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

fn one_key(names: &str) -> Error {
    Error::InvalidArgument(format!("a signer needs one key: {names}"))
}

/// A user delegation key of Azure, each field as the service returns it.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct DelegationKey(DelegationKeyFields);

#[pymethods]
impl DelegationKey {
    #[new]
    #[pyo3(signature = (*, object_id, tenant_id, start, expiry, service, version, value))]
    fn new(
        object_id: String,
        tenant_id: String,
        start: String,
        expiry: String,
        service: String,
        version: String,
        value: String,
    ) -> Self {
        Self(DelegationKeyFields { object_id, tenant_id, start, expiry, service, version, value })
    }

    #[getter]
    fn expiry(&self) -> &str {
        &self.0.expiry
    }

    fn __repr__(&self) -> String {
        format!("DelegationKey(expiry={:?}, value=***)", self.0.expiry)
    }
}

/// The signer of a table's own root, and the signers of other roots that absolute paths may point to.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct Signers(pub(crate) Arc<SignerSet>);

#[pymethods]
impl Signers {
    #[new]
    #[pyo3(signature = (root, signer, others=Vec::new()))]
    fn new(py: Python<'_>, root: &str, signer: Signer, others: Vec<(String, Signer)>) -> PyResult<Self> {
        run(py, || {
            let others = others.into_iter().map(|(location, signer)| SigningRoot::new(&location, signer.0));
            Ok(SignerSet::new(SigningRoot::new(root, signer.0)?, others.collect::<Result<_, _>>()?))
        })
        .map(|signers| Self(Arc::new(signers)))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// Whether the files route may answer this URL path.
#[pyfunction]
#[pyo3(signature = (path, expires, signature, *, key, now_ms))]
pub(crate) fn verify_local_url(path: &str, expires: &str, signature: &str, key: &[u8], now_ms: i64) -> bool {
    verify(path, expires, signature, key, now_ms)
}
