use std::path::PathBuf;
use std::time::Duration;

use millrace_core::commit as core;
use pyo3::prelude::*;

use crate::errors::io_error;
use crate::journal::BlockRef;

/// Writes blocks at given places of a file that others write too.
#[pyclass(frozen)]
pub(crate) struct PartWriter(core::PartWriter);

/// Bytes that are to be written, each at its place.
#[pyclass(frozen)]
pub(crate) struct Gathered(core::Gathered);

#[pymethods]
impl PartWriter {
    /// Opens the file at `path`, which is there.
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        core::PartWriter::open(path).map(Self).map_err(io_error)
    }

    /// Writes blocks at their offsets, verifying checksums on the way; neighbours are written together.
    fn write(&self, py: Python<'_>, pieces: Vec<(u64, Py<BlockRef>)>) -> PyResult<()> {
        py.detach(|| self.0.write(pieces.iter().map(|(at, block)| (*at, &block.get().0)))).map_err(io_error)
    }

    /// Reads blocks that are to be written later, verifying checksums on the way.
    fn gather(&self, py: Python<'_>, pieces: Vec<(u64, Py<BlockRef>)>) -> PyResult<Gathered> {
        let pieces = pieces.iter().map(|(at, block)| (*at, &block.get().0));
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
    module.add_class::<PartWriter>()?;
    module.add_class::<Gathered>()
}
