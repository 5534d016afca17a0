//! Pressed profile databases of `HMMER` 3 (`hmmpress`).
//!
//! `hmmscan` reads `.h3f`, the part of each profile that the first filter needs, from begin to end, and only for
//! profiles that pass it the rest, from `.h3p`, at an offset that stands in `.h3f`. So a part of `.h3f` with the other
//! three files as they are is a database of these profiles, bit for bit.
//!
//! Layout of an entry of `.h3f` (`impl_sse/io.c`, `p7_oprofile_Write()`, format 3/f, as the machine has it in memory):
//! magic, M, alphabet, length of the name, name and a zero; `max_length`, three bytes, scale, two bytes; for each symbol
//! of the alphabet a row of Q vectors, then for each a row of Q + 17; six statistical parameters; three offsets;
//! 20 floats; magic.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use super::index::Writer;
use super::{Error, Filler, Place, report, write_candidates};

const MAGIC: u32 = 0xb3e6_e6f3;
/// Bytes before the name.
const HEAD: usize = 16;
/// Bytes between the name's zero and the rows.
const MIDDLE: usize = 4 + 3 + 4 + 2;
/// Bytes of a vector.
const VECTOR: usize = 16;
/// More vectors in a row of the second kind.
const EXTRA: usize = 17;
const PARAMETERS: usize = 6 * 4;
const OFFSETS: usize = 3 * 8;
const COMPOSITION: usize = 20 * 4;
/// Bytes after the rows.
const TAIL: usize = PARAMETERS + OFFSETS + COMPOSITION + 4;

/// One profile while the file is read.
struct Entry {
    name: Vec<u8>,
    n_nodes: u64,
    place: Place,
}

/// Symbols of an alphabet, degenerate ones included, by Easel's number of it.
fn n_symbols(alphabet: u32) -> Option<usize> {
    match alphabet {
        1 | 2 => Some(18),
        3 => Some(29),
        _ => None,
    }
}

/// Bytes of the rows of a profile with `m` nodes.
fn rows(m: usize, n_symbols: usize) -> usize {
    let q = (m.saturating_sub(1) / 16 + 1).max(2);
    n_symbols * VECTOR * (q + q + EXTRA)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes)
}

/// Gives every profile of the file `path` (`.h3f`) to `each`, in order, and returns their number.
fn read(path: &Path, mut each: impl FnMut(&Entry) -> Result<(), Error>) -> Result<u64, Error> {
    let unknown = || Error::data(path, "is not laid out as HMMER 3.1 and later write it; run hmmpress again");
    let file = File::open(path).map_err(Error::io(path))?;
    let size = file.metadata().map_err(Error::io(path))?.len();
    let (mut at, mut ordinal) = (0, 0);
    while at < size {
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, at).map_err(|_| unknown())?;
        let symbols = n_symbols(word(&head, 8)).ok_or_else(unknown)?;
        let (m, n_name) = (word(&head, 4) as usize, word(&head, 12) as usize);
        if word(&head, 0) != MAGIC || m == 0 || m > 1 << 24 || n_name > 1 << 16 {
            return Err(unknown());
        }
        let mut name = vec![0; n_name];
        file.read_exact_at(&mut name, at + HEAD as u64).map_err(|_| unknown())?;
        let tail_at = at + (HEAD + n_name + 1 + MIDDLE + rows(m, symbols)) as u64;
        let mut tail = [0; TAIL];
        file.read_exact_at(&mut tail, tail_at).map_err(|_| unknown())?;
        // The second offset is the entry's own, so nothing is left to chance.
        let own = tail[PARAMETERS + 8..][..8].try_into().map_or(0, u64::from_le_bytes);
        if word(&tail, TAIL - 4) != MAGIC || own != at {
            return Err(unknown());
        }
        let length = tail_at + TAIL as u64 - at;
        each(&Entry { name, n_nodes: m as u64, place: Place { ordinal, offset: at, length } })?;
        at += length;
        ordinal += 1;
    }
    Ok(ordinal)
}

/// Nodes of each profile in the `.h3f` file `path`, which the time to search it grows with.
///
/// # Errors
/// [`Error::Data`] if it is laid out in another way.
pub fn profile_nodes(path: &Path) -> Result<Vec<u64>, Error> {
    let mut nodes = Vec::new();
    read(path, |entry| {
        nodes.push(entry.n_nodes);
        Ok(())
    })?;
    Ok(nodes)
}

