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

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use super::index::{DIGEST, Writer, shorten};
use super::{Error, Filler, New, Place, Whole, report, write_candidates, write_entries};

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
    /// Offset of the rest of it in `.h3p`.
    rest: u64,
}

/// Bytes behind a profile's cutoffs in `.h3p`: expected number of hits, mode, length and magic.
const BEHIND_CUTOFFS: u64 = 4 * 4;
/// Cutoffs in `.h3p`: two each of GA, TC and NC.
const CUTOFFS: u64 = 6 * 4;
/// Value of a cutoff that a profile has not (`p7_CUTOFF_UNSET`).
const UNSET: f32 = -99_999.0;

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
        let offset = |at: usize| tail[PARAMETERS + at..][..8].try_into().map_or(0, u64::from_le_bytes);
        if word(&tail, TAIL - 4) != MAGIC || offset(8) != at {
            return Err(unknown());
        }
        let length = tail_at + TAIL as u64 - at;
        each(&Entry { name, n_nodes: m as u64, place: Place { ordinal, offset: at, length }, rest: offset(16) })?;
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
/// `cuts`: ordinals at which fragments begin, and the number of all profiles. `new`: see [`super::New`].
///
/// # Errors
/// [`Error::Data`] if there are not so many profiles.
pub fn prepare_profiles(path: &Path, cuts: &[u64], new: New<'_>, folder: &Path) -> Result<(), Error> {
    let source = with_suffix(path, "h3f");
    let mut names = Writer::new(folder, cuts, new)?;
    let (mut starts, mut chosen) = (Vec::new(), new.select());
    let mut end = 0;
    let n_entries = read(&source, |entry| {
        if names.begins(entry.place.ordinal).is_some() {
            starts.push(entry.place.offset);
        }
        end = entry.place.offset + entry.place.length;
        chosen.offer(entry.place);
        names.push(&entry.name, entry.place)
    })?;
    names.finish(&source, n_entries)?;
    starts.push(end);
    let name = |fragment: usize| folder.join(format!("fragment-{fragment:05}"));
    for (fragment, part) in starts.windows(2).enumerate() {
        let filters = with_suffix(&name(fragment), "h3f");
        if starts.len() == 2 {
            symlink(&source, &filters).map_err(Error::io(&filters))?;
        } else {
            copy_part(&source, part[0], part[1], &filters)?;
        }
        link_rest(path, &name(fragment))?;
    }
    if new.is_searched() {
        let dest = name(starts.len() - 1);
        write_entries(&source, &chosen.places, b"", &with_suffix(&dest, "h3f"))?;
        link_rest(path, &dest)?;
    }
    Ok(())
}

fn copy_part(source: &Path, first: u64, last: u64, dest: &Path) -> Result<(), Error> {
    let mut database = File::open(source).map_err(Error::io(source))?;
    database.seek(SeekFrom::Start(first)).map_err(Error::io(source))?;
    let mut file = File::create(dest).map_err(Error::io(dest))?;
    io::copy(&mut database.take(last - first), &mut file).map_err(Error::io(dest))?;
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
/// the sums of what the pipeline counted. Every other profile is one that never passes the first filter, or if `alone`
/// there is only one such profile, the first.
///
/// # Errors
/// [`Error::Data`] if a report is not understood.
pub fn profile_candidates(
    whole: &Whole<'_>,
    found: &[&[u8]],
    dest: &Path,
    side: &Path,
    alone: bool,
) -> Result<(), Error> {
    let source = with_suffix(whole.path, "h3f");
    let mut candidates = report::candidates(found, whole, side)?;
    let mut n_entries = whole.n_entries();
    if alone {
        for (ordinal, candidate) in (1..).zip(&mut candidates) {
            candidate.ordinal = ordinal;
        }
        n_entries = candidates.len() as u64 + 1;
    }
    let mut head = [0; HEAD];
    File::open(&source).and_then(|file| file.read_exact_at(&mut head, 0)).map_err(Error::io(&source))?;
    let filler = Filler { entry: hopeless(word(&head, 8)), end: b"" };
    write_candidates(&source, &candidates, n_entries, &filler, &with_suffix(dest, "h3f"))?;
    link_rest(whole.path, dest)
}

/// Bytes of a profile before the length of its name, in both files.
const BEFORE_NAME: u64 = 12;

/// Digests of all that `hmmscan` computes with of each profile of the pressed database `path` (without suffix), in order:
/// what names or describes it does not count.
///
/// # Errors
/// [`Error::Data`] if it is laid out in another way.
pub(super) fn digest(path: &Path) -> Result<Vec<[u8; DIGEST]>, Error> {
    let (filters, rest) = (with_suffix(path, "h3f"), with_suffix(path, "h3p"));
    let (first, second) = (open(&filters)?, open(&rest)?);
    let mut digests = Vec::new();
    for (place, of_rest, n_name) in list_rests(&filters, &rest)? {
        let mut hasher = blake3::Hasher::new();
        // Offsets change with the profiles around.
        let (name_end, offsets) = (n_name + HEAD as u64 + 1, place.length - (OFFSETS + COMPOSITION + 4) as u64);
        let text_end = find_text_end(&rest, &second, of_rest.offset + name_end)? - of_rest.offset;
        let mut hash = |path: &Path, file: &File, place: Place, first: u64, last: u64| {
            hash_part(path, file, place.offset + first, last.saturating_sub(first), &mut hasher)
        };
        hash(&filters, &first, place, 0, BEFORE_NAME)?;
        hash(&filters, &first, place, name_end, offsets)?;
        hash(&filters, &first, place, offsets + OFFSETS as u64, place.length)?;
        hash(&rest, &second, of_rest, 0, BEFORE_NAME)?;
        hash(&rest, &second, of_rest, text_end, of_rest.length)?;
        digests.push(shorten(&hasher));
    }
    Ok(digests)
}

/// Where accession and description end, which begin at `at` in `.h3p`: each is a length, and if it is not zero, text and a zero.
fn find_text_end(path: &Path, file: &File, mut at: u64) -> Result<u64, Error> {
    for _ in 0..2 {
        let length = read_length(path, file, at)?;
        at += 4 + if length > 0 { length + 1 } else { 0 };
    }
    Ok(at)
}

fn read_length(path: &Path, file: &File, at: u64) -> Result<u64, Error> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at).map_err(Error::io(path))?;
    Ok(u64::from(u32::from_le_bytes(bytes)))
}

