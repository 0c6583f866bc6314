//! `RowGroupFilter`: the conditions of a read for row groups of data files, for the Spark pipeline.

use deltalog::actions::Metadata;
use deltalog::predicate::{Hints, Predicate};
use pyo3::prelude::*;

/// Conditions on the columns of a table.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct RowGroupFilter(Predicate);

#[pymethods]
impl RowGroupFilter {
    #[new]
    #[pyo3(signature = (
        schema_string,
        *,
        partition_columns,
        column_mapping_mode,
        predicate_hints,
        json_predicate_hint = None,
    ))]
    fn new(
        schema_string: String,
        partition_columns: Vec<String>,
        column_mapping_mode: String,
        predicate_hints: Vec<String>,
        json_predicate_hint: Option<String>,
    ) -> Self {
        let metadata = Metadata {
            schema_string: Some(schema_string),
            partition_columns,
            configuration: vec![("delta.columnMapping.mode".to_owned(), column_mapping_mode)],
            ..Metadata::default()
        };
        let hints = Hints { sql: predicate_hints, json: json_predicate_hint };
        Self(Predicate::of_table(&metadata, &hints).0)
    }

    #[getter]
    fn columns(&self) -> Vec<Vec<String>> {
        self.0.stats_paths().into_iter().map(<[String]>::to_vec).collect()
    }

    fn may_match(&self, stats: &str) -> bool {
        self.0.may_match_stats(stats)
    }
}
