//! `Storage`: the storage that logs are read from.

use std::time::Duration;

use deltalog::Error;
use deltalog::storage::{AzureOptions, GcsOptions, RequestTimes, S3Credentials, S3Options};
use pyo3::prelude::*;

use crate::errors::run;

/// The local file system, or one bucket or container of an object store.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct Storage(pub(crate) deltalog::storage::Storage);

#[pymethods]
impl Storage {
    #[staticmethod]
    fn local() -> Self {
        Self(deltalog::storage::Storage::local())
    }

    #[staticmethod]
    #[pyo3(signature = (bucket, *, region, endpoint=None, path_style=false, access_key_id=None,
        secret_access_key=None, session_token=None, timeout_seconds=30.0, retry_seconds=5.0, listing_seconds=300.0,
        requester_pays=false))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of Python
    fn s3(
        py: Python<'_>,
        bucket: String,
        region: String,
        endpoint: Option<String>,
        path_style: bool,
        access_key_id: Option<String>,
        secret_access_key: Option<String>,
        session_token: Option<String>,
        timeout_seconds: f64,
        retry_seconds: f64,
        listing_seconds: f64,
        requester_pays: bool,
    ) -> PyResult<Self> {
        run(py, || {
            let credentials =
                access_key_id.zip(secret_access_key).map(|(access_key_id, secret_access_key)| {
                    S3Credentials { access_key_id, secret_access_key, session_token }
                });
            let options = S3Options {
                bucket,
                region,
                endpoint,
                path_style,
                requester_pays,
                credentials,
                times: times(timeout_seconds, retry_seconds, listing_seconds)?,
            };
            deltalog::storage::Storage::s3(&options)
        })
        .map(Self)
    }

    #[staticmethod]
    #[pyo3(signature = (account, container, *, endpoint=None, timeout_seconds=30.0, retry_seconds=5.0,
        listing_seconds=300.0))]
    fn azure(
        py: Python<'_>,
        account: String,
        container: String,
        endpoint: Option<String>,
        timeout_seconds: f64,
        retry_seconds: f64,
        listing_seconds: f64,
    ) -> PyResult<Self> {
        run(py, || {
            deltalog::storage::Storage::azure(&AzureOptions {
                account,
                container,
                endpoint,
                times: times(timeout_seconds, retry_seconds, listing_seconds)?,
            })
        })
        .map(Self)
    }

    #[staticmethod]
    #[pyo3(signature = (bucket, *, endpoint=None, user_project=None, timeout_seconds=30.0, retry_seconds=5.0,
        listing_seconds=300.0))]
    fn gcs(
        py: Python<'_>,
        bucket: String,
        endpoint: Option<String>,
        user_project: Option<String>,
        timeout_seconds: f64,
        retry_seconds: f64,
        listing_seconds: f64,
    ) -> PyResult<Self> {
        run(py, || {
            deltalog::storage::Storage::gcs(&GcsOptions {
                bucket,
                endpoint,
                user_project,
                times: times(timeout_seconds, retry_seconds, listing_seconds)?,
            })
        })
        .map(Self)
    }

    #[pyo3(signature = (*, access_key_id, secret_access_key, session_token=None))]
    fn replace_credentials(
        &self,
        py: Python<'_>,
        access_key_id: String,
        secret_access_key: String,
        session_token: Option<String>,
    ) -> PyResult<()> {
        let credentials = S3Credentials { access_key_id, secret_access_key, session_token };
        run(py, || self.0.replace_credentials(&credentials))
    }

    fn replace_account_key(&self, py: Python<'_>, key: &str) -> PyResult<()> {
        run(py, || self.0.replace_account_key(key))
    }

    fn replace_bearer_token(&self, py: Python<'_>, token: &str) -> PyResult<()> {
        run(py, || self.0.replace_bearer_token(token))
    }

    fn list_directories(&self, py: Python<'_>, root: &str) -> PyResult<(Vec<String>, bool)> {
        run(py, || self.0.list_directories(root))
            .map(|directories| (directories.names, directories.is_truncated))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

fn times(request: f64, retries: f64, listing: f64) -> deltalog::Result<RequestTimes> {
    let time = |seconds: f64| {
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| Error::InvalidArgument("a time limit must be a positive number of seconds".into()))
    };
    Ok(RequestTimes { request: time(request)?, retries: time(retries)?, listing: time(listing)? })
}
