//! FASTA files as databases of `HMMER`.
//!
//! A fragment is a place to start and a number of sequences: HMMER takes both as options, the place by a key of an
//! index file (`--restrictdb_stkey`, `--restrictdb_n`, `--ssifile`). The index written here has one key a fragment.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use memchr::memchr;

use super::index::{DIGEST, Writer, shorten};
use super::{Error, Filler, New, Place, Whole, report, write_candidates, write_entries};

/// What a sequence must end with.
const END: &[u8] = b"\n";

/// How far a database was read at the end of some entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark {
    /// Entries up to here.
    pub entries: u64,
    /// Their residues.
    pub residues: u64,
    /// Bytes of the file up to here.
    pub bytes: u64,
}

/// One sequence while the file is read.
#[derive(Default)]
struct Entry {
    name: Vec<u8>,
    place: Place,
    residues: u64,
    /// Of the residues, if they are digested.
    digest: [u8; DIGEST],
}

/// What the next byte of a FASTA file belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The name, or the space before it.
    Name,
    /// The rest of the header line.
    Description,
    Residues,
}

/// Finds the sequences of a FASTA file whose bytes come in pieces.
struct Scanner<'a> {
    path: &'a Path,
    part: Part,
    /// Sequences begun, and the one at hand.
    n_begun: u64,
    entry: Entry,
    /// Bytes taken, and the last of them.
    at: u64,
    last: u8,
    /// Digests the residues of the sequence at hand, if that is wanted.
    hasher: Option<blake3::Hasher>,
}

impl<'a> Scanner<'a> {
    fn new(path: &'a Path) -> Self {
        Self { path, part: Part::Residues, n_begun: 0, entry: Entry::default(), at: 0, last: b'\n', hasher: None }
    }

    /// Takes a part of `bytes`, at least one, and gives a sequence that ends there to `each`.
    fn take(&mut self, bytes: &[u8], each: &mut impl FnMut(&Entry) -> Result<(), Error>) -> Result<usize, Error> {
        let stop = if self.part == Part::Residues { b'>' } else { b'\n' };
        let end = memchr(stop, bytes);
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        if self.part == Part::Residues {
            self.residues(piece)?;
            if end.is_some() {
                self.begin(self.at + piece.len() as u64, piece.last().copied().unwrap_or(self.last), each)?;
            }
        } else {
            if self.part == Part::Name && !take_name(&mut self.entry.name, piece) {
                self.part = Part::Description;
            }
            if end.is_some() {
                self.check_name()?;
                self.part = Part::Residues;
            }
        }
        let taken = piece.len() + usize::from(end.is_some());
        self.at += taken as u64;
        self.last = bytes[taken - 1];
        Ok(taken)
    }

    fn residues(&mut self, letters: &[u8]) -> Result<(), Error> {
        let count = letters.iter().filter(|byte| **byte > b' ').count() as u64;
        if self.n_begun == 0 && count > 0 {
            return Err(Error::data(self.path, "does not begin as FASTA"));
        }
        self.entry.residues += count;
        if let Some(hasher) = &mut self.hasher {
            for part in letters.split(|byte| *byte <= b' ') {
                hasher.update(part);
            }
        }
        Ok(())
    }

    /// A sequence begins at `offset`, after the byte `before`: the one at hand ends.
    fn begin(
        &mut self,
        offset: u64,
        before: u8,
        each: &mut impl FnMut(&Entry) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if before != b'\n' {
            return Err(Error::data(self.path, format!("sequence {} has a '>' within a line", self.n_begun)));
        }
        self.end(offset, each)?;
        self.entry.name.clear();
        self.entry.residues = 0;
        self.entry.place = Place { ordinal: self.n_begun, offset, length: 0 };
        self.n_begun += 1;
        self.part = Part::Name;
        Ok(())
    }

    /// Gives the sequence at hand, if there is one, to `each`; it ends at `offset`.
    fn end(&mut self, offset: u64, each: &mut impl FnMut(&Entry) -> Result<(), Error>) -> Result<(), Error> {
        if self.n_begun == 0 {
            return Ok(());
        }
        self.entry.place.length = offset - self.entry.place.offset;
        if let Some(hasher) = &mut self.hasher {
            self.entry.digest = shorten(hasher);
            hasher.reset();
        }
        each(&self.entry)
    }

