use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use millrace_core::commit as core;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{io_error, join_error};
use crate::journal::BlockRef;

/// Joins the blocks of one stream, in order, into a file or an open descriptor.
#[pyclass(frozen)]
pub(crate) struct StreamWriter(Mutex<core::StreamWriter>);

impl StreamWriter {
    fn lock(&self) -> MutexGuard<'_, core::StreamWriter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl StreamWriter {
    /// Writes from the start of the file at `path` over what is there: after a resume the bytes are the same,
    /// and a reader that follows the file sees no change. Without `path`, writes to the descriptor `fd`.
    /// `prompt`: the filesystem tells at once when a file was changed.
    #[new]
    #[pyo3(signature = (join, path=None, fd=1, prompt=true))]
    fn new(join: &str, path: Option<PathBuf>, fd: RawFd, prompt: bool) -> PyResult<Self> {
        let writer = match path {
            Some(path) => core::StreamWriter::over(join, path, prompt),
            None => core::StreamWriter::into_descriptor(join, copied(fd).map_err(io_error)?),
        };
        Ok(Self(Mutex::new(writer.map_err(join_error)?)))
    }

    /// Appends a batch of `n_records` whose block is `block`, verifying its checksum on the way.
    fn append(&self, py: Python<'_>, n_records: u64, block: &BlockRef) -> PyResult<()> {
        py.detach(|| self.lock().append(n_records, &block.0)).map_err(join_error)
    }

    /// The blocks that follow were written by the command in its form `form`: 0 is the present one.
    fn set_form(&self, form: u32) {
        self.lock().set_form(form);
    }

    /// Hands what is buffered to the operating system, so that a reader sees it.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.lock().flush()).map_err(io_error)
    }

    /// Writes the end, cuts off what an earlier run left behind it, waits for the disk; returns all bytes written.
    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.lock().finish()).map_err(join_error)
    }

    /// What somebody else has made of the file while it was written, in words, after `finish`; empty: nothing.
    fn changed(&self, py: Python<'_>) -> PyResult<&'static str> {
        py.detach(|| self.lock().changed()).map_err(io_error)
    }
}

/// A descriptor of our own for what `fd` is open on.
pub(crate) fn copied(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: borrowed for this call alone, in which it is only copied; a closed one gives an error.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
}

/// The first `most` bytes that a stream would have if these blocks, (number of records, block), were all, with the length
/// and the CRC-32C of all its bytes; what matches one of `volatile`, which may differ between two serial runs, is left out.
#[pyfunction]
fn joined<'py>(
    py: Python<'py>,
    join: &str,
    blocks: Vec<(u64, PyRef<'_, BlockRef>)>,
    volatile: Vec<String>,
    most: usize,
) -> PyResult<(Bound<'py, PyBytes>, u64, u32)> {
    let blocks: Vec<_> = blocks.iter().map(|(n_records, block)| (*n_records, block.0.clone())).collect();
    let excerpt = py.detach(|| core::joined(join, &blocks, &volatile, most)).map_err(join_error)?;
    Ok((PyBytes::new(py, &excerpt.bytes), excerpt.length, excerpt.crc32c))
}

/// Writes one block, as it is, to the file `path`; returns its length. Over what is there, as `StreamWriter` does.
#[pyfunction]
fn extract(py: Python<'_>, block: &BlockRef, path: PathBuf) -> PyResult<u64> {
    py.detach(|| core::extract(&block.0, &path)).map_err(io_error)
}

/// Waits until everything written on the filesystem of `path` is on disk: any number of files, once for all.
#[pyfunction]
fn sync_filesystem(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    py.detach(|| core::sync_filesystem(&path)).map_err(io_error)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StreamWriter>()?;
    module.add_function(wrap_pyfunction!(sync_filesystem, module)?)?;
    module.add_function(wrap_pyfunction!(joined, module)?)?;
    module.add_function(wrap_pyfunction!(extract, module)?)
}
