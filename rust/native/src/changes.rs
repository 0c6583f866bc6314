//! `Changes`: a range of versions of a table.

use std::sync::Arc;

use deltalog::Error;
use deltalog::query;
use deltalog::query::changes::{ChangeCursor, ChangeOptions};
use deltalog::table::{ChangesRequest, Heading};
use pyo3::prelude::*;

use crate::errors::run;
use crate::options::AnswerOptions;
use crate::shared::start;
use crate::snapshot::Snapshot;
use crate::stream::NdjsonChunks;

/// A range of versions, inclusive.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct Changes {
    table: Arc<deltalog::table::Table>,
    changes: Arc<deltalog::changes::Changes>,
}

impl Changes {
    pub(crate) fn open(
        table: &Arc<deltalog::table::Table>,
        request: ChangesRequest,
        stop: &deltalog::stop::Stop,
    ) -> deltalog::Result<Self> {
        let changes = table.changes(request, stop)?;
        Ok(Self { table: Arc::clone(table), changes })
    }
}

/// The Python argument `heading`.
#[derive(FromPyObject)]
pub(crate) enum HeadingArgument {
    Version(i64),
    Name(String),
}

impl HeadingArgument {
    pub(crate) fn heading(self) -> deltalog::Result<Heading> {
        match self {
            Self::Version(version) => Ok(Heading::Version(version)),
            Self::Name(name) if name == "start" => Ok(Heading::Start),
            Self::Name(name) if name == "latest" => Ok(Heading::Latest),
            Self::Name(name) => Err(Error::InvalidArgument(format!("no heading '{name}'"))),
        }
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
    fn heading_version(&self) -> i64 {
        self.changes.heading_version()
    }

    #[getter]
    fn is_lost(&self) -> bool {
        self.changes.is_lost()
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

    #[pyo3(signature = (options, *, include_historical_metadata=false, include_historical_protocol=false))]
    fn files(
        &self,
        py: Python<'_>,
        options: &AnswerOptions,
        include_historical_metadata: bool,
        include_historical_protocol: bool,
    ) -> PyResult<NdjsonChunks> {
        run(py, || {
            let requested = ChangeOptions {
                format: options.lines.format,
                include_historical_metadata,
                include_historical_protocol,
                rule: options.rule.as_ref().map(|rule| self.table.named_rule(rule)).transpose()?,
                hints: options.hints.clone(),
                max_files: options.max_files,
                access: Arc::clone(&options.access),
            };
            let from = options.cursor.as_deref().map(ChangeCursor::parse).transpose()?;
            let source = query::changes(
                &self.table,
                &self.changes,
                from,
                requested,
                &options.signers,
                options.lines,
                &options.stop,
            )?;
            start(Box::new(source), options.stream(false))
        })
    }
}
