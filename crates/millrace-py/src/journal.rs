use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_core::commit::{SharedJournal, StoredBlock};
use millrace_core::journal as core;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::errors::{io_error, journal_error};

/// A block as plain values: (stream, name, offset, length, crc32c).
pub(crate) type BlockValues = (u16, Vec<u8>, u64, u64, u32);

/// Where the bytes of one block are: in which journal, and where in it.
#[pyclass(frozen, module = "millrace._core")]
#[derive(Clone)]
pub(crate) struct BlockRef(pub(crate) StoredBlock);

#[pymethods]
impl BlockRef {
    #[new]
    fn new(journal: PathBuf, values: BlockValues) -> Self {
        Self(StoredBlock { block: block_of(values), journal: journal.into() })
    }

    /// What `new` takes.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> (&OsStr, BlockParts<'py>) {
        (self.0.journal.as_os_str(), parts(py, &self.0.block))
    }

    #[getter]
    fn journal(&self) -> &Path {
        &self.0.journal
    }

    #[getter]
    fn stream(&self) -> u16 {
        self.0.block.stream
    }

    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.block.name)
    }

    #[getter]
    fn offset(&self) -> u64 {
        self.0.block.offset
    }

    #[getter]
    fn length(&self) -> u64 {
        self.0.block.length
    }

    #[getter]
    fn crc32c(&self) -> u32 {
        self.0.block.crc32c
    }
}

/// One committed task: records `[first, last)`.
#[pyclass(frozen, module = "millrace._core")]
#[derive(Clone)]
pub(crate) struct TaskRef(pub(crate) core::TaskRef, pub(crate) Arc<Path>);

#[pymethods]
impl TaskRef {
    #[new]
    fn new(
        journal: PathBuf,
        extent: (u64, u64, u32),
        quarantined: bool,
        inputs: Vec<(u64, u32)>,
        blocks: Vec<BlockValues>,
    ) -> Self {
        let (first, last, fragment) = extent;
        let blocks = blocks.into_iter().map(block_of).collect();
        let inputs = digests(&inputs);
        Self(core::TaskRef { first, last, fragment, quarantined, inputs, blocks }, journal.into())
    }

    /// What `new` takes.
    #[getter]
    #[allow(clippy::type_complexity)] // the constructor's arguments, said once more
    fn values<'py>(&self, py: Python<'py>) -> (&OsStr, (u64, u64, u32), bool, Vec<(u64, u32)>, Vec<BlockParts<'py>>) {
        let task = &self.0;
        let blocks = task.blocks.iter().map(|block| parts(py, block)).collect();
        (self.1.as_os_str(), (task.first, task.last, task.fragment), task.quarantined, self.inputs(), blocks)
    }

    #[getter]
    fn first(&self) -> u64 {
        self.0.first
    }

    #[getter]
    fn last(&self) -> u64 {
        self.0.last
    }

    /// Number of the fragment of the database, from 1; 0 for what belongs to the output.
    #[getter]
    fn fragment(&self) -> u32 {
        self.0.fragment
    }

    #[getter]
    fn quarantined(&self) -> bool {
        self.0.quarantined
    }

    /// (bytes, crc32c) of the batch in each input.
    #[getter]
    fn inputs(&self) -> Vec<(u64, u32)> {
        self.0.inputs.iter().map(|input| (input.bytes, input.crc32c)).collect()
    }

    #[getter]
    fn blocks(&self) -> Vec<BlockRef> {
        self.0
            .blocks
            .iter()
            .map(|block| BlockRef(StoredBlock { block: block.clone(), journal: self.1.clone() }))
            .collect()
    }
}

/// What a journal holds, and what is wrong with it.
#[pyclass(frozen)]
pub(crate) struct Scan(core::Scan, Arc<Path>);

#[pymethods]
impl Scan {
    #[getter]
    fn run_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.run_id)
    }

    #[getter]
    fn tasks(&self) -> Vec<TaskRef> {
        self.0.tasks.iter().map(|task| TaskRef(task.clone(), self.1.clone())).collect()
    }

    /// (byte offset, problem, whether it was known to be on disk) of each damaged place.
    #[getter]
    fn damage(&self) -> Vec<(u64, String, bool)> {
        self.0.damage.iter().map(|place| (place.offset, place.problem.clone(), place.was_synced)).collect()
    }

    #[getter]
    fn end(&self) -> u64 {
        self.0.end
    }

    #[getter]
    fn torn(&self) -> u64 {
        self.0.torn
    }
}

/// A journal open for appending.
#[pyclass(frozen)]
pub(crate) struct Journal(pub(crate) Arc<SharedJournal>);

#[pymethods]
impl Journal {
    #[staticmethod]
    fn create(path: PathBuf, run_id: [u8; 16]) -> PyResult<Self> {
        let journal = core::Journal::create(&path, &run_id).map_err(journal_error)?;
        Ok(Self(Arc::new(SharedJournal::new(journal, path.into()))))
    }

