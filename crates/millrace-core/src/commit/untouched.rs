//! Whether somebody else wrote the file that only we should write.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::SystemTime;

/// Most places of a file that are read again at its end, and bytes of each.
const MOST_SAMPLES: usize = 32;
const SAMPLE_BYTES: usize = 4096;

/// Bytes from one place to the next, as long as there are not too many.
const APART_BYTES: usize = 256 << 10;

/// What is known of a file that only we write: enough to see whether somebody else did.
#[derive(Debug, Default)]
pub(super) struct Untouched {
    /// Size and time of change after our last write; None: not known, or not told in time by its filesystem.
    last: Option<(u64, SystemTime)>,
    /// Whether the filesystem tells at once when a file was changed.
    prompt: bool,
    changed: bool,
    /// (offset, bytes, checksum) of some of what was written, evenly spread; the first of it always.
    samples: Vec<(u64, usize, u32)>,
    /// Pieces so far, and every how many one is kept.
    pieces: u64,
    every: u64,
}

impl Untouched {
    pub(super) fn new(prompt: bool) -> Self {
        Self { prompt, every: 1, ..Self::default() }
    }

    /// Somebody else's write shows in the time of change, until the next of ours hides it.
    pub(super) fn before(&mut self, file: &File) -> io::Result<()> {
        self.changed |= self.last.is_some() && self.last != self.state(file)?;
        Ok(())
    }

    pub(super) fn after(&mut self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.last = self.state(file)?;
        (offset..).step_by(APART_BYTES).zip(bytes.chunks(APART_BYTES)).for_each(|(at, piece)| self.sample(at, piece));
        Ok(())
    }

    fn sample(&mut self, offset: u64, bytes: &[u8]) {
        if self.pieces % self.every == 0 {
            let sample = &bytes[..bytes.len().min(SAMPLE_BYTES)];
            self.samples.push((offset, sample.len(), crc32c::crc32c(sample)));
            if self.samples.len() > MOST_SAMPLES {
                let mut n = 0;
                self.samples.retain(|_| {
                    n += 1;
                    n % 2 == 1
                });
                self.every *= 2;
            }
        }
        self.pieces += 1;
    }

    /// Notes that all is written: what changes the time from now on is not a write of ours.
    pub(super) fn done(&mut self) {
        self.last = None;
    }

    fn state(&self, file: &File) -> io::Result<Option<(u64, SystemTime)>> {
        let about = file.metadata()?;
        Ok(if self.prompt { Some((about.len(), about.modified()?)) } else { None })
    }

    /// What has become of the file, in words, when all is written; empty if it is what we wrote.
    pub(super) fn verdict(&self, file: &File, path: &Path, size_bytes: u64) -> io::Result<&'static str> {
        let Ok(there) = File::open(path) else { return Ok("is gone") };
        let (ours, found) = (file.metadata()?, there.metadata()?);
        if (ours.dev(), ours.ino()) != (found.dev(), found.ino()) {
            return Ok("is another file now");
        }
        let mut same = !self.changed && found.len() == size_bytes;
        let mut buffer = [0; SAMPLE_BYTES];
        for &(offset, length, crc) in &self.samples {
            same = same
                && there.read_exact_at(&mut buffer[..length], offset).is_ok()
                && crc32c::crc32c(&buffer[..length]) == crc;
        }
        Ok(if same { "" } else { "has been written by somebody else" })
    }
}
