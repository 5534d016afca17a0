//! One output stream: blocks in, in order, joined bytes out.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::aligned::{Aligned, Put, Unflushed};
use super::untouched::Untouched;
use super::{BUFFER_BYTES, Journals, StoredBlock, patterns};
use crate::join::{self, JoinError, Joiner};

/// Joins the blocks of one stream, in order, into a file or an open descriptor.
pub struct StreamWriter {
    journals: Journals,
    joiner: Box<dyn Joiner>,
    out: Aligned<Counted>,
    /// Where the file is, if it is ours to cut and sync: not a descriptor.
    path: Option<PathBuf>,
}

struct Counted {
    file: File,
    bytes: u64,
    /// What was written, for a file that somebody else could change.
    untouched: Option<Untouched>,
}

impl Put for Counted {
    fn put(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        if let Some(untouched) = &mut self.untouched {
            untouched.before(&self.file)?;
        }
        self.file.write_all(bytes)?;
        if let Some(untouched) = &mut self.untouched {
            untouched.after(&self.file, at, bytes)?;
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

impl StreamWriter {
    /// Writes from the start of the file at `path` over what is there: after a resume the bytes are the same, and a
    /// reader that follows the file sees no change. `prompt`: the filesystem tells at once when a file was changed.
    ///
    /// # Errors
    /// If it cannot be opened, or there is no such `join`.
    pub fn over(join: &str, path: PathBuf, prompt: bool) -> Result<Self, JoinError> {
        let file = open_over(&path)?;
        let untouched = file.metadata()?.is_file().then(|| Untouched::new(prompt));
        Self::new(join, Counted { file, bytes: 0, untouched }, Some(path))
    }

    /// Writes to a descriptor, which is somebody else's to cut and to sync.
    ///
    /// # Errors
    /// If there is no such `join`.
    pub fn into_descriptor(join: &str, descriptor: OwnedFd) -> Result<Self, JoinError> {
        Self::new(join, Counted { file: descriptor.into(), bytes: 0, untouched: None }, None)
    }

    fn new(join: &str, counted: Counted, path: Option<PathBuf>) -> Result<Self, JoinError> {
        let out = Aligned::new(counted, u64::MAX);
        Ok(Self { journals: Journals::default(), joiner: join::joiner(join)?, out, path })
    }

    /// Appends a batch of `n_records` whose block is `stored`, verifying its checksum on the way.
    ///
    /// # Errors
    /// If the block cannot be read, is not what was committed or has not the shape that it should; or writing fails.
    pub fn append(&mut self, n_records: u64, stored: &StoredBlock) -> Result<(), JoinError> {
        let size = BUFFER_BYTES.min(usize::try_from(stored.block.length).unwrap_or(BUFFER_BYTES)).max(512);
        let mut reader = BufReader::with_capacity(size, self.journals.holding(stored)?.read(&stored.block));
        self.joiner.block(n_records, &mut reader, &mut Unflushed(&mut self.out))
    }

    /// The blocks that follow were written by the command in its form `form`; see [`Joiner::set_form`].
    pub fn set_form(&mut self, form: u32) {
        self.joiner.set_form(form);
    }

    /// Hands what is buffered to the operating system, so that a reader sees it.
    ///
    /// # Errors
    /// If writing fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes the end, cuts off what an earlier run left behind it, waits for the disk; returns all bytes written.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(&mut self) -> Result<u64, JoinError> {
        self.joiner.finish(&mut self.out)?;
        self.out.flush()?;
        let Counted { file, bytes, untouched } = self.out.get_mut();
        if let Some(untouched) = untouched {
            untouched.before(file)?;
            file.set_len(*bytes)?;
            file.sync_all()?;
            untouched.done();
        }
        Ok(*bytes)
    }

    /// What somebody else has made of the file while it was written, in words, after `finish`; empty: nothing.
    ///
    /// # Errors
    /// If the file cannot be looked at.
    pub fn changed(&self) -> io::Result<&'static str> {
        let Counted { file, bytes, untouched } = self.out.get_ref();
        match (untouched, &self.path) {
            (Some(untouched), Some(path)) => untouched.verdict(file, path, *bytes),
            _ => Ok(""),
        }
    }
}

fn open_over(path: &Path) -> io::Result<File> {
    Ok(fs_err::OpenOptions::new().write(true).create(true).truncate(false).open(path)?.into_file())
}

/// Writes one block, as it is, to the file `path`; returns its length. Over what is there, as [`StreamWriter`] does; a file
/// that has these bytes already stays as it is, as others may know it by its time of change.
///
/// # Errors
/// If the block cannot be read or is not what was committed; or writing fails.
pub fn extract(stored: &StoredBlock, path: &Path) -> io::Result<u64> {
    let mut journals = Journals::default();
    let reader = journals.holding(stored)?;
    if path.metadata().is_ok_and(|found| found.is_file() && found.len() == stored.block.length)
        && holds_same(fs_err::File::open(path)?, reader.read(&stored.block))?
    {
        return Ok(stored.block.length);
    }
    let mut file = open_over(path)?;
    let mut out = Aligned::new(|bytes: &[u8], _| file.write_all(bytes), stored.block.length);
    out.take(reader.read(&stored.block))?;
    out.flush()?;
    file.set_len(stored.block.length)?;
    Ok(stored.block.length)
}

/// Whether two readers give the same bytes.
fn holds_same(left: impl Read, right: impl Read) -> io::Result<bool> {
    let (mut left, mut right) = (BufReader::new(left), BufReader::new(right));
    loop {
        let (a, b) = (left.fill_buf()?, right.fill_buf()?);
        let n = a.len().min(b.len());
        if a[..n] != b[..n] {
            return Ok(false);
        }
        if n == 0 {
            return Ok(a.is_empty() && b.is_empty());
        }
        left.consume(n);
        right.consume(n);
    }
}

/// The first bytes of something, and length and checksum of all of it.
#[derive(Debug)]
pub struct Excerpt {
    /// The first bytes.
    pub bytes: Vec<u8>,
    /// How many of them are kept.
    most: usize,
    /// Bytes of all.
    pub length: u64,
    /// CRC-32C of all.
    pub crc32c: u32,
}

impl Excerpt {
    pub(super) const fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most, length: 0, crc32c: 0 }
    }
}

