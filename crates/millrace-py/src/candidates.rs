use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use millrace_core::candidates as core;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::io_error;

/// The entries of a BLAST database that were found, of volumes with so many entries each.
#[pyclass(frozen)]
pub(crate) struct Candidates(Mutex<core::Candidates>);

#[pymethods]
impl Candidates {
    #[new]
    fn new(volumes: Vec<u32>) -> Self {
        Self(Mutex::new(core::Candidates::new(&volumes)))
    }

    /// Adds one entry; false if there is none with this ordinal.
    fn add(&self, entry: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(entry)
    }

    /// Adds the entries `[first, last)`.
    fn add_range(&self, first: u64, last: u64) -> bool {
        let mut candidates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (first..last).all(|entry| candidates.add(entry))
    }

    /// Keeps the entries whose turn is `number`, from 0, if they are dealt out to `of` players.
    fn deal(&self, number: u64, of: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).deal(number, of);
    }

    /// Ordinals of the entries added, ascending.
    fn ordinals(&self) -> Vec<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ordinals().collect()
    }

    /// Number of entries added.
    fn __len__(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).count() as usize
    }

    /// Writes the mask of one volume to a new file.
    fn write(&self, py: Python<'_>, volume: usize, path: PathBuf) -> PyResult<()> {
        py.detach(|| {
            let mut file = fs_err::File::create_new(path)?;
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(volume, &mut file)?;
            file.flush()
        })
        .map_err(io_error)
    }
}

/// Reads BLAST's list of hits with links, in pieces.
#[pyclass(frozen)]
pub(crate) struct HitList(Mutex<core::HitList>);

#[pymethods]
impl HitList {
    #[new]
    #[pyo3(signature = (within=None, *, by_evalue=false))]
    fn new(within: Option<(f64, f64)>, by_evalue: bool) -> Self {
        let list = within.map(|(lowest, highest)| core::HitList::within(by(by_evalue), lowest, highest));
        Self(Mutex::new(list.unwrap_or_default()))
    }

    /// Reads the next piece and adds the numbered entries to `candidates`.
    fn read(&self, py: Python<'_>, piece: &[u8], candidates: &Candidates) {
        py.detach(|| {
            let mut candidates = candidates.0.lock().unwrap_or_else(PoisonError::into_inner);
            self.0.lock().unwrap_or_else(PoisonError::into_inner).read(piece, &mut candidates);
        });
    }

    /// Reads what is left; returns the most subjects of a query, ids of entries without a number, and how many
    /// numbers no entry has.
    fn finish(&self, candidates: &Candidates) -> (u64, Vec<Vec<u8>>, u64) {
        let mut candidates = candidates.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.finish(&mut candidates);
        (list.most, std::mem::take(&mut list.names), list.unknown)
    }
}

/// Reads the lists of hits of one query, and cuts its subjects into slices; see `millrace_core::candidates::Ranking`.
#[pyclass(frozen)]
pub(crate) struct Ranking(Mutex<core::Ranking>);

#[pymethods]
impl Ranking {
    #[new]
    #[pyo3(signature = (*, by_evalue=false))]
    fn new(by_evalue: bool) -> Self {
        Self(Mutex::new(core::Ranking::by(by(by_evalue))))
    }

    /// Reads the next piece of a list.
    fn read(&self, py: Python<'_>, piece: &[u8]) {
        py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).read(piece));
    }

    /// Ends a list, after which another may follow; the number of its subjects, None if they cannot be ranked.
    fn finish(&self) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).finish()
    }

    /// (lowest rank, highest rank) of the subjects of slice `index` of `n`; None if it has none.
    fn slice(&self, index: u64, n: u64) -> Option<(f64, f64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).slice(index, n)
    }
}

/// The entries of a database beside the sorted digests of an earlier one; see `millrace_core::candidates::KnownEntries`.
#[pyclass(frozen)]
pub(crate) struct KnownEntries(core::KnownEntries);

#[pymethods]
impl KnownEntries {
    #[new]
    fn new(py: Python<'_>, sorted: &[u8], digests: &[u8]) -> PyResult<Self> {
        py.detach(|| core::KnownEntries::new(sorted, digests)).map(Self).map_err(PyValueError::new_err)
    }

    /// Ranges `[first, last)` of the entries that the earlier database did not have.
    fn new_ranges(&self) -> Vec<(u64, u64)> {
        self.0.new_ranges()
    }

    /// Ordinals, ascending, of the entries with these numbers; None if there is no such number.
    fn ordinals(&self, numbers: Vec<u32>) -> Option<Vec<u64>> {
        self.0.ordinals(&numbers)
    }

    /// Numbers, ascending and each once, of these entries; None if one is new, or is not there.
    fn numbers(&self, ordinals: Vec<u64>) -> Option<Vec<u32>> {
        self.0.numbers(&ordinals)
    }
}

/// Sorts digests of 16 bytes, each of them once.
#[pyfunction]
fn sort_digests<'py>(py: Python<'py>, digests: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let sorted = py.detach(|| core::sort_digests(digests)).map_err(PyValueError::new_err)?;
    Ok(PyBytes::new(py, &sorted))
}

/// The subjects of each query of a complete list of hits: entries by number, and ids of those without one.
#[pyfunction]
fn subjects_by_query(py: Python<'_>, text: &[u8]) -> Vec<core::QuerySubjects> {
    py.detach(|| core::subjects_by_query(text))
}

fn by(evalue: bool) -> core::By {
    if evalue { core::By::Evalue } else { core::By::Bits }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Candidates>()?;
    module.add_class::<HitList>()?;
    module.add_class::<Ranking>()?;
    module.add_class::<KnownEntries>()?;
    module.add_function(wrap_pyfunction!(sort_digests, module)?)?;
    module.add_function(wrap_pyfunction!(subjects_by_query, module)?)
}