    /// Opens an existing journal; returns it and what it holds.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, run_id: [u8; 16]) -> PyResult<(Self, Scan)> {
        let (journal, scan) = py.detach(|| core::Journal::open(&path, &run_id)).map_err(journal_error)?;
        let path: Arc<Path> = path.into();
        Ok((Self(Arc::new(SharedJournal::new(journal, path.clone()))), Scan(scan, path)))
    }

    /// Commits that the records `[first, last)` are given up.
    fn quarantine(
        &self,
        py: Python<'_>,
        first: u64,
        last: u64,
        attempt: u32,
        inputs: Vec<(u64, u32)>,
    ) -> PyResult<TaskRef> {
        let task = core::TaskHead { quarantined: true, ..head(first, last, 0, attempt, &inputs) };
        self.append(py, &task, &mut [])
    }

    /// Commits a task whose blocks, (stream, name, bytes) each, were made elsewhere.
    #[pyo3(signature = (first, last, fragment, inputs, blocks, attempt=1))]
    #[allow(clippy::too_many_arguments)] // the fields of a commit frame
    fn append_task(
        &self,
        py: Python<'_>,
        first: u64,
        last: u64,
        fragment: u32,
        inputs: Vec<(u64, u32)>,
        blocks: Vec<(u16, Vec<u8>, PyBackedBytes)>,
        attempt: u32,
    ) -> PyResult<TaskRef> {
        let mut sources = Vec::with_capacity(blocks.len());
        for (stream, name, bytes) in blocks {
            sources.push(core::Source { stream, name, file: in_memory(&bytes).map_err(io_error)? });
        }
        self.append(py, &head(first, last, fragment, attempt, &inputs), &mut sources)
    }

    /// Gives the disk back what the blocks of a task take, which are not read again.
    fn drop_blocks(&self, task: &TaskRef) -> PyResult<()> {
        let file = std::fs::OpenOptions::new().write(true).open(self.0.path()).map_err(io_error)?;
        for block in task.0.blocks.iter().filter(|block| block.length > 0) {
            let (offset, length) = (block.offset as libc::off_t, block.length as libc::off_t);
            // SAFETY: the descriptor is open. A filesystem that cannot do this keeps the bytes.
            unsafe {
                libc::fallocate(
                    file.as_raw_fd(),
                    libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    offset,
                    length,
                )
            };
        }
        Ok(())
    }

    /// Bytes that are not yet known to be on disk.
    #[getter]
    fn unsynced(&self) -> u64 {
        self.0.unsynced()
    }

    /// Where the next task will be.
    #[getter]
    fn end(&self) -> u64 {
        self.0.end()
    }

    /// Waits until everything appended so far is on disk; then notes that what is before `sure` counts whatever comes.
    #[pyo3(signature = (sure=None))]
    fn sync(&self, py: Python<'_>, sure: Option<u64>) -> PyResult<()> {
        py.detach(|| self.0.sync(sure)).map_err(io_error)
    }
}

impl Journal {
    /// Python goes on meanwhile: slots append, too, and each waits for the others.
    fn append(&self, py: Python<'_>, task: &core::TaskHead, blocks: &mut [core::Source]) -> PyResult<TaskRef> {
        let task = py.detach(|| self.0.append(task, blocks)).map_err(journal_error)?;
        Ok(TaskRef(task, self.0.path().clone()))
    }
}

/// A file without a name that holds `bytes`.
fn in_memory(bytes: &[u8]) -> io::Result<File> {
    // SAFETY: the name is a C string; the descriptor is new and nobody else's.
    let descriptor = unsafe { libc::memfd_create(c"block".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(bytes)?;
    Ok(file)
}

pub(crate) fn head(first: u64, last: u64, fragment: u32, attempt: u32, inputs: &[(u64, u32)]) -> core::TaskHead {
    core::TaskHead { first, last, fragment, attempt, quarantined: false, inputs: digests(inputs) }
}

fn digests(inputs: &[(u64, u32)]) -> Vec<core::InputDigest> {
    inputs.iter().map(|&(bytes, crc32c)| core::InputDigest { bytes, crc32c }).collect()
}

pub(crate) fn block_of((stream, name, offset, length, crc32c): BlockValues) -> core::BlockRef {
    core::BlockRef { stream, name, offset, length, crc32c }
}

pub(crate) type BlockParts<'py> = (u16, Bound<'py, PyBytes>, u64, u64, u32);

pub(crate) fn parts<'py>(py: Python<'py>, block: &core::BlockRef) -> BlockParts<'py> {
    (block.stream, PyBytes::new(py, &block.name), block.offset, block.length, block.crc32c)
}

/// Reads what a journal holds; with `verify` all checksums of all blocks.
#[pyfunction]
fn scan(py: Python<'_>, path: PathBuf, verify: bool) -> PyResult<Scan> {
    let found = py.detach(|| core::scan(&path, verify)).map_err(journal_error)?;
    Ok(Scan(found, path.into()))
}

/// Cuts off what the writer of a journal was not yet sure of when it ended.
#[pyfunction]
fn forget_unsynced(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    py.detach(|| core::forget_unsynced(&path)).map_err(journal_error)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BlockRef>()?;
    module.add_class::<TaskRef>()?;
    module.add_class::<Scan>()?;
    module.add_class::<Journal>()?;
    module.add_function(wrap_pyfunction!(forget_unsynced, module)?)?;
    module.add_function(wrap_pyfunction!(scan, module)?)
}
