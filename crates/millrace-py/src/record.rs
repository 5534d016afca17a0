use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_core::record as core;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::errors::{DiskFull, io_error, is_disk_full};

/// Bytes that Python gets as `bytes`.
type PyBytes = Cow<'static, [u8]>;

create_exception!(
    millrace._core,
    RecordError,
    PyException,
    "An input whose bytes are not what they should be; fields `source`, `record` (from 1) and `line` (or None)."
);

/// Cuts sources, read one after another, into batches of whole records, byte for byte.
#[pyclass(module = "millrace._core", frozen)]
struct Reader {
    reader: Mutex<core::Reader>,
    seen: Mutex<Seen>,
    total: Option<u64>,
    /// What a Python signal handler raised while a read waited.
    raised: Arc<Mutex<Option<PyErr>>>,
}

/// What may be asked while another thread cuts.
#[derive(Clone, Copy, Default)]
struct Seen {
    records: u64,
    offset: u64,
    compression: &'static str,
    has_members: bool,
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (sources, format, *, record_start=None, record_end=None, content=None, group_cost=0))]
    fn new(
        sources: Vec<PathBuf>,
        format: &str,
        record_start: Option<&str>,
        record_end: Option<&str>,
        content: Option<(String, u64)>,
        group_cost: u64,
    ) -> PyResult<Self> {
        let cutter = core::Format::parse(format).and_then(|format| core::Cutter::new(format, record_start, record_end));
        let reader = cutter.and_then(|cutter| core::Reader::new(sources, cutter));
        let mut reader = Python::attach(|py| reader.map_err(|error| to_python(py, error)))?;
        if let Some((letters, least)) = content {
            reader.need_content(core::Content::new(letters.as_bytes(), least));
        }
        reader.group_by(group_cost);
        let raised = Arc::<Mutex<Option<PyErr>>>::default();
        let slot = Arc::clone(&raised);
        reader.on_interrupt(Box::new(move || {
            let error = Python::attach(|py| py.check_signals().err());
            let is_stop = error.is_some();
            *lock(&slot) = error;
            is_stop
        }));
        Ok(Self { total: reader.total(), reader: Mutex::new(reader), seen: Mutex::default(), raised })
    }

    fn cut(
        &self,
        py: Python<'_>,
        dest: PathBuf,
        max_records: u64,
        max_cost: u64,
        max_bytes: u64,
    ) -> PyResult<Option<Batch>> {
        let limits = core::Limits { records: max_records, cost: max_cost, bytes: max_bytes };
        self.run(py, |reader| reader.cut(&dest, limits))
    }

    fn skip(&self, py: Python<'_>, n_records: u64) -> PyResult<Option<Batch>> {
        self.run(py, |reader| reader.skip(n_records))
    }

    fn digest_records(&self, py: Python<'_>) -> PyResult<(PyBytes, PyBytes, u64)> {
        let found = py.detach(|| lock(&self.reader).digest_records()).map_err(|error| to_python(py, error))?;
        let (records, sequences) = (found.records.into_flattened(), found.sequences.into_flattened());
        Ok((Cow::Owned(records), Cow::Owned(sequences), found.sufficient))
    }

    fn deal_records(&self, py: Python<'_>, dests: Vec<PathBuf>) -> PyResult<u64> {
        py.detach(|| lock(&self.reader).deal_records(&dests)).map_err(|error| to_python(py, error))
    }

    #[getter]
    fn records(&self) -> u64 {
        lock(&self.seen).records
    }

    #[getter]
    fn offset(&self) -> u64 {
        lock(&self.seen).offset
    }

    #[getter]
    fn compression(&self) -> &'static str {
        lock(&self.seen).compression
    }

    #[getter]
    fn has_members(&self) -> bool {
        lock(&self.seen).has_members
    }

    #[getter]
    fn total(&self) -> Option<u64> {
        self.total
    }

    /// What every batch begins with.
    #[getter]
    fn header(&self, py: Python<'_>) -> PyResult<PyBytes> {
        py.detach(|| lock(&self.reader).header().map(|header| Cow::Owned(header.to_vec())))
            .map_err(|error| to_python(py, error))
    }

    #[getter]
    fn at_end(&self, py: Python<'_>) -> bool {
        py.detach(|| lock(&self.reader).at_end())
    }
}

