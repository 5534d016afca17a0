use millrace_core::join as core;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Joins `blocks`, a list of (n_records, bytes) in input order, by the rule `spec`.
#[pyfunction]
fn join<'py>(py: Python<'py>, spec: &str, blocks: Vec<(u64, Vec<u8>)>) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = Vec::new();
    let mut run = || -> Result<(), core::JoinError> {
        let mut joiner = core::joiner(spec)?;
        for (n_records, block) in &blocks {
            joiner.block(*n_records, &mut block.as_slice(), &mut out)?;
        }
        joiner.finish(&mut out)
    };
    run().map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, &out))
}

/// Puts right what the search of the candidates could not know: the patch `kind` with what `side` says.
#[pyfunction]
fn patch<'py>(py: Python<'py>, kind: &str, side: &[u8], block: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = Vec::new();
    core::fragment::patch(kind, &mut &*side, &mut &*block, &mut out)
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, &out))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(patch, module)?)?;
    module.add_function(wrap_pyfunction!(join, module)?)
}