    fn check_name(&self) -> Result<(), Error> {
        if self.n_begun > 0 && self.entry.name.is_empty() {
            return Err(Error::data(self.path, format!("sequence {} has no name", self.n_begun)));
        }
        Ok(())
    }
}

/// Gives every sequence of the FASTA file `path` to `each`, in order, and returns their number.
///
/// # Errors
/// [`Error::Data`] where it is not sure that HMMER reads the same sequences: text before the first one, a `>` within
/// a line of residues, no name.
fn read(path: &Path, each: impl FnMut(&Entry) -> Result<(), Error>) -> Result<u64, Error> {
    read_by(path, 1 << 20, each)
}

/// As [`read`], `buffer` bytes at a time.
fn read_by(path: &Path, buffer: usize, each: impl FnMut(&Entry) -> Result<(), Error>) -> Result<u64, Error> {
    scan(Scanner::new(path), buffer, each)
}

fn scan(
    mut scanner: Scanner<'_>,
    buffer: usize,
    mut each: impl FnMut(&Entry) -> Result<(), Error>,
) -> Result<u64, Error> {
    let file = File::open(scanner.path).map_err(Error::io(scanner.path))?;
    let mut input = BufReader::with_capacity(buffer, file);
    loop {
        let bytes = input.fill_buf().map_err(Error::io(scanner.path))?;
        if bytes.is_empty() {
            break;
        }
        let mut taken = 0;
        while taken < bytes.len() {
            taken += scanner.take(&bytes[taken..], &mut each)?;
        }
        input.consume(taken);
    }
    scanner.check_name()?;
    scanner.end(scanner.at, &mut each)?;
    Ok(scanner.n_begun)
}

/// Adds what of a header line belongs to the name; false once the name has ended.
fn take_name(name: &mut Vec<u8>, line: &[u8]) -> bool {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c);
    let skipped = if name.is_empty() { line.iter().take_while(|byte| is_space(byte)).count() } else { 0 };
    let line = &line[skipped..];
    let length = line.iter().position(is_space).unwrap_or(line.len());
    name.extend_from_slice(&line[..length]);
    length == line.len()
}

/// Reads the FASTA file `path` through; returns about `most` evenly spread marks, the last one at its end.
///
/// # Errors
/// [`Error::Data`] where it is not sure that HMMER reads the same sequences.
pub fn sequence_marks(path: &Path, most: u64) -> Result<Vec<Mark>, Error> {
    let step = fs::metadata(path).map_err(Error::io(path))?.len() / most.max(1);
    let mut marks = Vec::new();
    let (mut now, mut next) = (Mark::default(), step);
    read(path, |entry| {
        now.entries += 1;
        now.residues += entry.residues;
        now.bytes = entry.place.offset + entry.place.length;
        if now.bytes >= next {
            marks.push(now);
            next = now.bytes + step;
        }
        Ok(())
    })?;
    if marks.last() != Some(&now) {
        marks.push(now);
    }
    Ok(marks)
}

/// Writes what the fragments of the FASTA file `path` need into `folder`: the index `starts.ssi`, with the key
/// `fragment-N` (five digits, from 0) for each, and the places of all names.
///
/// `cuts`: ordinals at which fragments begin, and the number of all sequences. `new`: see [`super::New`]; if they are
/// searched by themselves, `new.fasta` has a copy of them.
///
/// # Errors
/// [`Error::Data`] if the file has not so many sequences.
pub fn prepare_sequences(path: &Path, cuts: &[u64], new: New<'_>, folder: &Path) -> Result<(), Error> {
    let mut names = Writer::new(folder, cuts, new)?;
    let (mut starts, mut chosen) = (Vec::new(), new.select());
    let n_entries = read(path, |entry| {
        if names.begins(entry.place.ordinal).is_some() {
            starts.push(entry.place.offset);
        }
        chosen.offer(entry.place);
        names.push(&entry.name, entry.place)
    })?;
    names.finish(path, n_entries)?;
    if new.is_searched() {
        write_entries(path, &chosen.places, END, &folder.join("new.fasta"))?;
    }
    let index = folder.join("starts.ssi");
    fs::write(&index, ssi(&starts)).map_err(Error::io(&index))
}