impl Reader {
    /// Cuts without holding the GIL.
    fn run(
        &self,
        py: Python<'_>,
        cut: impl FnOnce(&mut core::Reader) -> Result<Option<core::Batch>, core::Error> + Send,
    ) -> PyResult<Option<Batch>> {
        let result = py.detach(|| {
            let mut reader = lock(&self.reader);
            let result = cut(&mut reader);
            *lock(&self.seen) = Seen {
                records: reader.records(),
                offset: reader.offset(),
                compression: reader.compression(),
                has_members: reader.has_members(),
            };
            result
        });
        match result {
            Ok(batch) => Ok(batch.map(Batch::from)),
            Err(core::Error::Interrupted) => {
                Err(lock(&self.raised).take().unwrap_or_else(|| PyKeyboardInterrupt::new_err(())))
            }
            Err(error) => Err(to_python(py, error)),
        }
    }
}

/// A run of consecutive whole records.
#[pyclass(module = "millrace._core", frozen, get_all)]
struct Batch {
    records: u64,
    header: u64,
    bytes: u64,
    cost: u64,
    largest: u64,
    smallest: u64,
    sufficient: u64,
    crc32c: u32,
}

#[pymethods]
impl Batch {
    fn __repr__(&self) -> String {
        let Self { records, header, bytes, cost, largest, smallest, sufficient, crc32c } = self;
        format!(
            "Batch(records={records}, header={header}, bytes={bytes}, cost={cost}, largest={largest}, smallest={smallest}, sufficient={sufficient}, crc32c={crc32c:#010x})"
        )
    }
}

impl From<core::Batch> for Batch {
    fn from(batch: core::Batch) -> Self {
        let core::Batch { records, header, bytes, cost, largest, smallest, sufficient, crc32c } = batch;
        Self { records, header, bytes, cost, largest, smallest, sufficient, crc32c }
    }
}

/// Guesses the format of a regular file, compressed or not, from its first bytes; None if unsure.
#[pyfunction]
fn sniff(py: Python<'_>, path: PathBuf) -> PyResult<Option<&'static str>> {
    let format = py.detach(|| core::sniff(&path)).map_err(|error| to_python(py, error))?;
    Ok(format.map(core::Format::name))
}

/// Name of the compression that the first bytes of a file tell; empty: it is not compressed.
#[pyfunction]
fn compression(head: &[u8]) -> &'static str {
    core::compression(head)
}

/// Writes what is in `source` to the new file `dest`, compressed.
#[pyfunction]
fn compress_file(py: Python<'_>, source: PathBuf, dest: PathBuf, compression: &str) -> PyResult<()> {
    let packing = core::Packing::new(compression, core::Form::First)
        .ok_or_else(|| PyValueError::new_err(format!("unknown compression {compression}")))?;
    py.detach(|| {
        let from = fs_err::File::open(source)?;
        let size = from.metadata()?.len();
        packing.pack(from, size, fs_err::File::create_new(dest)?)
    })
    .map_err(io_error)
}

/// A panic elsewhere leaves counters, not broken promises, so a poisoned lock is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn to_python(py: Python<'_>, error: core::Error) -> PyErr {
    let message = error.to_string();
    match error {
        core::Error::Usage(_) => PyValueError::new_err(message),
        core::Error::Interrupted => PyKeyboardInterrupt::new_err(()),
        // With errno and path Python picks the subclass, such as FileNotFoundError.
        core::Error::Io { path, error } => match error.raw_os_error() {
            Some(errno) => {
                let text = error.to_string();
                let reason = text.split(" (os error").next().unwrap_or_default().to_owned();
                let fields = (errno, reason, path.into_os_string());
                if is_disk_full(&error) { DiskFull::new_err(fields) } else { PyOSError::new_err(fields) }
            }
            None => PyOSError::new_err(message),
        },
        core::Error::Data { source_path, record, line, .. } => {
            let raised = RecordError::new_err(message);
            let value = raised.value(py);
            let fields = value
                .setattr("source", source_path.into_os_string())
                .and_then(|()| value.setattr("record", record))
                .and_then(|()| value.setattr("line", line));
            fields.err().unwrap_or(raised)
        }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Reader>()?;
    module.add_class::<Batch>()?;
    module.add("RecordError", module.py().get_type::<RecordError>())?;
    module.add_function(wrap_pyfunction!(sniff, module)?)?;
    module.add_function(wrap_pyfunction!(compression, module)?)?;
    module.add_function(wrap_pyfunction!(compress_file, module)?)
}
