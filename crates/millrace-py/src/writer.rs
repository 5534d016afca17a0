use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use millrace_core::join::{self, JoinError, Joiner};
use millrace_core::journal::{BlockReader, JournalError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::{CorruptJournal, io_error};
use crate::journal::BlockRef;

const BUFFER: usize = 256 << 10;

/// How long a journal may look shorter than its node says.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Joins the blocks of one stream, in order, into a file or an open descriptor.
#[pyclass(frozen)]
pub(crate) struct StreamWriter(Mutex<Inner>);

struct Inner {
    journals: Journals,
    joiner: Box<dyn Joiner>,
    out: BufWriter<Counted>,
    /// Whether the file is ours to cut and sync: a path, not a descriptor.
    owned: bool,
}

struct Counted {
    file: File,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// The journals of all nodes, opened when a block of theirs is first asked for.
#[derive(Default)]
pub(crate) struct Journals(HashMap<Arc<Path>, BlockReader>);

impl Journals {
    /// A reader of the journal of `block` that holds it.
    ///
    /// A node tells of a block once it is in its journal, but a client of a network filesystem may go on for a few
    /// seconds with the size that it knew: opened anew, it asks the server.
    pub(crate) fn holding(&mut self, block: &BlockRef) -> io::Result<&BlockReader> {
        let BlockRef(block, path) = block;
        let end = block.offset + block.length;
        let begun = Instant::now();
        while self.0.get(path).is_none_or(|reader| reader.size() < end) && begun.elapsed() < SEEN_WITHIN {
            let reader = BlockReader::open(path).map_err(|error| match error {
                JournalError::Io(error) => error,
                other => io::Error::other(other),
            })?;
            if self.0.insert(path.clone(), reader).is_some() {
                thread::sleep(LOOK_AGAIN);
            }
        }
        // If it is still too short, reading tells that the block is cut off.
        Ok(&self.0[path])
    }
}

#[pymethods]
impl StreamWriter {
    /// Writes from the start of the file at `path` over what is there: after a resume the bytes are the same,
    /// and a reader that follows the file sees no change. Without `path`, writes to the descriptor `fd`.
    #[new]
    #[pyo3(signature = (join, path=None, fd=1))]
    fn new(join: &str, path: Option<PathBuf>, fd: RawFd) -> PyResult<Self> {
        let owned = path.is_some();
        let file = match path {
            Some(path) => fs_err::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .map_err(io_error)?
                .into_file(),
            // SAFETY: dup of a descriptor that the caller has open; a closed one gives an error.
            None => match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) } {
                -1 => return Err(std::io::Error::last_os_error().into()),
                // SAFETY: a fresh descriptor, owned by nobody else.
                copy => unsafe { OwnedFd::from_raw_fd(copy) }.into(),
            },
        };
        let joiner = join::joiner(join).map_err(join_error)?;
        let out = BufWriter::with_capacity(BUFFER, Counted { file, bytes: 0 });
        Ok(Self(Mutex::new(Inner { journals: Journals::default(), joiner, out, owned })))
    }

    /// Appends a batch of `n_records` whose block is `block`, verifying its checksum on the way.
    fn append(&self, py: Python<'_>, n_records: u64, block: &BlockRef) -> PyResult<()> {
        py.detach(|| {
            let inner = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let journal = inner.journals.holding(block)?;
            let size = BUFFER.min(usize::try_from(block.0.length).unwrap_or(BUFFER)).max(512);
            let mut reader = BufReader::with_capacity(size, journal.read(&block.0));
            inner.joiner.block(n_records, &mut reader, &mut inner.out)
        })
        .map_err(join_error)
    }

    /// Hands what is buffered to the operating system, so that a reader sees it.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).out.flush()).map_err(io_error)
    }

    /// Writes the end, cuts off what an earlier run left behind it, waits for the disk; returns all bytes written.
    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| {
            let inner = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            inner.joiner.finish(&mut inner.out)?;
            inner.out.flush()?;
            let Counted { file, bytes } = inner.out.get_ref();
            if inner.owned && file.metadata()?.is_file() {
                file.set_len(*bytes)?;
                file.sync_all()?;
            }
            Ok(*bytes)
        })
        .map_err(join_error)
    }
}

/// Writes one block, as it is, to the file `path`; returns its length. Over what is there, as `StreamWriter` does.
#[pyfunction]
fn extract(py: Python<'_>, block: &BlockRef, path: PathBuf) -> PyResult<u64> {
    py.detach(|| {
        let mut journals = Journals::default();
        let reader = journals.holding(block).map_err(io_error)?;
        let mut file =
            fs_err::OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(io_error)?;
        let length = std::io::copy(&mut reader.read(&block.0), &mut file).map_err(io_error)?;
        file.set_len(length).map_err(io_error)?;
        Ok(length)
    })
}

/// Waits until everything written on the filesystem of `path` is on disk: any number of files, once for all.
#[pyfunction]
fn sync_filesystem(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    py.detach(|| {
        let folder = fs_err::File::open(path)?;
        // SAFETY: a live descriptor.
        if unsafe { libc::syncfs(folder.as_raw_fd()) } < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    })
    .map_err(io_error)
}

fn join_error(error: JoinError) -> PyErr {
    match error {
        JoinError::Io(error) => io_error(error),
        JoinError::Shape { .. } => CorruptJournal::new_err(error.to_string()),
        JoinError::Unknown(_) => PyValueError::new_err(error.to_string()),
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StreamWriter>()?;
    module.add_function(wrap_pyfunction!(sync_filesystem, module)?)?;
    module.add_function(wrap_pyfunction!(extract, module)?)
}
