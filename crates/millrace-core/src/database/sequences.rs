//! FASTA files as databases of `HMMER`.
//!
//! A fragment is a place to start and a number of sequences: HMMER takes both as options, the place by a key of an
//! index file (`--restrictdb_stkey`, `--restrictdb_n`, `--ssifile`). The index written here has one key a fragment.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use memchr::memchr;

use super::index::Writer;
use super::{Error, Filler, Place, report, write_candidates};

/// How far a database was read at the end of some entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark {
    /// Entries up to here.
    pub entries: u64,
    /// Their residues.
    pub residues: u64,
}

/// One sequence while the file is read.
struct Entry<'a> {
    name: &'a [u8],
    place: Place,
    residues: u64,
}

/// Gives every sequence of the FASTA file `path` to `each`, in order, and returns their number.
///
/// # Errors
/// [`Error::Data`] where it is not sure that HMMER reads the same sequences: text before the first one, a `>` within
/// a line of residues, no name.
fn read(path: &Path, mut each: impl FnMut(&Entry) -> Result<(), Error>) -> Result<u64, Error> {
    let file = File::open(path).map_err(Error::io(path))?;
    let mut input = BufReader::with_capacity(1 << 20, file);
    let mut name = Vec::new();
    let (mut in_header, mut in_name) = (false, false);
    let (mut n_entries, mut residues) = (0, 0);
    let (mut at, mut start, mut last) = (0, 0, b'\n');
    loop {
        let bytes = input.fill_buf().map_err(Error::io(path))?;
        if bytes.is_empty() {
            break;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = if in_header {
                let end = memchr(b'\n', rest);
                let line = &rest[..end.unwrap_or(rest.len())];
                if in_name {
                    in_name = take_name(&mut name, line);
                }
                in_header = end.is_none();
                if !in_header && name.is_empty() {
                    return Err(Error::data(path, format!("sequence {n_entries} has no name")));
                }
                line.len() + usize::from(end.is_some())
            } else {
                let header = memchr(b'>', rest);
                let letters = &rest[..header.unwrap_or(rest.len())];
                let count = letters.iter().filter(|byte| **byte > b' ').count() as u64;
                if n_entries == 0 && count > 0 {
                    return Err(Error::data(path, "does not begin as FASTA"));
                }
                residues += count;
                if header.is_some() {
                    let before = letters.last().copied().unwrap_or(last);
                    if before != b'\n' {
                        return Err(Error::data(path, format!("sequence {n_entries} has a '>' within a line")));
                    }
                    let header_at = at + letters.len() as u64;
                    if n_entries > 0 {
                        let place = Place { ordinal: n_entries - 1, offset: start, length: header_at - start };
                        each(&Entry { name: &name, place, residues })?;
                    }
                    n_entries += 1;
                    residues = 0;
                    start = header_at;
                    name.clear();
                    (in_header, in_name) = (true, true);
                }
                letters.len() + usize::from(header.is_some())
            };
            at += taken as u64;
            last = rest[taken - 1];
            rest = &rest[taken..];
        }
        let n_bytes = bytes.len();
        input.consume(n_bytes);
    }
    if in_header && name.is_empty() {
        return Err(Error::data(path, format!("sequence {n_entries} has no name")));
    }
    if n_entries > 0 {
        let place = Place { ordinal: n_entries - 1, offset: start, length: at - start };
        each(&Entry { name: &name, place, residues })?;
    }
    Ok(n_entries)
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
        let end = entry.place.offset + entry.place.length;
        if end >= next {
            marks.push(now);
            next = end + step;
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
/// `cuts`: ordinals at which fragments begin, and the number of all sequences.
///
/// # Errors
/// [`Error::Data`] if the file has not so many sequences.
pub fn prepare_sequences(path: &Path, cuts: &[u64], folder: &Path) -> Result<(), Error> {
    let mut names = Writer::new(folder, cuts);
    let mut starts = Vec::new();
    let n_entries = read(path, |entry| {
        if names.begins(entry.place.ordinal).is_some() {
            starts.push(entry.place.offset);
        }
        names.push(entry.name, entry.place)
    })?;
    names.finish(path, n_entries)?;
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
pub fn sequence_candidates(
    path: &Path,
    prepared: &Path,
    cuts: &[u64],
    found: &[&[u8]],
    dest: &Path,
    side: &Path,
) -> Result<(), Error> {
    let candidates = report::candidates(found, prepared, cuts, side)?;
    let filler = Filler { entry: b">-\n".to_vec(), end: b"\n" };
    write_candidates(path, &candidates, cuts.last().copied().unwrap_or(0), &filler, dest)
}
