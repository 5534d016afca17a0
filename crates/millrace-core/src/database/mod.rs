//! Fragments of databases, and databases of candidates, for tools that read them as files.
//!
//! A fragment is a run of entries; it is described, never copied, where the tool can do with that. A database of
//! candidates has all entries of the whole one in their order: candidates as they are, and in the place of every other
//! entry a filler that the tool counts but cannot find. So the tool sees each candidate at its own place, in a
//! database of the same number of entries.
//! Nothing here knows of processes, journals or Python.

mod index;
mod profiles;
mod report;
mod sequences;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use profiles::{prepare_profiles, profile_candidates, profile_nodes};
pub use sequences::{Mark, prepare_sequences, sequence_candidates, sequence_marks, sequence_ranges};

/// What can fail here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading or writing failed.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Bytes that are not what they should be.
    #[error("{what}: {problem}")]
    Data {
        /// The file, or what else was read.
        what: String,
        /// What was expected and what was found.
        problem: String,
    },
}

impl Error {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        |error| Self::Io { path: path.to_owned(), error }
    }

    fn data(path: &Path, problem: impl Into<String>) -> Self {
        Self::Data { what: path.display().to_string(), problem: problem.into() }
    }
}

/// Where an entry is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Which entry of the whole database it is, from 0.
    ordinal: u64,
    offset: u64,
    length: u64,
}

/// What stands for an entry that is no candidate.
struct Filler {
    /// One whole entry.
    entry: Vec<u8>,
    /// What an entry must end with, so that the next one is not taken for a part of it; empty: nothing.
    end: &'static [u8],
}

/// Writes `n_entries` entries to `dest`: those of `candidates` (by ordinal) as they are in `source`, else the filler.
fn write_candidates(
    source: &Path,
    candidates: &[Place],
    n_entries: u64,
    filler: &Filler,
    dest: &Path,
) -> Result<(), Error> {
    let database = File::open(source).map_err(Error::io(source))?;
    let file = File::create(dest).map_err(Error::io(dest))?;
    let mut out = BufWriter::with_capacity(1 << 18, file);
    let block = filler.entry.repeat((1 << 16) / filler.entry.len() + 1);
    let mut entry = Vec::new();
    let mut next = 0;
    for place in candidates {
        write_fillers(&mut out, filler, &block, place.ordinal - next).map_err(Error::io(dest))?;
        entry.resize(usize::try_from(place.length).map_err(|_| Error::data(source, "an entry too long"))?, 0);
        database.read_exact_at(&mut entry, place.offset).map_err(Error::io(source))?;
        if !entry.ends_with(filler.end) {
            entry.extend_from_slice(filler.end);
        }
        out.write_all(&entry).map_err(Error::io(dest))?;
        next = place.ordinal + 1;
    }
    write_fillers(&mut out, filler, &block, n_entries - next).map_err(Error::io(dest))?;
    out.flush().map_err(Error::io(dest))
}

/// Writes `n` fillers; `block` is many of them.
fn write_fillers(out: &mut impl Write, filler: &Filler, block: &[u8], n: u64) -> io::Result<()> {
    let in_block = (block.len() / filler.entry.len()) as u64;
    for _ in 0..n / in_block {
        out.write_all(block)?;
    }
    out.write_all(&block[..(n % in_block) as usize * filler.entry.len()])
}
