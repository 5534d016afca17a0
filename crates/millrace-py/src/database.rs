use std::path::PathBuf;

use millrace_core::database as core;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::io_error;

/// (entries, residues, bytes) up to about `most` evenly spread places of a FASTA file, the last one its end.
#[pyfunction]
fn sequence_marks(py: Python<'_>, path: PathBuf, most: u64) -> PyResult<Vec<(u64, u64, u64)>> {
    let marks = py.detach(|| core::sequence_marks(&path, most)).map_err(to_python)?;
    Ok(marks.into_iter().map(|mark| (mark.entries, mark.residues, mark.bytes)).collect())
}

/// Nodes of each profile in a file `.h3f`.
#[pyfunction]
fn profile_nodes(py: Python<'_>, path: PathBuf) -> PyResult<Vec<u64>> {
    py.detach(|| core::profile_nodes(&path)).map_err(to_python)
}

/// Makes what the fragments of a FASTA file need.
#[pyfunction]
fn prepare_sequences(py: Python<'_>, path: PathBuf, cuts: Vec<u64>, folder: PathBuf) -> PyResult<()> {
    py.detach(|| core::prepare_sequences(&path, &cuts, &folder)).map_err(to_python)
}

/// Makes what the fragments of a pressed profile database need.
#[pyfunction]
fn prepare_profiles(py: Python<'_>, path: PathBuf, cuts: Vec<u64>, folder: PathBuf) -> PyResult<()> {
    py.detach(|| core::prepare_profiles(&path, &cuts, &folder)).map_err(to_python)
}

/// Writes the FASTA file `dest` of the candidates.
#[pyfunction]
fn sequence_candidates(
    py: Python<'_>,
    path: PathBuf,
    prepared: PathBuf,
    cuts: Vec<u64>,
    found: Vec<PyBuffer<u8>>,
    dest: PathBuf,
    side: PathBuf,
) -> PyResult<()> {
    let found = found.iter().map(slice).collect::<PyResult<Vec<_>>>()?;
    py.detach(|| core::sequence_candidates(&path, &prepared, &cuts, &found, &dest, &side)).map_err(to_python)
}

/// Half-open ranges of the FASTA file that hold the candidates, in order.
#[pyfunction]
fn sequence_ranges(
    py: Python<'_>,
    prepared: PathBuf,
    cuts: Vec<u64>,
    found: Vec<PyBuffer<u8>>,
    side: PathBuf,
) -> PyResult<Vec<(u64, u64)>> {
    let found = found.iter().map(slice).collect::<PyResult<Vec<_>>>()?;
    py.detach(|| core::sequence_ranges(&prepared, &cuts, &found, &side)).map_err(to_python)
}

/// Writes the pressed profile database `dest` of the candidates.
#[pyfunction]
fn profile_candidates(
    py: Python<'_>,
    path: PathBuf,
    prepared: PathBuf,
    cuts: Vec<u64>,
    found: Vec<PyBuffer<u8>>,
    dest: PathBuf,
    side: PathBuf,
) -> PyResult<()> {
    let found = found.iter().map(slice).collect::<PyResult<Vec<_>>>()?;
    py.detach(|| core::profile_candidates(&path, &prepared, &cuts, &found, &dest, &side)).map_err(to_python)
}

/// The bytes of `buffer`, without a copy.
fn slice(buffer: &PyBuffer<u8>) -> PyResult<&[u8]> {
    if !buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("what a search found is read-only and in one piece"));
    }
    if buffer.len_bytes() == 0 {
        return Ok(&[]);
    }
    // SAFETY: the buffer is borrowed as long as the slice lives, in one piece, and read-only: bytes, or a view of a
    // journal, whose committed blocks nobody changes.
    Ok(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) })
}

fn to_python(error: core::Error) -> PyErr {
    match error {
        core::Error::Io { path, error } => {
            io_error(std::io::Error::new(error.kind(), format!("{}: {error}", path.display())))
        }
        core::Error::Data { .. } => PyValueError::new_err(error.to_string()),
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(sequence_marks, module)?)?;
    module.add_function(wrap_pyfunction!(profile_nodes, module)?)?;
    module.add_function(wrap_pyfunction!(prepare_sequences, module)?)?;
    module.add_function(wrap_pyfunction!(prepare_profiles, module)?)?;
    module.add_function(wrap_pyfunction!(sequence_candidates, module)?)?;
    module.add_function(wrap_pyfunction!(sequence_ranges, module)?)?;
    module.add_function(wrap_pyfunction!(profile_candidates, module)?)
}