/// Writes what the fragments of the pressed database `path` (without suffix) need into `folder`: a database
/// `fragment-N` for each (five digits, from 0), and the places of all names.
///
/// `cuts`: ordinals at which fragments begin, and the number of all profiles.
///
/// # Errors
/// [`Error::Data`] if there are not so many profiles.
pub fn prepare_profiles(path: &Path, cuts: &[u64], folder: &Path) -> Result<(), Error> {
    let source = with_suffix(path, "h3f");
    let mut names = Writer::new(folder, cuts);
    let mut starts = Vec::new();
    let mut end = 0;
    let n_entries = read(&source, |entry| {
        if names.begins(entry.place.ordinal).is_some() {
            starts.push(entry.place.offset);
        }
        end = entry.place.offset + entry.place.length;
        names.push(&entry.name, entry.place)
    })?;
    names.finish(&source, n_entries)?;
    starts.push(end);
    let mut database = File::open(&source).map_err(Error::io(&source))?;
    for (fragment, part) in starts.windows(2).enumerate() {
        let dest = folder.join(format!("fragment-{fragment:05}"));
        let filters = with_suffix(&dest, "h3f");
        database.seek(SeekFrom::Start(part[0])).map_err(Error::io(&source))?;
        let mut file = File::create(&filters).map_err(Error::io(&filters))?;
        io::copy(&mut database.by_ref().take(part[1] - part[0]), &mut file).map_err(Error::io(&filters))?;
        link_rest(path, &dest)?;
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// Gives `dest` the three other files of `path`.
fn link_rest(path: &Path, dest: &Path) -> Result<(), Error> {
    for suffix in ["h3m", "h3i", "h3p"] {
        let link = with_suffix(dest, suffix);
        symlink(with_suffix(path, suffix), &link).map_err(Error::io(&link))?;
    }
    Ok(())
}

/// Writes the pressed database `dest` of the candidates that `found`, the reports of all fragments, name; `side` gets
/// the sums of what the pipeline counted. Every other profile is one that never passes the first filter.
///
/// # Errors
/// [`Error::Data`] if a report is not understood.
pub fn profile_candidates(
    path: &Path,
    prepared: &Path,
    cuts: &[u64],
    found: &[&[u8]],
    dest: &Path,
    side: &Path,
) -> Result<(), Error> {
    let source = with_suffix(path, "h3f");
    let candidates = report::candidates(found, prepared, cuts, side)?;
    let mut head = [0; HEAD];
    File::open(&source).and_then(|file| file.read_exact_at(&mut head, 0)).map_err(Error::io(&source))?;
    let filler = Filler { entry: hopeless(word(&head, 8)), end: b"" };
    write_candidates(&source, &candidates, cuts.last().copied().unwrap_or(0), &filler, &with_suffix(dest, "h3f"))?;
    link_rest(path, dest)
}

/// A profile of one node with the highest cost for each residue, whose P-value is 1 whatever the score.
fn hopeless(alphabet: u32) -> Vec<u8> {
    let symbols = n_symbols(alphabet).unwrap_or(0);
    let mut entry = Vec::new();
    for value in [MAGIC, 1, alphabet, 1] {
        entry.extend(value.to_le_bytes());
    }
    entry.extend(b"-\0");
    entry.extend(100_u32.to_le_bytes());
    entry.extend([0; 3]);
    entry.extend(3_f32.to_le_bytes());
    entry.extend([190, 0]);
    // Costs: bytes without a sign in the rows of the first kind, with one in those of the second.
    entry.resize(entry.len() + symbols * VECTOR * 2, 0xff);
    entry.resize(entry.len() + symbols * VECTOR * (2 + EXTRA), 0x7f);
    for _ in 0..3 {
        entry.extend(1e6_f32.to_le_bytes());
        entry.extend(0.7_f32.to_le_bytes());
    }
    entry.extend([0; OFFSETS]);
    for _ in 0..20 {
        entry.extend(0.05_f32.to_le_bytes());
    }
    entry.extend(MAGIC.to_le_bytes());
    entry
}
