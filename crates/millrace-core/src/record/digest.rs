//! Digests of records: of all their bytes, and of the sequence alone.

use memchr::memchr;

/// Bytes of a digest.
const DIGEST_BYTES: usize = 16;

/// Digests of consecutive records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordDigests {
    /// Of the bytes of each record.
    pub records: Vec<[u8; DIGEST_BYTES]>,
    /// Of the sequence of each record that has a title as in FASTA: without the title and without whitespace.
    pub sequences: Vec<[u8; DIGEST_BYTES]>,
    /// See [`super::Batch::sufficient`].
    pub sufficient: u64,
}

/// Digests one record, piece by piece.
#[derive(Default)]
pub(super) struct RecordHasher {
    record: blake3::Hasher,
    sequence: blake3::Hasher,
    has_title: bool,
    in_title: bool,
    mid_line: bool,
}

impl RecordHasher {
    pub(super) fn update(&mut self, piece: &[u8]) {
        self.record.update(piece);
        let mut rest = piece;
        while let Some(&first) = rest.first() {
            if first == b'>' && !self.mid_line && !self.has_title {
                (self.has_title, self.in_title) = (true, true);
            }
            let end = memchr(b'\n', rest);
            let (line, after) = rest.split_at(end.map_or(rest.len(), |at| at + 1));
            if !self.in_title {
                for part in line.split(u8::is_ascii_whitespace) {
                    self.sequence.update(part);
                }
            }
            self.mid_line = end.is_none();
            self.in_title &= self.mid_line;
            rest = after;
        }
    }

    /// Adds the digests of the record that has ended.
    pub(super) fn finish(&self, found: &mut RecordDigests) {
        found.records.push(shorten(&self.record));
        if self.has_title {
            found.sequences.push(shorten(&self.sequence));
        }
    }
}

fn shorten(hasher: &blake3::Hasher) -> [u8; DIGEST_BYTES] {
    let mut digest = [0; DIGEST_BYTES];
    hasher.finalize_xof().fill(&mut digest);
    digest
}
