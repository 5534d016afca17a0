//! Entries of a BLAST database that a search has found, as the mask that has BLAST search them alone.
//!
//! What is read is BLAST's list of hits with links (`-html -num_alignments 0`): one line a subject, with an
//! anchor of the entry's number, or its id where the database has ids. A mask is what `OIDLIST` of an alias
//! names, one a volume: the number of the last entry as a big-endian 32-bit number, then one bit an entry,
//! most significant first (`seqdboidlist.cpp` of the NCBI C++ Toolkit).
//! Nothing here knows of processes or Python.

mod known_entries;
mod ranking;

pub use known_entries::{KnownEntries, sort as sort_digests};
pub use ranking::{By, Ranking, Within};

use std::io::{self, Write};

use memchr::memmem;

const ANCHOR: &[u8] = b"<a href=#";
const NUMBER: &[u8] = b"BL_ORD_ID:";
const QUERY: &[u8] = b"<b>Query=</b>";

/// Entries of all volumes of one database, counted one volume after another.
#[derive(Debug)]
pub struct Candidates {
    /// Ordinal of the first entry of each volume, and after the last the number of all.
    starts: Vec<u64>,
    bits: Vec<Vec<u8>>,
}

impl Candidates {
    /// No entry of volumes with so many entries each.
    #[must_use]
    pub fn new(volumes: &[u32]) -> Self {
        let mut starts = vec![0];
        for &entries in volumes {
            starts.push(starts[starts.len() - 1] + u64::from(entries));
        }
        let bits = volumes.iter().map(|&entries| vec![0; entries.div_ceil(8) as usize]).collect();
        Self { starts, bits }
    }

    /// Adds one entry; false if there is none with this ordinal.
    pub fn add(&mut self, entry: u64) -> bool {
        // The first start is 0, so there is at least one that is not above the entry.
        let volume = self.starts.partition_point(|&start| start <= entry) - 1;
        let Some(bits) = self.bits.get_mut(volume) else {
            return false;
        };
        let at = (entry - self.starts[volume]) as usize;
        bits[at / 8] |= 0x80 >> (at % 8);
        true
    }

    /// Keeps the entries whose turn is `number`, from 0, if they are dealt out to `of` players.
    pub fn deal(&mut self, number: u64, of: u64) {
        let mut nth = 0;
        for byte in self.bits.iter_mut().flatten() {
            let mut left = *byte;
            while left != 0 {
                let bit = 0x80 >> left.leading_zeros();
                left ^= bit;
                if nth % of != number {
                    *byte ^= bit;
                }
                nth += 1;
            }
        }
    }

    /// Number of entries added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.bits.iter().flatten().map(|byte| u64::from(byte.count_ones())).sum()
    }

    /// Ordinals of the entries added, ascending.
    pub fn ordinals(&self) -> impl Iterator<Item = u64> + '_ {
        self.starts.iter().zip(&self.bits).flat_map(|(&start, bits)| {
            let entries = bits.iter().zip(0_u64..).filter(|&(&byte, _)| byte != 0);
            entries.flat_map(move |(&byte, at)| {
                (0..8).filter(move |bit| byte & (0x80 >> bit) != 0).map(move |bit| start + 8 * at + bit)
            })
        })
    }

    /// Writes the mask of one volume.
    ///
    /// # Errors
    /// What `out` fails with; [`io::ErrorKind::InvalidInput`] if there is no such volume.
    pub fn write(&self, volume: usize, out: &mut dyn Write) -> io::Result<()> {
        let bits = self.bits.get(volume).ok_or(io::ErrorKind::InvalidInput)?;
        let entries = (self.starts[volume + 1] - self.starts[volume]) as u32;
        out.write_all(&entries.wrapping_sub(1).to_be_bytes())?;
        out.write_all(bits)
    }
}

/// Reads a list of hits, in pieces of any size.
#[derive(Debug, Default)]
pub struct HitList {
    lines: Lines,
    /// Lowest and highest rank of subjects that count, and by what they are ranked; nothing: all do.
    within: Option<(By, f64, f64)>,
    /// Subjects of the present query.
    subjects: u64,
    /// Most subjects of any query.
    pub most: u64,
    /// Ids of subjects that have no number, each once in a row.
    pub names: Vec<Vec<u8>>,
    /// Numbers that no entry has.
    pub unknown: u64,
}

impl HitList {
    /// Reads what ranks from `lowest` to `highest` alone.
    #[must_use]
    pub fn within(by: By, lowest: f64, highest: f64) -> Self {
        Self { within: Some((by, lowest, highest)), ..Self::default() }
    }

    /// Reads the next piece and adds the numbered entries to `candidates`.
    pub fn read(&mut self, piece: &[u8], candidates: &mut Candidates) {
        let mut lines = std::mem::take(&mut self.lines);
        lines.read(piece, |line| self.take(&line, candidates));
        self.lines = lines;
    }

    /// Reads what is left after the last piece.
    pub fn finish(&mut self, candidates: &mut Candidates) {
        self.read(b"\n", candidates);
    }

    fn take(&mut self, line: &Line<'_>, candidates: &mut Candidates) {
        let Line::Subject { id, bits, evalue } = line else {
            self.subjects = 0;
            return;
        };
        let counts = |(by, lowest, highest): (By, f64, f64)| {
            by.rank(bits, evalue).is_some_and(|rank| lowest <= rank && rank <= highest)
        };
        if !self.within.is_none_or(counts) {
            return;
        }
        self.subjects += 1;
        self.most = self.most.max(self.subjects);
        match number(id) {
            Some(entry) => self.unknown += u64::from(!candidates.add(entry)),
            None if self.names.last().is_some_and(|last| last == id) => {}
            None => self.names.push(id.to_vec()),
        }
    }
}