impl Write for Excerpt {
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

/// The beginning, of `most` bytes, of what a stream would have if these blocks, (number of records, block), were all. What
/// matches one of `volatile`, which may differ between two serial runs, is left out.
///
/// # Errors
/// [`JoinError::Unknown`] if there is no such join or an expression is none; else as [`StreamWriter::append`].
pub fn joined(
    join: &str,
    blocks: &[(u64, StoredBlock)],
    volatile: &[String],
    most: usize,
) -> Result<Excerpt, JoinError> {
    let volatile = patterns(volatile).map_err(|error| JoinError::Unknown(error.to_string()))?;
    let mut joiner = join::joiner(join)?;
    // A pattern may match anything, so all has to be there; other outputs may be larger than the memory.
    let keep = if volatile.is_empty() { most } else { usize::MAX };
    let (mut journals, mut all) = (Journals::default(), Excerpt::new(keep));
    for (n_records, stored) in blocks {
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, journals.holding(stored)?.read(&stored.block));
        joiner.block(*n_records, &mut reader, &mut all)?;
    }
    joiner.finish(&mut all)?;
    if volatile.is_empty() {
        return Ok(all);
    }
    let masked = volatile.iter().fold(all.bytes, |bytes, each| each.replace_all(&bytes, &b""[..]).into_owned());
    let mut excerpt = Excerpt::new(most);
    excerpt.write_all(&masked)?;
    Ok(excerpt)
}