/// The place of each profile in `.h3f`, that in `.h3p`, and the length of its name.
fn list_rests(filters: &Path, rest: &Path) -> Result<Vec<(Place, Place, u64)>, Error> {
    let mut entries = Vec::new();
    read(filters, |entry| {
        entries.push((entry.place, Place { offset: entry.rest, ..entry.place }, entry.name.len() as u64));
        Ok(())
    })?;
    let mut end = fs::metadata(rest).map_err(Error::io(rest))?.len();
    for (_, of_rest, _) in entries.iter_mut().rev() {
        of_rest.length = end
            .checked_sub(of_rest.offset)
            .filter(|length| *length > 0)
            .ok_or_else(|| Error::data(rest, "has not its profiles in order; run hmmpress again"))?;
        end = of_rest.offset;
    }
    Ok(entries)
}

/// Lengths of the longest name and the longest accession in the pressed database `path` (without suffix).
///
/// # Errors
/// [`Error::Data`] if it is laid out in another way.
pub fn profile_widths(path: &Path) -> Result<(u64, u64), Error> {
    let (filters, rest) = (with_suffix(path, "h3f"), with_suffix(path, "h3p"));
    let file = open(&rest)?;
    let (mut name, mut accession) = (0, 0);
    read(&filters, |entry| {
        name = name.max(entry.name.len() as u64);
        // Magic, M, alphabet, length of the name, name and a zero, length of the accession.
        let at = entry.rest + (HEAD + entry.name.len() + 1) as u64;
        accession = accession.max(read_length(&rest, &file, at)?);
        Ok(())
    })?;
    Ok((name, accession))
}

/// Names of the profiles in the pressed database `path` (without suffix) whose cutoff number `cutoff` is not set, in order.
///
/// # Errors
/// [`Error::Data`] if it is laid out in another way.
pub fn profiles_without_cutoff(path: &Path, cutoff: u8) -> Result<Vec<String>, Error> {
    let (filters, rest) = (with_suffix(path, "h3f"), with_suffix(path, "h3p"));
    let file = open(&rest)?;
    let mut names = Vec::new();
    read_names(path, |name| names.push(String::from_utf8_lossy(name).into_owned()))?;
    let mut found = Vec::new();
    for ((_, place, _), name) in list_rests(&filters, &rest)?.iter().zip(names) {
        let at = (place.offset + place.length).saturating_sub(BEHIND_CUTOFFS + CUTOFFS) + 4 * u64::from(cutoff);
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, at).map_err(Error::io(&rest))?;
        if f32::from_le_bytes(bytes) == UNSET {
            found.push(name);
        }
    }
    Ok(found)
}

fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(Error::io(path))
}

fn hash_part(path: &Path, file: &File, offset: u64, length: u64, hasher: &mut blake3::Hasher) -> Result<(), Error> {
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| Error::data(path, "a profile too long"))?];
    file.read_exact_at(&mut bytes, offset).map_err(Error::io(path))?;
    hasher.update(&bytes);
    Ok(())
}

/// Gives every name, in order, to `each`.
pub(super) fn read_names(path: &Path, mut each: impl FnMut(&[u8])) -> Result<(), Error> {
    read(&with_suffix(path, "h3f"), |entry| {
        each(&entry.name);
        Ok(())
    })?;
    Ok(())
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
