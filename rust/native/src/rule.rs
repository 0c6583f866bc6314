//! `Rule`: the conditions of grants for one recipient.

use std::collections::BTreeMap;
use std::sync::Arc;

use deltalog::predicate;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Conditions over partition columns of which one has to be true.
#[pyclass(frozen, module = "gateway._native")]
pub(crate) struct Rule(pub(crate) Arc<predicate::Rule>);

#[pymethods]
impl Rule {
    #[new]
    #[allow(clippy::needless_pass_by_value)] // the arguments of Python
    fn new(conditions: Vec<String>, properties: BTreeMap<String, String>) -> PyResult<Self> {
        let properties: Vec<(String, String)> = properties.into_iter().collect();
        let rule = predicate::Rule::parse(&conditions, &properties).map_err(PyValueError::new_err)?;
        Ok(Self(Arc::new(rule)))
    }

    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.key())
    }

    #[getter]
    fn text(&self) -> String {
        self.0.text()
    }
}

/// Returns the rule of an argument.
pub(crate) fn shared(rule: Option<&Rule>) -> Option<Arc<predicate::Rule>> {
    rule.map(|rule| Arc::clone(&rule.0))
}
