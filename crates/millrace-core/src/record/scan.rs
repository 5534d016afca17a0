//! What every scanner does: tell where the record at hand ends.

/// How far a scanner got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// Bytes that belong to the record at hand. Those after them are undecided or the next record's.
    pub(crate) len: usize,
    /// Cost units among them.
    pub(crate) cost: u64,
    /// Letters among them that count for [`Content`]; of formats other than FASTA, the cost.
    pub(crate) content: u64,
    /// Whether the record ends there.
    pub(crate) ended: bool,
}

impl Step {
    pub(crate) fn more(len: usize, cost: u64) -> Self {
        Self { len, cost, content: cost, ended: false }
    }

    pub(crate) fn end(len: usize, cost: u64) -> Self {
        Self { len, cost, content: cost, ended: true }
    }

    pub(crate) fn with_content(self, content: u64) -> Self {
        Self { content, ..self }
    }
}

/// What a record needs to be given to a tool alone: some tools fail on a record with less, never end, or write
/// something else than where other records stand beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Which bytes count; None: all residues.
    letters: Option<[bool; 256]>,
    least: u64,
}

impl Content {
    /// At least `least` of `letters`; where none are named, of any residues.
    #[must_use]
    pub fn new(letters: &[u8], least: u64) -> Self {
        let table = std::array::from_fn(|byte| u8::try_from(byte).is_ok_and(|byte| letters.contains(&byte)));
        Self { letters: (!letters.is_empty()).then_some(table), least }
    }

    /// Whether a record with so many of the letters can stand alone.
    pub(crate) fn is_enough(&self, n_letters: u64) -> bool {
        n_letters >= self.least
    }

    /// Counts the letters of a piece of sequence.
    pub(crate) fn count(&self, sequence: &[u8]) -> u64 {
        match &self.letters {
            Some(table) => sequence.iter().map(|&byte| u64::from(table[usize::from(byte)])).sum(),
            None => count_residues(sequence),
        }
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

    /// Counts in each step the letters that `content` asks for, and not all that cost.
    fn count_content(&mut self, _content: Content) {}
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
