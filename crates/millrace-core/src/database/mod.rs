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
mod targets;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use profiles::{prepare_profiles, profile_candidates, profile_nodes, profile_widths, profiles_without_cutoff};
pub use sequences::{Mark, prepare_sequences, sequence_candidates, sequence_marks, sequence_ranges};
pub use targets::{QueryTargets, TargetNames, target_digests};

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

/// A database, and what was prepared for its fragments.
#[derive(Debug, Clone, Copy)]
pub struct Whole<'a> {
    /// A FASTA file, or a pressed database without suffix.
    pub path: &'a Path,
    /// Folder that was prepared.
    pub prepared: &'a Path,
    /// Ordinals at which fragments begin, and the number of all entries.
    pub cuts: &'a [u64],
    /// Number of entries that are searched by themselves, as they are new since an earlier search.
    pub n_new: u64,
}

impl Whole<'_> {
    fn n_entries(&self) -> u64 {
        self.cuts.last().copied().unwrap_or(0)
    }
}

/// Half-open ranges of the entries that are new since an earlier search, whose candidates are known by ordinal. If there
/// are any, they are a fragment of their own behind all others. None: nothing is known.
#[derive(Debug, Clone, Copy)]
pub struct New<'a>(pub Option<&'a [(u64, u64)]>);

impl<'a> New<'a> {
    fn is_searched(self) -> bool {
        self.0.is_some_and(|ranges| !ranges.is_empty())
    }

    fn select(self) -> Selection<'a> {
        Selection { ranges: self.0.unwrap_or_default(), places: Vec::new() }
    }
}

/// Gathers the places of the entries in ranges, as all entries are read in order.
struct Selection<'a> {
    ranges: &'a [(u64, u64)],
    places: Vec<Place>,
}

impl Selection<'_> {
    fn offer(&mut self, place: Place) {
        while self.ranges.first().is_some_and(|range| range.1 <= place.ordinal) {
            self.ranges = &self.ranges[1..];
        }
        if self.ranges.first().is_some_and(|range| range.0 <= place.ordinal) {
            self.places.push(place);
        }
    }
}

/// Writes the entries at `places` of `source` to `dest`, each with `end` behind it if it does not end so.
fn write_entries(source: &Path, places: &[Place], end: &'static [u8], dest: &Path) -> Result<(), Error> {
    let alone: Vec<Place> = (0..).zip(places).map(|(ordinal, place)| Place { ordinal, ..*place }).collect();
    // There is no place for a filler.
    let filler = Filler { entry: vec![0], end };
    write_candidates(source, &alone, alone.len() as u64, &filler, dest)
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
