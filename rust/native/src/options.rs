//! `AnswerOptions`: the format, signers, filters and page of an answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deltalog::ndjson::{IdScheme, ResponseFormat};
use deltalog::predicate::{Hints, Rule};
use deltalog::query::LineOptions;
use deltalog::sign::SignerSet;
use deltalog::stream::ContentCoding;
use deltalog::stream::StreamOptions;
use deltalog::{Error, Result};
use pyo3::prelude::*;

use crate::errors::run;
use crate::rule::shared;
use crate::signers::Signers;
use crate::stop::{Stop, or_never};

/// The format, signers, filters and page of an answer.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct AnswerOptions {
    pub(crate) signers: Arc<SignerSet>,
    pub(crate) lines: LineOptions,
    pub(crate) hints: Hints,
    pub(crate) rule: Option<Arc<Rule>>,
    pub(crate) max_files: Option<u64>,
    pub(crate) cursor: Option<String>,
    pub(crate) access: Arc<str>,
    coding: ContentCoding,
    deadline: Option<Instant>,
    pub(crate) stop: deltalog::stop::Stop,
}

#[pymethods]
impl AnswerOptions {
    #[new]
    #[pyo3(signature = (signers, *, response_format, now_ms, lifetime_seconds, file_id_scheme=None,
        predicate_hints=Vec::new(), json_predicate_hint=None, max_files=None, cursor=None,
        content_coding="identity", deadline_ms=None, history_shared=false, access="", rule=None, stop=None))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of Python
    fn new(
        py: Python<'_>,
        signers: &Signers,
        response_format: &str,
        now_ms: i64,
        lifetime_seconds: i64,
        file_id_scheme: Option<&str>,
        predicate_hints: Vec<String>,
        json_predicate_hint: Option<String>,
        max_files: Option<u64>,
        cursor: Option<String>,
        content_coding: &str,
        deadline_ms: Option<i64>,
        history_shared: bool,
        access: &str,
        rule: Option<&crate::rule::Rule>,
        stop: Option<&Stop>,
    ) -> PyResult<Self> {
        let (stop, rule) = (or_never(stop), shared(rule));
        run(py, || {
            let format = response_format_of(response_format)?;
            let ids = file_id_scheme.map_or(Ok(format.id_scheme()), id_scheme_of)?;
            Ok(Self {
                signers: Arc::clone(&signers.0),
                lines: LineOptions { format, ids, now_ms, lifetime_seconds, history_shared },
                hints: Hints { sql: predicate_hints, json: json_predicate_hint },
                rule,
                max_files,
                cursor,
                access: Arc::from(access),
                coding: content_coding_of(content_coding)?,
                deadline: deadline_ms.map(|deadline_ms| instant_of(deadline_ms, now_ms)),
                stop,
            })
        })
    }
}

impl AnswerOptions {
    /// The options of the stream; `inline` produces it on the calling thread.
    pub(crate) fn stream(&self, inline: bool) -> StreamOptions {
        StreamOptions { coding: self.coding, deadline: self.deadline, inline }
    }
}

pub(crate) fn response_format_of(name: &str) -> Result<ResponseFormat> {
    match name {
        "parquet" => Ok(ResponseFormat::Parquet),
        "delta" => Ok(ResponseFormat::Delta),
        _ => Err(Error::InvalidArgument(format!("no response format '{name}'"))),
    }
}

fn id_scheme_of(name: &str) -> Result<IdScheme> {
    match name {
        "parquet" => Ok(IdScheme::Parquet),
        "delta" => Ok(IdScheme::Delta),
        _ => Err(Error::InvalidArgument(format!("no id scheme '{name}'"))),
    }
}

fn content_coding_of(name: &str) -> Result<ContentCoding> {
    match name {
        "identity" => Ok(ContentCoding::Identity),
        "gzip" => Ok(ContentCoding::Gzip),
        "zstd" => Ok(ContentCoding::Zstd),
        _ => Err(Error::InvalidArgument(format!("no content coding '{name}'"))),
    }
}

/// Converts a time of the caller's clock, whose current time is `now_ms`, to this process's clock.
fn instant_of(time_ms: i64, now_ms: i64) -> Instant {
    Instant::now() + Duration::from_millis(u64::try_from(time_ms - now_ms).unwrap_or(0))
}
