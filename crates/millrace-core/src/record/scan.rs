//! What every scanner does: tell where the record at hand ends.

/// How far a scanner got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// Bytes that belong to the record at hand. Those after them are undecided or the next record's.
    pub(crate) len: usize,
    /// Cost units among them.
    pub(crate) cost: u64,
    /// Whether the record ends there.
    pub(crate) ended: bool,
}

impl Step {
    pub(crate) fn more(len: usize, cost: u64) -> Self {
        Self { len, cost, ended: false }
    }

    pub(crate) fn end(len: usize, cost: u64) -> Self {
        Self { len, cost, ended: true }
    }
}

/// Why the bytes cannot be cut: the line in the source, from 1, and the problem in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: Option<u64>,
    pub(crate) problem: String,
}

/// Finds the ends of records in a stream that arrives in pieces of any size.
///
/// The state always describes the first byte of the next `data`: bytes beyond `Step::len` come
/// again. What is decided depends on the bytes alone, never on how they were cut into pieces.
pub(crate) trait Scanner: Send {
    /// Looks at `data`, the next bytes of the source, up to the end of the record at hand.
    ///
    /// With `eof`, `data` is all that is left: then the step takes all of it or ends a record, and with empty `data`
    /// it ends the record at hand. A step of no bytes that ends nothing asks for more data; scanners look ahead by at
    /// most a few MiB, whatever the input.
    fn scan(&mut self, data: &[u8], eof: bool) -> Result<Step, Fault>;

    /// Whether the record that begins with `data` has no cost; `None` if that shows only with more data.
    ///
    /// To be asked between two records.
    fn next_is_empty(&self, _data: &[u8], _eof: bool) -> Option<bool> {
        Some(false)
    }
}

/// How long a run of blank or comment lines may be that waits for what follows it.
///
/// Longer runs belong to the record before: memory must not depend on the input.
pub(crate) const LOOK_AHEAD: usize = 64 << 10;

/// Counts the bytes that are not white space or control characters.
pub(crate) fn count_letters(data: &[u8]) -> u64 {
    count(data, |byte| byte > b' ')
}

/// Counts residues: letters, and `*` for a stop, as BLAST does; gaps and digits are none.
pub(crate) fn count_residues(data: &[u8]) -> u64 {
    count(data, |byte| byte.is_ascii_alphabetic() || byte == b'*')
}

/// Written so that it becomes vector code: at most 255 ones fit the lanes of a byte.
fn count(data: &[u8], counts: impl Fn(u8) -> bool) -> u64 {
    data.chunks(192).map(|chunk| u64::from(chunk.iter().map(|&byte| u8::from(counts(byte))).sum::<u8>())).sum()
}

/// Whether a line is white space only.
pub(crate) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}
