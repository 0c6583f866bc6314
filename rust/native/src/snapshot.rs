//! `Snapshot`: one version of a table.

use std::sync::Arc;

use deltalog::explain::explain;
use deltalog::inventory::inventory;
use deltalog::predicate::{Hints, Predicate};
use deltalog::query::{self, FilesRequest, HeaderOptions};
use deltalog::scan::Cursor;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::run;
use crate::explain::Explanation;
use crate::inventory::Inventory;
use crate::options::{AnswerOptions, response_format_of};
use crate::rule::{Rule, shared};
use crate::shared::{pool, start};
use crate::stop::{Stop, or_never};
use crate::stream::NdjsonChunks;

/// One version of a table.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct Snapshot {
    table: Arc<deltalog::table::Table>,
    snapshot: Arc<deltalog::snapshot::Snapshot>,
}

impl Snapshot {
    pub(crate) fn new(
        table: Arc<deltalog::table::Table>,
        snapshot: Arc<deltalog::snapshot::Snapshot>,
    ) -> Self {
        Self { table, snapshot }
    }
}

#[pymethods]
impl Snapshot {
    #[getter]
    fn version(&self) -> i64 {
        self.snapshot.version()
    }

    #[getter]
    fn timestamp_ms(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        run(py, || self.snapshot.timestamp_ms())
    }

    #[getter]
    fn table_id(&self) -> &str {
        &self.snapshot.metadata().id
    }

    #[getter]
    fn min_reader_version(&self) -> i32 {
        self.snapshot.protocol().min_reader_version
    }

    #[getter]
    fn client_reader_features(&self) -> Vec<String> {
        self.snapshot.client_reader_features()
    }

    #[getter]
    fn needs_delta_format(&self) -> bool {
        self.snapshot.needs_delta_format()
    }

    #[getter]
    fn change_data_feed(&self) -> bool {
        self.snapshot.change_data_feed()
    }

    #[getter]
    fn partition_columns(&self) -> Vec<String> {
        self.snapshot.metadata().partition_columns.clone()
    }

    #[getter]
    fn schema_string(&self) -> Option<&str> {
        self.snapshot.metadata().schema_string.as_deref()
    }

    #[getter]
    fn is_in_memory(&self) -> bool {
        self.table.is_in_memory(&self.snapshot, None)
    }

    #[getter]
    fn has_totals(&self) -> bool {
        self.snapshot.known_totals().is_some()
    }

    fn has_totals_within(&self, rule: Option<&Rule>) -> bool {
        let Some(rule) = rule else { return self.has_totals() };
        // A schema may have thousands of columns: binding to it does not belong on the event loop.
        let bound = self.table.known_rule(&rule.0, &self.snapshot);
        bound.is_some_and(|bound| self.snapshot.known_totals_within(Some(&bound)).is_some())
    }

    fn is_in_memory_within(&self, rule: Option<&Rule>) -> bool {
        let Some(rule) = rule else { return self.is_in_memory() };
        let bound = self.table.known_rule(&rule.0, &self.snapshot);
        bound.is_some_and(|bound| self.table.is_in_memory(&self.snapshot, Some(&bound)))
    }

    fn check_rule(&self, py: Python<'_>, rule: &Rule) -> PyResult<()> {
        run(py, || rule.0.bind(self.snapshot.metadata()).map(|_| ()))
    }

    #[getter]
    fn has_bad_hint(&self) -> bool {
        self.snapshot.segment().has_bad_hint
    }

    #[getter]
    fn left_out(&self) -> Vec<(String, String)> {
        let left_out = self.snapshot.segment().left_out.iter();
        left_out.map(|left_out| (left_out.file.clone(), left_out.reason.clone())).collect()
    }

    #[getter]
    fn is_lost(&self) -> bool {
        self.snapshot.is_lost()
    }

    #[getter]
    fn commit_mark(&self) -> Option<String> {
        self.snapshot.commit_mark()
    }

    #[getter]
    fn identity(&self) -> String {
        self.snapshot.identity().to_string()
    }

    #[pyo3(signature = (response_format, *, with_version, history_shared=false, access="", rule=None, stop=None))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of Python
    fn header<'py>(
        &self,
        py: Python<'py>,
        response_format: &str,
        with_version: bool,
        history_shared: bool,
        access: &str,
        rule: Option<&Rule>,
        stop: Option<&Stop>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (stop, rule) = (or_never(stop), shared(rule));
        let head = run(py, || {
            let format = response_format_of(response_format)?;
            let rule = rule.as_ref();
            let options = HeaderOptions { format, with_version, history_shared, access, rule };
            query::header(&self.table, &self.snapshot, options, &stop)
        })?;
        Ok(PyBytes::new(py, &head))
    }

    #[pyo3(signature = (stop=None, *, rule=None))]
    fn totals(&self, py: Python<'_>, stop: Option<&Stop>, rule: Option<&Rule>) -> PyResult<(u64, u64)> {
        let (stop, rule) = (or_never(stop), shared(rule));
        run(py, || {
            let bound = self.table.bound_rule(rule.as_ref(), &self.snapshot)?;
            let totals = self.table.totals_within(&self.snapshot, bound.as_ref(), &stop)?;
            Ok((totals.files, totals.size_bytes))
        })
    }

    #[pyo3(signature = (options, *, limit_hint=None, with_version=false))]
    fn files(
        &self,
        py: Python<'_>,
        options: &AnswerOptions,
        limit_hint: Option<u64>,
        with_version: bool,
    ) -> PyResult<NdjsonChunks> {
        run(py, || {
            let request = FilesRequest {
                rule: options.rule.clone(),
                hints: options.hints.clone(),
                limit_hint,
                max_files: options.max_files,
                after: options.cursor.as_deref().map(Cursor::parse).transpose()?,
                with_version,
                access: Arc::clone(&options.access),
                stop: options.stop.clone(),
            };
            let source = query::files(
                &self.table,
                &self.snapshot,
                &request,
                &options.signers,
                options.lines,
                &pool()?,
            )?;
            let inline = query::is_made_inline(&self.table, &self.snapshot, &request, &options.signers);
            start(Box::new(source), options.stream(inline))
        })
    }

    fn hint_problems(
        &self,
        py: Python<'_>,
        predicate_hints: Vec<String>,
        json_predicate_hint: Option<String>,
    ) -> Vec<(String, String)> {
        let hints = Hints { sql: predicate_hints, json: json_predicate_hint };
        py.detach(|| {
            let (_, problems) = Predicate::of_table(self.snapshot.metadata(), &hints);
            problems.into_iter().map(|problem| (problem.hint, problem.reason)).collect()
        })
    }

    #[pyo3(signature = (predicate_hints, json_predicate_hint, *, rule=None))]
    fn explain(
        &self,
        py: Python<'_>,
        predicate_hints: Vec<String>,
        json_predicate_hint: Option<String>,
        rule: Option<&Rule>,
    ) -> PyResult<Explanation> {
        let (hints, rule) = (Hints { sql: predicate_hints, json: json_predicate_hint }, shared(rule));
        let explained = run(py, || {
            explain(&self.snapshot, &hints, self.table.bound_rule(rule.as_ref(), &self.snapshot)?)
        })?;
        Explanation::new(py, explained)
    }

    #[pyo3(signature = (bounds, *, stop=None))]
    fn inventory(&self, py: Python<'_>, bounds: Vec<u64>, stop: Option<&Stop>) -> PyResult<Inventory> {
        let stop = or_never(stop);
        run(py, move || inventory(&self.snapshot, &bounds, &stop)).map(Inventory::from)
    }
}
