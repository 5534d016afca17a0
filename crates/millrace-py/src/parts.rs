use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::errors::io_error;
use crate::journal::BlockRef;
use crate::writer::Journals;

/// Bytes written at a time: each is one call to a filesystem that may be far away.
const BUFFER: usize = 1 << 20;

/// Writes blocks at given places of a file that others write too.
#[pyclass(frozen)]
pub(crate) struct PartWriter {
    file: File,
    path: PathBuf,
    copying: Mutex<Copying>,
    /// Until when writing is allowed; `None`: always.
    lease: Mutex<Option<Instant>>,
    written: AtomicU64,
    synced: AtomicU64,
}

/// Bytes that are to be written, each at its place.
#[pyclass(frozen)]
pub(crate) struct Gathered(Vec<(u64, Vec<u8>)>);

struct Copying {
    journals: Journals,
    buffer: Vec<u8>,
}

impl PartWriter {
    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }

    /// Fails if whoever may give this part to another has not been heard for too long.
    fn allowed(&self) -> io::Result<()> {
        match *self.lease.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(until) if until < Instant::now() => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the coordinator is silent: nothing more is written"))
            }
            _ => Ok(()),
        }
    }

    fn put(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.allowed().and_then(|()| self.file.write_all_at(bytes, at)).map_err(|error| self.named(&error))?;
        self.written.fetch_add(bytes.len() as u64, Ordering::Release);
        Ok(())
    }

    /// Hands the bytes of `pieces` to `put` with their places, neighbours together.
    fn copy<'a>(
        &self,
        pieces: impl Iterator<Item = (u64, &'a BlockRef)>,
        mut put: impl FnMut(&[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let Copying { journals, buffer } = &mut *self.copying.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.resize(BUFFER, 0);
        // The buffer's first `filled` bytes belong at `start` of the file.
        let (mut start, mut filled) = (0, 0);
        for (at, block) in pieces {
            if at != start + filled as u64 {
                put(&buffer[..filled], start)?;
                (start, filled) = (at, 0);
            }
            let mut reader = journals.holding(block)?.read(&block.0);
            let mut left = block.0.length;
            while left > 0 {
                if filled == BUFFER {
                    put(buffer, start)?;
                    (start, filled) = (start + BUFFER as u64, 0);
                }
                let want = (BUFFER - filled).min(usize::try_from(left).unwrap_or(BUFFER));
                let n = reader.read(&mut buffer[filled..filled + want])?; // never 0: a short block is an error
                filled += n;
                left -= n as u64;
            }
        }
        put(&buffer[..filled], start)
    }
}

#[pymethods]
impl PartWriter {
    /// Opens the file at `path`, which is there.
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let file = fs_err::OpenOptions::new().write(true).open(&path).map_err(io_error)?.into_file();
        Ok(Self {
            file,
            path,
            copying: Mutex::new(Copying { journals: Journals::default(), buffer: Vec::new() }),
            lease: Mutex::new(None),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
        })
    }

    /// Writes blocks at their offsets, verifying checksums on the way; neighbours are written together.
    fn write(&self, py: Python<'_>, pieces: Vec<(u64, Py<BlockRef>)>) -> PyResult<()> {
        py.detach(|| self.copy(pieces.iter().map(|(at, block)| (*at, block.get())), |bytes, at| self.put(bytes, at)))
            .map_err(io_error)
    }

    /// Reads blocks that are to be written later, verifying checksums on the way.
    fn gather(&self, py: Python<'_>, pieces: Vec<(u64, Py<BlockRef>)>) -> PyResult<Gathered> {
        let mut found = Vec::new();
        py.detach(|| {
            self.copy(pieces.iter().map(|(at, block)| (*at, block.get())), |bytes, at| {
                found.push((at, bytes.to_vec()));
                Ok(())
            })
        })
        .map_err(io_error)?;
        Ok(Gathered(found))
    }

    /// Writes what was gathered.
    fn write_gathered(&self, py: Python<'_>, gathered: &Gathered) -> PyResult<()> {
        py.detach(|| gathered.0.iter().try_for_each(|(at, bytes)| self.put(bytes, *at))).map_err(io_error)
    }

    /// Allows writing for so many seconds from now, and no longer.
    fn allow(&self, seconds: f64) {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Bytes that are not yet known to be on disk.
    #[getter]
    fn unsynced(&self) -> u64 {
        self.written.load(Ordering::Acquire) - self.synced.load(Ordering::Acquire)
    }

    /// Waits until everything written so far is on disk.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let written = self.written.load(Ordering::Acquire);
            self.file.sync_data().map_err(|error| self.named(&error))?;
            self.synced.store(written, Ordering::Release);
            Ok(())
        })
        .map_err(io_error)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PartWriter>()?;
    module.add_class::<Gathered>()
}