/// Subjects of one query: entries by number, and the ids of those that have none.
pub type QuerySubjects = (Vec<u64>, Vec<Vec<u8>>);

/// The subjects of each query of a complete list, in the order of the queries.
#[must_use]
pub fn subjects_by_query(text: &[u8]) -> Vec<QuerySubjects> {
    let mut found: Vec<QuerySubjects> = Vec::new();
    lines(text, &mut |line| match line {
        Line::Query => found.push((Vec::new(), Vec::new())),
        Line::Subject { id, .. } => {
            if let Some((entries, names)) = found.last_mut() {
                match number(id) {
                    Some(entry) => entries.push(entry),
                    None => names.push(id.to_vec()),
                }
            }
        }
    });
    found
}

/// What a line of a list says.
enum Line<'a> {
    /// From here on, subjects are those of another query.
    Query,
    /// A subject, and bits and E-value of its best alignment as they are printed.
    Subject { id: &'a [u8], bits: &'a [u8], evalue: &'a [u8] },
}

/// The lines of a list of hits that comes in pieces.
#[derive(Debug, Default)]
struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Tells `each` what the lines say that `piece` completes.
    fn read(&mut self, piece: &[u8], mut each: impl FnMut(Line<'_>)) {
        let Some(end) = memchr::memrchr(b'\n', piece) else {
            self.rest.extend_from_slice(piece);
            return;
        };
        if self.rest.is_empty() {
            lines(&piece[..end], &mut each);
        } else {
            self.rest.extend_from_slice(&piece[..end]);
            lines(&self.rest, &mut each);
        }
        self.rest.clear();
        self.rest.extend_from_slice(&piece[end + 1..]);
    }
}

fn lines(text: &[u8], each: &mut impl FnMut(Line<'_>)) {
    for line in text.split(|&byte| byte == b'\n') {
        if line.starts_with(QUERY) {
            each(Line::Query);
        } else if let Some(at) = memmem::rfind(line, ANCHOR) {
            // What follows the anchor: `ID>SCORE</a>   EVALUE`.
            let text = &line[at + ANCHOR.len()..];
            let Some(end) = memmem::find(text, b"</a>") else { continue };
            if let Some(middle) = memchr::memrchr(b'>', &text[..end]) {
                let (bits, behind) = (&text[middle + 1..end], &text[end + b"</a>".len()..]);
                let evalue = behind.split(u8::is_ascii_whitespace).find(|word| !word.is_empty()).unwrap_or_default();
                each(Line::Subject { id: &text[..middle], bits, evalue });
            }
        }
    }
}

/// The ordinal of an entry that an anchor of this text names, if it does not name an id.
fn number(id: &[u8]) -> Option<u64> {
    std::str::from_utf8(id.strip_prefix(NUMBER)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"<b>Query=</b> one <a href=#BL_ORD_ID:2>\n\nQ98496 a <a href=#BL_ORD_ID:1> title   \
        <a href=#BL_ORD_ID:9>23.1</a>    6.0  \nx  <a href=#BL_ORD_ID:0>22.3</a>    9.2  \n\
        <b>Query=</b> two\nP01013 y  <a href=#P01013>22.3</a>    9.2  \n";

    fn read(step: usize) -> (HitList, Candidates) {
        let mut candidates = Candidates::new(&[9, 4]);
        let mut list = HitList::default();
        for piece in TEXT.chunks(step) {
            list.read(piece, &mut candidates);
        }
        list.finish(&mut candidates);
        (list, candidates)
    }

    #[test]
    fn a_list_is_read_the_same_in_pieces_of_any_size() {
        for step in 1..TEXT.len() + 1 {
            let (list, candidates) = read(step);
            assert_eq!((list.most, list.unknown, candidates.count()), (2, 0, 2), "{step}");
            assert_eq!(list.names, [b"P01013"]);
        }
    }

    #[test]
    fn subjects_are_told_apart_by_query() {
        assert_eq!(subjects_by_query(TEXT), [(vec![9, 0], vec![]), (vec![], vec![b"P01013".to_vec()])]);
    }

    #[test]
    fn a_mask_has_a_bit_for_each_entry_of_its_volume() {
        let (_, candidates) = read(7);
        let mut masks = [Vec::new(), Vec::new()];
        for (volume, mask) in masks.iter_mut().enumerate() {
            candidates.write(volume, mask).unwrap();
        }
        assert_eq!(masks[0], [0, 0, 0, 8, 0x80, 0]);
        assert_eq!(masks[1], [0, 0, 0, 3, 0x80]);
    }

    proptest! {
        #[test]
        fn each_entry_is_dealt_once(entries in prop::collection::btree_set(0_u64..50, 0..50), of in 1_u64..6) {
            let (mut seen, mut least, mut most) = (0, u64::MAX, 0);
            for number in 0..of {
                let mut candidates = Candidates::new(&[13, 37]);
                prop_assert!(entries.iter().all(|&entry| candidates.add(entry)));
                candidates.deal(number, of);
                let (mut again, dealt) = (0, candidates.count());
                for &entry in &entries {
                    candidates.add(entry);
                    again += 1;
                }
                prop_assert_eq!(candidates.count(), again, "nothing that was not there");
                prop_assert!(candidates.ordinals().eq(entries.iter().copied()));
                (seen, least, most) = (seen + dealt, least.min(dealt), most.max(dealt));
            }
            prop_assert_eq!(seen, entries.len() as u64);
            prop_assert!(most - least <= 1);
        }
    }

    #[test]
    fn an_entry_that_is_not_there_is_refused() {
        let mut candidates = Candidates::new(&[9, 4]);
        assert!(candidates.add(12));
        assert!(!candidates.add(13));
        assert!(!Candidates::new(&[]).add(0));
    }
}
