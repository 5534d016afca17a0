//! Blocks at given places of a file that others write too.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::aligned::{Aligned, Put, Unflushed};
use super::{BUFFER_BYTES, Journals, OutputPiece};
use crate::join::JoinError;
use crate::join::layout::join_behind;

/// Writes blocks at given places of a file that others write too.
#[derive(Debug)]
pub struct PartWriter {
    file: File,
    path: PathBuf,
    /// How its blocks are joined; see [`crate::join`].
    join: String,
    journals: Mutex<Journals>,
    /// Until when writing is allowed; `None`: always.
    lease: Mutex<Option<Instant>>,
    written: AtomicU64,
    synced: AtomicU64,
}

/// Bytes that are to be written, each at its place.
#[derive(Debug)]
pub struct Gathered(Vec<(u64, Vec<u8>)>);

impl Gathered {
    /// What belongs where.
    #[must_use]
    pub fn pieces(&self) -> &[(u64, Vec<u8>)] {
        &self.0
    }
}

impl PartWriter {
    /// Opens the file at `path`, which is there.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: PathBuf, join: String) -> io::Result<Self> {
        let file = fs_err::OpenOptions::new().write(true).open(&path)?.into_file();
        Ok(Self {
            file,
            path,
            join,
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
    pub fn write<'a>(&self, pieces: impl Iterator<Item = (u64, &'a OutputPiece)>) -> io::Result<()> {
        self.copy(pieces, |bytes, at| self.put(bytes, at))
    }

    /// Reads blocks that are to be written later, verifying checksums on the way.
    ///
    /// # Errors
    /// If a block is not what was committed.
    pub fn gather<'a>(&self, pieces: impl Iterator<Item = (u64, &'a OutputPiece)>) -> io::Result<Gathered> {
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

    /// Number of the file in its filesystem: another one at its path has another.
    ///
    /// # Errors
    /// If the file cannot be looked at.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(self.file.metadata().map_err(|error| self.named(&error))?.ino())
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
        pieces: impl Iterator<Item = (u64, &'a OutputPiece)>,
        put: impl FnMut(&[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut journals = self.journals.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = Aligned::new(put, u64::MAX);
        for (at, piece) in pieces {
            out.go_to(at)?;
            self.join(&mut journals, piece, &mut out)?;
            let written = out.position() - at;
            if written != piece.length {
                let problem =
                    format!("{} bytes of the output were expected of a block, and {written} came", piece.length);
                return Err(self.named(&io::Error::new(io::ErrorKind::InvalidData, problem)));
            }
        }
        out.flush()
    }

    /// Hands the bytes of one piece on.
    fn join(&self, journals: &mut Journals, piece: &OutputPiece, out: &mut Aligned<impl Put>) -> io::Result<()> {
        let reader = journals.holding(&piece.stored)?.read(&piece.stored.block);
        let Some(before) = &piece.before else { return out.take(reader) };
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, reader);
        match join_behind(&self.join, before, piece.n_records, &mut reader, &mut Unflushed(out)) {
            Ok(()) => Ok(()),
            Err(JoinError::Io(error)) => Err(error),
            Err(error) => Err(self.named(&io::Error::new(io::ErrorKind::InvalidData, error))),
        }
    }
}
