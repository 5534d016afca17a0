use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use millrace_core::join::{self, JoinError, Joiner};
use millrace_core::journal::{BlockReader, JournalError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{CorruptJournal, io_error};
use crate::journal::BlockRef;
use crate::node::patterns_of;

const BUFFER: usize = 256 << 10;

/// How long a journal may look shorter than its node says.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Most places of a file that are read again at its end, and bytes of each.
const SAMPLES: usize = 32;
const SAMPLE: usize = 4096;

/// Joins the blocks of one stream, in order, into a file or an open descriptor.
#[pyclass(frozen)]
pub(crate) struct StreamWriter(Mutex<Inner>);

struct Inner {
    journals: Journals,
    joiner: Box<dyn Joiner>,
    out: BufWriter<Counted>,
    /// Where the file is, if it is ours to cut and sync: not a descriptor.
    path: Option<PathBuf>,
}

struct Counted {
    file: File,
    bytes: u64,
    /// What was written, for a file that somebody else could change.
    kept: Option<Kept>,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(kept) = &mut self.kept {
            kept.before(&self.file)?;
        }
        let n = self.file.write(bytes)?;
        if let Some(kept) = &mut self.kept {
            kept.after(&self.file, self.bytes, &bytes[..n])?;
        }
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// What is known of a file that only we write: enough to see whether somebody else did.
#[derive(Default)]
struct Kept {
    /// Size and time of change after our last write; None: not known, or not told in time by its filesystem.
    last: Option<(u64, SystemTime)>,
    /// Whether the filesystem tells at once when a file was changed.
    prompt: bool,
    changed: bool,
    /// (offset, bytes, checksum) of some of what was written, evenly spread; the first of it always.
    samples: Vec<(u64, usize, u32)>,
    /// Writes so far, and every how many one is kept.
    writes: u64,
    every: u64,
}

impl Kept {
    fn new(prompt: bool) -> Self {
        Self { prompt, every: 1, ..Self::default() }
    }

    /// Somebody else's write shows in the time of change, until the next of ours hides it.
    fn before(&mut self, file: &File) -> io::Result<()> {
        self.changed |= self.last.is_some() && self.last != self.state(file)?;
        Ok(())
    }

    fn after(&mut self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.last = self.state(file)?;
        if self.writes % self.every == 0 {
            let sample = &bytes[..bytes.len().min(SAMPLE)];
            self.samples.push((offset, sample.len(), crc32c::crc32c(sample)));
            if self.samples.len() > SAMPLES {
                let mut n = 0;
                self.samples.retain(|_| {
                    n += 1;
                    n % 2 == 1
                });
                self.every *= 2;
            }
        }
        self.writes += 1;
        Ok(())
    }

    fn state(&self, file: &File) -> io::Result<Option<(u64, SystemTime)>> {
        let about = file.metadata()?;
        Ok(if self.prompt { Some((about.len(), about.modified()?)) } else { None })
    }

    /// What has become of the file, in words, when all is written; empty if it is what we wrote.
    fn look(&self, file: &File, path: &Path, bytes: u64) -> io::Result<&'static str> {
        let Ok(there) = File::open(path) else { return Ok("is gone") };
        let (ours, found) = (file.metadata()?, there.metadata()?);
        if (ours.dev(), ours.ino()) != (found.dev(), found.ino()) {
            return Ok("is another file now");
        }
        let mut same = !self.changed && found.len() == bytes;
        let mut buffer = [0; SAMPLE];
        for &(offset, length, crc) in &self.samples {
            same = same
                && there.read_exact_at(&mut buffer[..length], offset).is_ok()
                && crc32c::crc32c(&buffer[..length]) == crc;
        }
        Ok(if same { "" } else { "has been written by somebody else" })
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
    /// `prompt`: the filesystem tells at once when a file was changed.
    #[new]
    #[pyo3(signature = (join, path=None, fd=1, prompt=true))]
    fn new(join: &str, path: Option<PathBuf>, fd: RawFd, prompt: bool) -> PyResult<Self> {
        let file = match &path {
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
        let kept = (path.is_some() && file.metadata()?.is_file()).then(|| Kept::new(prompt));
        let out = BufWriter::with_capacity(BUFFER, Counted { file, bytes: 0, kept });
        Ok(Self(Mutex::new(Inner { journals: Journals::default(), joiner, out, path })))
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
            let Counted { file, bytes, kept } = inner.out.get_mut();
            if let Some(kept) = kept {
                kept.before(file)?;
                file.set_len(*bytes)?;
                file.sync_all()?;
                kept.last = None;
            }
            Ok(*bytes)
        })
        .map_err(join_error)
    }

    /// What somebody else has made of the file while it was written, in words, after `finish`; empty: nothing.
    fn changed(&self, py: Python<'_>) -> PyResult<&'static str> {
        py.detach(|| {
            let inner = &*self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Counted { file, bytes, kept } = inner.out.get_ref();
            match (kept, &inner.path) {
                (Some(kept), Some(path)) => kept.look(file, path, *bytes),
                _ => Ok(""),
            }
        })
        .map_err(io_error)
    }
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
    let volatile = patterns_of(&volatile)?;
    let mut joiner = join::joiner(join).map_err(join_error)?;
    let blocks: Vec<_> = blocks.iter().map(|(n_records, block)| (*n_records, BlockRef::clone(block))).collect();
    let head = py
        .detach(|| {
            // A pattern may match anything, so all has to be there; other outputs may be larger than the memory.
            let keep = if volatile.is_empty() { most } else { usize::MAX };
            let (mut journals, mut head) = (Journals::default(), Head::new(keep));
            for (n_records, block) in &blocks {
                let mut reader = BufReader::with_capacity(BUFFER, journals.holding(block)?.read(&block.0));
                joiner.block(*n_records, &mut reader, &mut head)?;
            }
            joiner.finish(&mut head)?;
            if volatile.is_empty() {
                return Ok(head);
            }
            let masked =
                volatile.iter().fold(head.bytes, |bytes, each| each.replace_all(&bytes, &b""[..]).into_owned());
            let mut head = Head::new(most);
            head.write_all(&masked)?;
            Ok(head)
        })
        .map_err(join_error)?;
    Ok((PyBytes::new(py, &head.bytes), head.length, head.crc32c))
}

/// The first bytes of what is written to it, and length and checksum of all.
struct Head {
    bytes: Vec<u8>,
    most: usize,
    length: u64,
    crc32c: u32,
}

impl Head {
    fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most, length: 0, crc32c: 0 }
    }
}

impl Write for Head {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.most.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..room]);
        self.length += bytes.len() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
    module.add_function(wrap_pyfunction!(joined, module)?)?;
    module.add_function(wrap_pyfunction!(extract, module)?)
}
