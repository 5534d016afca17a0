use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_core::journal as core;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{io_error, journal_error};

/// Where the bytes of one block are in a journal.
#[pyclass(frozen)]
#[derive(Clone)]
pub(crate) struct BlockRef(pub(crate) core::BlockRef);

#[pymethods]
impl BlockRef {
    #[getter]
    fn stream(&self) -> u16 {
        self.0.stream
    }

    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.name)
    }

    #[getter]
    fn offset(&self) -> u64 {
        self.0.offset
    }

    #[getter]
    fn length(&self) -> u64 {
        self.0.length
    }

    #[getter]
    fn crc32c(&self) -> u32 {
        self.0.crc32c
    }
}

/// One committed task: records `[first, last)`.
#[pyclass(frozen)]
#[derive(Clone)]
pub(crate) struct TaskRef(pub(crate) core::TaskRef);

#[pymethods]
impl TaskRef {
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
        self.0.blocks.iter().cloned().map(BlockRef).collect()
    }
}

/// What a journal holds, and what is wrong with it.
#[pyclass(frozen)]
pub(crate) struct Scan(core::Scan);

#[pymethods]
impl Scan {
    #[getter]
    fn run_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.run_id)
    }

    #[getter]
    fn tasks(&self) -> Vec<TaskRef> {
        self.0.tasks.iter().cloned().map(TaskRef).collect()
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
pub(crate) struct Journal(pub(crate) Arc<Mutex<core::Journal>>);

impl Journal {
    pub(crate) fn lock(journal: &Mutex<core::Journal>) -> MutexGuard<'_, core::Journal> {
        // An append that panicked has not moved the end: the next one writes over what it left.
        journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Journal {
    #[staticmethod]
    fn create(path: PathBuf, run_id: [u8; 16]) -> PyResult<Self> {
        let journal = core::Journal::create(&path, &run_id).map_err(journal_error)?;
        Ok(Self(Arc::new(Mutex::new(journal))))
    }

    /// Opens an existing journal; returns it and what it holds.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, run_id: [u8; 16]) -> PyResult<(Self, Scan)> {
        let (journal, scan) = py.detach(|| core::Journal::open(&path, &run_id)).map_err(journal_error)?;
        Ok((Self(Arc::new(Mutex::new(journal))), Scan(scan)))
    }

    /// Commits that the records `[first, last)` are given up.
    fn quarantine(&self, first: u64, last: u64, attempt: u32, inputs: Vec<(u64, u32)>) -> PyResult<TaskRef> {
        let task = core::TaskHead { quarantined: true, ..head(first, last, 0, attempt, &inputs) };
        Ok(TaskRef(Self::lock(&self.0).append(&task, &mut []).map_err(journal_error)?))
    }

    /// Bytes that are not yet known to be on disk.
    #[getter]
    fn unsynced(&self) -> u64 {
        Self::lock(&self.0).unsynced()
    }

    /// Waits until everything appended so far is on disk.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let (file, end) = Self::lock(&self.0).sync_handle()?;
            file.sync_data()?;
            Self::lock(&self.0).synced_to(end);
            Ok(())
        })
        .map_err(io_error)
    }
}

pub(crate) fn head(first: u64, last: u64, fragment: u32, attempt: u32, inputs: &[(u64, u32)]) -> core::TaskHead {
    let inputs = inputs.iter().map(|&(bytes, crc32c)| core::InputDigest { bytes, crc32c }).collect();
    core::TaskHead { first, last, fragment, attempt, quarantined: false, inputs }
}

/// Reads what a journal holds; with `verify` all checksums of all blocks.
#[pyfunction]
fn scan(py: Python<'_>, path: PathBuf, verify: bool) -> PyResult<Scan> {
    py.detach(|| core::scan(&path, verify)).map(Scan).map_err(journal_error)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BlockRef>()?;
    module.add_class::<TaskRef>()?;
    module.add_class::<Scan>()?;
    module.add_class::<Journal>()?;
    module.add_function(wrap_pyfunction!(scan, module)?)
}