/// An index in Easel's format SSI 3.0 (`esl_ssi.c`): one file, and a key for each of `starts`.
fn ssi(starts: &[u64]) -> Vec<u8> {
    const MAGIC: u32 = 0xd3d3_c9b3;
    const HEADER: usize = 4 * 3 + 2 + 8 * 2 + 4 * 6 + 8 * 3;
    const FILE_NAME: &[u8] = b"database\0";
    const KEY: usize = 15;
    const FASTA: u32 = 1;
    let (file_record, key_record) = (FILE_NAME.len() + 4 * 4, KEY + 2 + 8 * 3);
    let keys_at = HEADER + file_record;
    let mut bytes = Vec::new();
    for value in [MAGIC, 0, 8] {
        bytes.extend(value.to_be_bytes());
    }
    bytes.extend(1_u16.to_be_bytes());
    for value in [starts.len() as u64, 0] {
        bytes.extend(value.to_be_bytes());
    }
    for value in [FILE_NAME.len(), KEY, 0, file_record, key_record, 0] {
        bytes.extend((value as u32).to_be_bytes());
    }
    for value in [HEADER, keys_at, keys_at + key_record * starts.len()] {
        bytes.extend((value as u64).to_be_bytes());
    }
    bytes.extend(FILE_NAME);
    for value in [FASTA, 0, 0, 0] {
        bytes.extend(value.to_be_bytes());
    }
    for (fragment, start) in starts.iter().enumerate() {
        let mut key = format!("fragment-{fragment:05}").into_bytes();
        key.resize(KEY, 0);
        bytes.extend(key);
        bytes.extend(0_u16.to_be_bytes());
        for value in [*start, 0, 0] {
            bytes.extend(value.to_be_bytes());
        }
    }
    bytes
}

/// Writes the FASTA file `dest` of the candidates that `found`, the reports of all fragments, name; `side` gets the
/// sums of what the pipeline counted. Every other sequence is one without residues, which HMMER counts and passes over.
///
/// # Errors
/// [`Error::Data`] if a report is not understood.
pub fn sequence_candidates(whole: &Whole<'_>, found: &[&[u8]], dest: &Path, side: &Path) -> Result<(), Error> {
    let candidates = report::candidates(found, whole, side)?;
    let filler = Filler { entry: b">-\n".to_vec(), end: END };
    write_candidates(whole.path, &candidates, whole.n_entries(), &filler, dest)
}

/// Bytes of the file that [`sequence_candidates`] reads: half-open, in order.
///
/// # Errors
/// [`Error::Data`] if a report is not understood.
pub fn sequence_ranges(whole: &Whole<'_>, found: &[&[u8]], side: &Path) -> Result<Vec<(u64, u64)>, Error> {
    let candidates = report::candidates(found, whole, side)?;
    Ok(candidates.iter().map(|place| (place.offset, place.offset + place.length)).collect())
}

/// Digests of the residues of each sequence of the FASTA file `path`, in order; neither spaces nor ends of lines count.
///
/// # Errors
/// [`Error::Data`] where it is not sure that HMMER reads the same sequences.
pub(super) fn digest(path: &Path) -> Result<Vec<[u8; DIGEST]>, Error> {
    let mut digests = Vec::new();
    let mut scanner = Scanner::new(path);
    scanner.hasher = Some(blake3::Hasher::new());
    scan(scanner, 1 << 20, |entry| {
        digests.push(entry.digest);
        Ok(())
    })?;
    Ok(digests)
}

/// Gives every name, in order, to `each`.
pub(super) fn read_names(path: &Path, mut each: impl FnMut(&[u8])) -> Result<(), Error> {
    read(path, |entry| {
        each(&entry.name);
        Ok(())
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_do_not_depend_on_the_buffer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db.faa");
        fs::write(&path, "\n>a first\r\nAC\nDE\n> \t bb\n\n>?c\n>d\nF\n").unwrap();
        let whole = [("a", 1, 16, 4), ("bb", 17, 8, 0), ("?c", 25, 4, 0), ("d", 29, 5, 1)];
        for buffer in 1..40 {
            let mut found = Vec::new();
            let n = read_by(&path, buffer, |entry| {
                let Place { ordinal, offset, length } = entry.place;
                assert_eq!(ordinal, found.len() as u64);
                found.push((String::from_utf8(entry.name.clone()).unwrap(), offset, length, entry.residues));
                Ok(())
            });
            let found: Vec<_> = found.iter().map(|(name, a, b, c)| (name.as_str(), *a, *b, *c)).collect();
            assert_eq!((n.unwrap(), found.as_slice()), (4, whole.as_slice()), "buffer of {buffer}");
        }
    }
}
