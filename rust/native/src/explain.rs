//! `Explanation` and `Conjunct`: the effect of each condition, for `delta-gateway explain`.

use deltalog::explain::{ExplainedConjunct, Explanation as Explained};
use deltalog::predicate::Scope;
use pyo3::prelude::*;

/// The numbers of a version's files that a predicate keeps and prunes.
#[pyclass(frozen, get_all, module = "gateway._native")]
pub(crate) struct Explanation {
    considered: u64,
    kept: u64,
    conjuncts: Vec<Py<Conjunct>>,
    problems: Vec<(String, String)>,
}

/// One of the conditions that must all hold.
#[pyclass(frozen, get_all, module = "gateway._native")]
pub(crate) struct Conjunct {
    text: String,
    columns: Vec<String>,
    scope: &'static str,
    drops: u64,
    dropped_examples: Vec<String>,
}

impl Explanation {
    pub(crate) fn new(py: Python<'_>, explained: Explained) -> PyResult<Self> {
        let conjuncts = explained.conjuncts.into_iter().map(|conjunct| Py::new(py, Conjunct::from(conjunct)));
        let problems = explained.problems.into_iter().map(|problem| (problem.hint, problem.reason));
        Ok(Self {
            considered: explained.considered,
            kept: explained.kept,
            conjuncts: conjuncts.collect::<PyResult<_>>()?,
            problems: problems.collect(),
        })
    }
}

impl From<ExplainedConjunct> for Conjunct {
    fn from(conjunct: ExplainedConjunct) -> Self {
        let scope = match conjunct.scope {
            Scope::Constant => "constant",
            Scope::Partition => "partition",
            Scope::Statistics => "statistics",
            Scope::Both => "partition and statistics",
            Scope::Undecidable => "undecidable",
        };
        Self {
            text: conjunct.text,
            columns: conjunct.columns,
            scope,
            drops: conjunct.drops,
            dropped_examples: conjunct.dropped_examples,
        }
    }
}
