use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_core::commit as core;
use millrace_core::join::layout::Before;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{io_error, join_error};
use crate::journal::{BlockParts, BlockRef, BlockValues, block_of, parts};

/// A block and its part of an output.
#[pyclass(frozen, module = "millrace._core")]
#[derive(Clone)]
pub(crate) struct OutputPiece(core::OutputPiece);

/// What the joiner of a piece must know: records and counts before it, and whether the output has begun; None: nothing.
type BeforeValues = Option<(u64, Vec<u64>, bool)>;

#[pymethods]
impl OutputPiece {
    #[new]
    fn new(journal: PathBuf, block: BlockValues, n_records: u64, before: BeforeValues, length: u64) -> Self {
        let before = before.map(|(records, counts, headed)| Before { records, counts, headed });
        let stored = core::StoredBlock { block: block_of(block), journal: journal.into() };
        Self(core::OutputPiece { stored, n_records, before, length })
    }

    /// What `new` takes.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> (&OsStr, BlockParts<'py>, u64, BeforeValues, u64) {
        let core::OutputPiece { stored, n_records, before, length } = &self.0;
        let before = before.as_ref().map(|before| (before.records, before.counts.clone(), before.headed));
        (stored.journal.as_os_str(), parts(py, &stored.block), *n_records, before, *length)
    }

    #[getter]
    fn length(&self) -> u64 {
        self.0.length
    }

    /// The first `most` bytes of it in an output that is joined by `join`.
    fn excerpt<'py>(&self, py: Python<'py>, join: &str, most: usize) -> PyResult<Bound<'py, PyBytes>> {
        let excerpt = py.detach(|| self.0.excerpt(join, most)).map_err(join_error)?;
        Ok(PyBytes::new(py, &excerpt.bytes))
    }
}

/// Finds the part that each block has in an output.
#[pyclass(frozen)]
pub(crate) struct OutputLayout(Mutex<core::OutputLayout>);

impl OutputLayout {
    fn lock(&self) -> MutexGuard<'_, core::OutputLayout> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl OutputLayout {
    #[new]
    fn new(join: &str) -> PyResult<Self> {
        let layout = core::OutputLayout::new(join).map_err(join_error)?;
        let layout = layout.ok_or_else(|| PyValueError::new_err(format!("{join}: one joiner must see all blocks")))?;
        Ok(Self(Mutex::new(layout)))
    }

    /// The part of the next block, which is of `n_records`.
    fn place(&self, py: Python<'_>, n_records: u64, block: &BlockRef) -> PyResult<OutputPiece> {
        py.detach(|| self.lock().place(n_records, &block.0)).map(OutputPiece).map_err(join_error)
    }

    /// What follows the last block.
    fn end<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let end = py.detach(|| self.lock().end()).map_err(join_error)?;
        Ok(PyBytes::new(py, &end))
    }
}

/// Whether each block of an output that is joined by `join` can be joined by itself.
#[pyfunction]
fn is_separable(join: &str) -> PyResult<bool> {
    millrace_core::join::layout::is_separable(join).map_err(join_error)
}

/// Writes blocks at given places of a file that others write too.
#[pyclass(frozen)]
pub(crate) struct PartWriter(core::PartWriter);

/// Bytes that are to be written, each at its place.
#[pyclass(frozen)]
pub(crate) struct Gathered(core::Gathered);

#[pymethods]
impl Gathered {
    /// (offset, bytes) of each.
    #[getter]
    fn pieces<'py>(&self, py: Python<'py>) -> Vec<(u64, Bound<'py, PyBytes>)> {
        self.0.pieces().iter().map(|(at, bytes)| (*at, PyBytes::new(py, bytes))).collect()
    }
}

#[pymethods]
impl PartWriter {
    /// Opens the file at `path`, which is there and whose blocks are joined by `join`.
    #[new]
    #[pyo3(signature = (path, join="concat"))]
    fn new(path: PathBuf, join: &str) -> PyResult<Self> {
        core::PartWriter::open(path, join.to_owned()).map(Self).map_err(io_error)
    }

    /// Writes blocks at their offsets, verifying checksums on the way; neighbours are written together.
    fn write(&self, py: Python<'_>, pieces: Vec<(u64, Py<OutputPiece>)>) -> PyResult<()> {
        py.detach(|| self.0.write(pieces.iter().map(|(at, piece)| (*at, &piece.get().0)))).map_err(io_error)
    }

    /// Reads blocks that are to be written later, verifying checksums on the way.
    fn gather(&self, py: Python<'_>, pieces: Vec<(u64, Py<OutputPiece>)>) -> PyResult<Gathered> {
        let pieces = pieces.iter().map(|(at, piece)| (*at, &piece.get().0));
        py.detach(|| self.0.gather(pieces)).map(Gathered).map_err(io_error)
    }

    /// Writes what was gathered.
    fn write_gathered(&self, py: Python<'_>, gathered: &Gathered) -> PyResult<()> {
        py.detach(|| self.0.write_gathered(&gathered.0)).map_err(io_error)
    }

    /// Allows writing for so many seconds from now, and no longer.
    fn allow(&self, seconds: f64) {
        self.0.allow(Duration::from_secs_f64(seconds));
    }

    /// Number of the file in its filesystem: another one at its path has another.
    #[getter]
    fn inode(&self) -> PyResult<u64> {
        self.0.inode().map_err(io_error)
    }

    /// Bytes that are not yet known to be on disk.
    #[getter]
    fn unsynced(&self) -> u64 {
        self.0.unsynced()
    }

    /// Waits until everything written so far is on disk.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.sync()).map_err(io_error)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<OutputPiece>()?;
    module.add_class::<OutputLayout>()?;
    module.add_function(wrap_pyfunction!(is_separable, module)?)?;
    module.add_class::<PartWriter>()?;
    module.add_class::<Gathered>()
}
