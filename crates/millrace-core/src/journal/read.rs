//! Reading one block back, never without its checksum.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{BlockRef, JournalError};

/// Reads blocks of a journal that may still be growing.
#[derive(Debug)]
pub struct BlockReader {
    file: File,
    path: PathBuf,
}

impl BlockReader {
    /// Opens the journal for reading.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        Ok(Self { file: fs_err::File::open(path)?.into_file(), path: path.into() })
    }

    /// Bytes of the journal as they are seen now; 0 if that cannot be told.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.file.metadata().map_or(0, |found| found.len())
    }

    /// A reader over the payload of `block`; after the last byte it fails if the checksum is wrong.
    #[must_use]
    pub fn read<'a>(&'a self, block: &'a BlockRef) -> impl Read + 'a {
        Payload { file: &self.file, path: &self.path, block, at: 0, crc: 0 }
    }
}

struct Payload<'a> {
    file: &'a File,
    path: &'a Path,
    block: &'a BlockRef,
    at: u64,
    crc: u32,
}

impl Read for Payload<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.block.length - self.at;
        let want = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let n = if want == 0 { 0 } else { self.file.read_at(&mut buffer[..want], self.block.offset + self.at)? };
        self.crc = crc32c::crc32c_append(self.crc, &buffer[..n]);
        self.at += n as u64;
        let short = n == 0 && want > 0;
        if short || (self.at == self.block.length && self.crc != self.block.crc32c) {
            let problem = if short { "the block is cut off" } else { "the block's checksum is wrong" };
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: byte {}: {problem}", self.path.display(), self.block.offset),
            ));
        }
        Ok(n)
    }
}
