//! Where entries are: by name, a file of sorted hashes for each fragment, read by bisection; by ordinal, a file of places.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{Error, New, Place};

/// Bytes of one line of an index: hash, ordinal, offset, length.
const LINE: u64 = 32;

/// Name of the file with offset and length of each entry, in order, and bytes of one of its lines.
const PLACES: &str = "places";
const PLACE: u64 = 16;

/// Keyless, so the same for each process of this program.
pub(super) fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

/// Bytes of the digest of an entry's content.
pub(super) const DIGEST: usize = 16;

pub(super) fn shorten(hasher: &blake3::Hasher) -> [u8; DIGEST] {
    let mut digest = [0; DIGEST];
    hasher.finalize_xof().fill(&mut digest);
    digest
}

fn path_of(folder: &Path, fragment: usize) -> PathBuf {
    folder.join(format!("names-{fragment}"))
}

/// Gathers the entries of one fragment after the other, and writes the index of each when it is complete.
pub(super) struct Writer<'a> {
    folder: &'a Path,
    /// Ordinals at which fragments begin, and the number of all entries.
    cuts: &'a [u64],
    fragment: usize,
    lines: Vec<[u64; 4]>,
    /// File of the places of all entries, if they are wanted.
    places: Option<(PathBuf, BufWriter<File>)>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(folder: &'a Path, cuts: &'a [u64], new: New<'_>) -> Result<Self, Error> {
        let places = if new.0.is_some() {
            let path = folder.join(PLACES);
            let file = File::create(&path).map_err(Error::io(&path))?;
            Some((path, BufWriter::with_capacity(1 << 18, file)))
        } else {
            None
        };
        Ok(Self { folder, cuts, fragment: 0, lines: Vec::new(), places })
    }

    /// Whether an entry with this ordinal is the first of a fragment.
    pub(super) fn begins(&self, ordinal: u64) -> Option<usize> {
        self.cuts[..self.cuts.len() - 1].binary_search(&ordinal).ok()
    }

    /// Adds the next entry.
    pub(super) fn push(&mut self, name: &[u8], place: Place) -> Result<(), Error> {
        while self.fragment + 1 < self.cuts.len() && place.ordinal >= self.cuts[self.fragment + 1] {
            self.write()?;
        }
        self.lines.push([hash(name), place.ordinal, place.offset, place.length]);
        if let Some((path, file)) = &mut self.places {
            let line = [place.offset.to_le_bytes(), place.length.to_le_bytes()].concat();
            file.write_all(&line).map_err(Error::io(path))?;
        }
        Ok(())
    }

    /// Writes what is left, and checks that there were as many entries as the fragments say.
    pub(super) fn finish(mut self, database: &Path, n_entries: u64) -> Result<(), Error> {
        let expected = self.cuts.last().copied().unwrap_or(0);
        if n_entries != expected {
            return Err(Error::data(database, format!("has {n_entries} entries, but had {expected} before")));
        }
        while self.fragment + 1 < self.cuts.len() {
            self.write()?;
        }
        match &mut self.places {
            Some((path, file)) => file.flush().map_err(Error::io(path)),
            None => Ok(()),
        }
    }

    fn write(&mut self) -> Result<(), Error> {
        self.lines.sort_unstable();
        let path = path_of(self.folder, self.fragment);
        let file = File::create(&path).map_err(Error::io(&path))?;
        let mut out = BufWriter::with_capacity(1 << 18, file);
        for value in self.lines.drain(..).flatten() {
            out.write_all(&value.to_le_bytes()).map_err(Error::io(&path))?;
        }
        out.flush().map_err(Error::io(&path))?;
        self.fragment += 1;
        Ok(())
    }
}

/// The index of one fragment.
pub(super) struct Index {
    path: PathBuf,
    file: File,
    n_lines: u64,
}

impl Index {
    pub(super) fn open(folder: &Path, fragment: usize) -> Result<Self, Error> {
        let path = path_of(folder, fragment);
        let file = File::open(&path).map_err(Error::io(&path))?;
        let n_lines = file.metadata().map_err(Error::io(&path))?.len() / LINE;
        Ok(Self { path, file, n_lines })
    }

    fn line(&self, at: u64) -> Result<[u64; 4], Error> {
        read_words(&self.file, at * LINE).map_err(Error::io(&self.path))
    }

    /// Adds to `places` all entries that are called `name`, and perhaps others; returns whether there are any.
    pub(super) fn find(&self, name: &[u8], places: &mut Vec<Place>) -> Result<bool, Error> {
        let wanted = hash(name);
        let (mut low, mut high) = (0, self.n_lines);
        while low < high {
            let middle = low.midpoint(high);
            if self.line(middle)?[0] < wanted {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let before = places.len();
        while low < self.n_lines {
            let [found, ordinal, offset, length] = self.line(low)?;
            if found != wanted {
                break;
            }
            places.push(Place { ordinal, offset, length });
            low += 1;
        }
        Ok(places.len() > before)
    }
}

fn read_words<const N: usize>(file: &File, at: u64) -> io::Result<[u64; N]> {
    let mut bytes = [0; LINE as usize];
    let bytes = &mut bytes[..N * 8];
    file.read_exact_at(bytes, at)?;
    let mut values = [0; N];
    for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(8)) {
        *value = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    Ok(values)
}

/// Adds the places of the entries with these ordinals to `places`.
pub(super) fn find_places(folder: &Path, ordinals: &[u64], places: &mut Vec<Place>) -> Result<(), Error> {
    let path = folder.join(PLACES);
    let file = File::open(&path).map_err(Error::io(&path))?;
    for &ordinal in ordinals {
        let [offset, length] = read_words(&file, ordinal * PLACE).map_err(Error::io(&path))?;
        places.push(Place { ordinal, offset, length });
    }
    Ok(())
}
