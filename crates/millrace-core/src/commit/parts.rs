//! Blocks at given places of a file that others write too.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::aligned::Aligned;
use super::{Journals, StoredBlock};

/// Writes blocks at given places of a file that others write too.
#[derive(Debug)]
pub struct PartWriter {
    file: File,
    path: PathBuf,
    journals: Mutex<Journals>,
    /// Until when writing is allowed; `None`: always.
    lease: Mutex<Option<Instant>>,
    written: AtomicU64,
    synced: AtomicU64,
}

/// Bytes that are to be written, each at its place.
#[derive(Debug)]
pub struct Gathered(Vec<(u64, Vec<u8>)>);

impl PartWriter {
    /// Opens the file at `path`, which is there.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let file = fs_err::OpenOptions::new().write(true).open(&path)?.into_file();
        Ok(Self {
            file,
            path,
            journals: Mutex::default(),
            lease: Mutex::new(None),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
        })
    }

    /// Writes blocks at their offsets, verifying checksums on the way; neighbours are written together.
    ///
    /// # Errors
    /// If a block is not what was committed, writing is not allowed any more, or it fails.
    pub fn write<'a>(&self, pieces: impl Iterator<Item = (u64, &'a StoredBlock)>) -> io::Result<()> {
        self.copy(pieces, |bytes, at| self.put(bytes, at))
    }

    /// Reads blocks that are to be written later, verifying checksums on the way.
    ///
    /// # Errors
    /// If a block is not what was committed.
    pub fn gather<'a>(&self, pieces: impl Iterator<Item = (u64, &'a StoredBlock)>) -> io::Result<Gathered> {
        let mut found = Vec::new();
        self.copy(pieces, |bytes, at| {
            found.push((at, bytes.to_vec()));
            Ok(())
        })?;
        Ok(Gathered(found))
    }

    /// Writes what was gathered.
    ///
    /// # Errors
    /// As [`PartWriter::write`].
    pub fn write_gathered(&self, gathered: &Gathered) -> io::Result<()> {
        gathered.0.iter().try_for_each(|(at, bytes)| self.put(bytes, *at))
    }

    /// Allows writing for so long from now, and no longer.
    pub fn allow(&self, lease: Duration) {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + lease);
    }

    /// Bytes that are not yet known to be on disk.
    #[must_use]
    pub fn unsynced(&self) -> u64 {
        self.written.load(Ordering::Acquire) - self.synced.load(Ordering::Acquire)
    }

    /// Waits until everything written so far is on disk.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn sync(&self) -> io::Result<()> {
        let written = self.written.load(Ordering::Acquire);
        self.file.sync_data().map_err(|error| self.named(&error))?;
        self.synced.store(written, Ordering::Release);
        Ok(())
    }

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
        pieces: impl Iterator<Item = (u64, &'a StoredBlock)>,
        put: impl FnMut(&[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut journals = self.journals.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = Aligned::new(put, u64::MAX);
        for (at, stored) in pieces {
            out.go_to(at)?;
            out.take(journals.holding(stored)?.read(&stored.block))?;
        }
        out.flush()
    }
}
