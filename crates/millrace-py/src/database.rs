use std::path::PathBuf;

use millrace_core::database as core;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

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

/// Makes what the fragments of a FASTA file, or of a pressed profile database, need.
#[pyfunction]
#[pyo3(signature = (path, cuts, folder, new=None, *, pressed))]
fn prepare_targets(
    py: Python<'_>,
    path: PathBuf,
    cuts: Vec<u64>,
    folder: PathBuf,
    new: Option<Vec<(u64, u64)>>,
    pressed: bool,
) -> PyResult<()> {
    let prepare = if pressed { core::prepare_profiles } else { core::prepare_sequences };
    py.detach(|| prepare(&path, &cuts, core::New(new.as_deref()), &folder)).map_err(to_python)
}

/// A target database that was prepared, as the candidates of a batch are made of it.
#[pyclass(frozen)]
struct PreparedTargets {
    path: PathBuf,
    prepared: PathBuf,
    cuts: Vec<u64>,
    n_new: u64,
}

impl PreparedTargets {
    fn whole(&self) -> core::Whole<'_> {
        core::Whole { path: &self.path, prepared: &self.prepared, cuts: &self.cuts, n_new: self.n_new }
    }
}

#[pymethods]
impl PreparedTargets {
    #[new]
    #[pyo3(signature = (path, prepared, cuts, n_new=0))]
    fn new(path: PathBuf, prepared: PathBuf, cuts: Vec<u64>, n_new: u64) -> Self {
        Self { path, prepared, cuts, n_new }
    }

    /// Writes the FASTA file `dest` of the candidates.
    fn write_sequences(&self, py: Python<'_>, found: Vec<PyBuffer<u8>>, dest: PathBuf, side: PathBuf) -> PyResult<()> {
        let found = found.iter().map(slice).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| core::sequence_candidates(&self.whole(), &found, &dest, &side)).map_err(to_python)
    }

    /// Half-open ranges of the FASTA file that hold the candidates, in order.
    fn list_ranges(&self, py: Python<'_>, found: Vec<PyBuffer<u8>>, side: PathBuf) -> PyResult<Vec<(u64, u64)>> {
        let found = found.iter().map(slice).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| core::sequence_ranges(&self.whole(), &found, &side)).map_err(to_python)
    }

    /// Writes the pressed profile database `dest` of the candidates.
    #[pyo3(signature = (found, dest, side, *, alone))]
    fn write_profiles(
        &self,
        py: Python<'_>,
        found: Vec<PyBuffer<u8>>,
        dest: PathBuf,
        side: PathBuf,
        alone: bool,
    ) -> PyResult<()> {
        let found = found.iter().map(slice).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| core::profile_candidates(&self.whole(), &found, &dest, &side, alone)).map_err(to_python)
    }
}

/// Digests of all targets, one after the other.
#[pyfunction]
#[pyo3(signature = (path, *, pressed))]
fn target_digests<'py>(py: Python<'py>, path: PathBuf, pressed: bool) -> PyResult<Bound<'py, PyBytes>> {
    let digests = py.detach(|| core::target_digests(&path, pressed)).map_err(to_python)?;
    Ok(PyBytes::new(py, &digests))
}

/// Lengths of the longest name and the longest accession of a pressed profile database.
#[pyfunction]
fn profile_widths(py: Python<'_>, path: PathBuf) -> PyResult<(u64, u64)> {
    py.detach(|| core::profile_widths(&path)).map_err(to_python)
}

/// Names of the pressed profiles that have not the cutoff of that number: 0 and 1 are GA, 2 and 3 TC, 4 and 5 NC.
#[pyfunction]
fn profiles_without_cutoff(py: Python<'_>, path: PathBuf, cutoff: u8) -> PyResult<Vec<String>> {
    py.detach(|| core::profiles_without_cutoff(&path, cutoff)).map_err(to_python)
}

/// Ordinals of the targets that a query has found, none if a name is not certain, and its counts.
type QueryTargets = (Option<Vec<u64>>, Vec<u64>);

/// The names of all targets; see `millrace_core::database::TargetNames`.
#[pyclass(frozen)]
struct TargetNames(core::TargetNames);

#[pymethods]
impl TargetNames {
    #[new]
    #[pyo3(signature = (path, *, pressed))]
    fn new(py: Python<'_>, path: PathBuf, pressed: bool) -> PyResult<Self> {
        py.detach(|| core::TargetNames::read(&path, pressed)).map(Self).map_err(to_python)
    }

    /// What each query has found.
    fn find_queries(&self, py: Python<'_>, text: &[u8]) -> PyResult<Vec<QueryTargets>> {
        let found = py.detach(|| self.0.find_queries(text)).map_err(to_python)?;
        Ok(found.into_iter().map(|query| (query.ordinals, query.counts)).collect())
    }
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
    module.add_function(wrap_pyfunction!(prepare_targets, module)?)?;
    module.add_function(wrap_pyfunction!(profile_widths, module)?)?;
    module.add_function(wrap_pyfunction!(profiles_without_cutoff, module)?)?;
    module.add_function(wrap_pyfunction!(target_digests, module)?)?;
    module.add_class::<PreparedTargets>()?;
    module.add_class::<TargetNames>()
}
