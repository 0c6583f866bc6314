//! `Changes`: a range of versions of a table.

use std::sync::Arc;

use deltalog::answer;
use deltalog::changes::ChangeKind;
use deltalog::ndjson::changes::{ChangeOptions, ChangePlace};
use deltalog::predicate::Hints;
use pyo3::prelude::*;

use crate::errors::run;
use crate::signers::Signers;
use crate::stream::NdjsonChunks;
use crate::table::{Snapshot, line_options, start, stream_options};

/// A range of versions, inclusive.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct Changes {
    table: Arc<deltalog::table::Table>,
    changes: Arc<deltalog::changes::Changes>,
}

impl Changes {
    pub(crate) fn open(
        table: &Arc<deltalog::table::Table>,
        starting_version: i64,
        ending_version: Option<i64>,
        change_data_feed: bool,
    ) -> deltalog::Result<Self> {
        let kind = if change_data_feed { ChangeKind::ChangeDataFeed } else { ChangeKind::Files };
        let changes = table.changes(kind, starting_version, ending_version)?;
        Ok(Self { table: Arc::clone(table), changes })
    }
}

#[pymethods]
impl Changes {
    #[getter]
    fn starting_version(&self) -> i64 {
        self.changes.starting_version()
    }

    #[getter]
    fn ending_version(&self) -> i64 {
        self.changes.ending_version()
    }

    #[getter]
    fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::clone(&self.table), Arc::clone(self.changes.head()))
    }

    #[getter]
    fn client_reader_features(&self) -> Vec<String> {
        self.changes.client_reader_features().to_vec()
    }

    #[getter]
    fn needs_delta_format(&self) -> bool {
        self.changes.needs_delta_format()
    }

    #[getter]
    fn identity(&self) -> String {
        self.changes.identity()
    }

    #[pyo3(signature = (signers, *, response_format, now_ms, lifetime_seconds, file_id_scheme=None,
        include_historical_metadata=false, include_historical_protocol=false, predicate_hints=Vec::new(),
        json_predicate_hint=None, max_files=None, place=None, content_coding="identity", deadline_ms=None))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of Python
    fn files(
        &self,
        py: Python<'_>,
        signers: &Signers,
        response_format: &str,
        now_ms: i64,
        lifetime_seconds: i64,
        file_id_scheme: Option<&str>,
        include_historical_metadata: bool,
        include_historical_protocol: bool,
        predicate_hints: Vec<String>,
        json_predicate_hint: Option<String>,
        max_files: Option<u64>,
        place: Option<&str>,
        content_coding: &str,
        deadline_ms: Option<i64>,
    ) -> PyResult<NdjsonChunks> {
        run(py, || {
            let lines = line_options(response_format, file_id_scheme, now_ms, lifetime_seconds)?;
            let options = ChangeOptions {
                format: lines.format,
                include_historical_metadata,
                include_historical_protocol,
                hints: Hints { sql: predicate_hints, json: json_predicate_hint },
                max_files,
            };
            let from = place.map(ChangePlace::parse).transpose()?;
            let source = answer::changes(&self.table, &self.changes, from, options, &signers.0, lines)?;
            start(Box::new(source), stream_options(content_coding, now_ms, deadline_ms)?)
        })
    }
}
