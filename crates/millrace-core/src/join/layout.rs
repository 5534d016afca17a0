//! Where the blocks of an output belong that several processes join: by what their outlines say, without their bytes.
//!
//! Who commits a block has just read it, and describes it in an [`Outline`]: how long it is in the output, and what it has to have
//! in common with the others. A [`Layout`] adds these up in the order of the input. It knows for each block where it begins and
//! what a joiner must know of those before it ([`Before`]), so that any process can join this block alone.

use std::io::{self, BufRead, Write};

use super::{JoinError, joiner};

/// What a joiner must know of the batches before the next one, if another has joined them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Before {
    /// Their records.
    pub records: u64,
    /// What they have counted: the sums of [`Outline::counts`]. Empty: nothing yet.
    pub counts: Vec<u64>,
    /// Whether the beginning of the output is written.
    pub headed: bool,
}

/// The numbers of records before a block for which it has the same length in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Starts {
    first: u64,
    last: u64,
}

impl Default for Starts {
    fn default() -> Self {
        Self { first: 0, last: u64::MAX }
    }
}

impl Starts {
    /// The block has the number of its record `local`, which is `before` + `local` in the output.
    pub(super) fn keep_width(&mut self, before: u64, local: u64) {
        let low = 10_u64.pow((before + local).checked_ilog10().unwrap_or(0));
        self.first = self.first.max(low.saturating_sub(local));
        self.last = self.last.min((low.saturating_mul(10) - 1).saturating_sub(local));
    }

    /// The block is known for so many records before it alone.
    pub(super) const fn only(before: u64) -> Self {
        Self { first: before, last: before }
    }

    const fn contains(self, before: u64) -> bool {
        self.first <= before && before <= self.last
    }
}

/// What is known of a block after it was read once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is one thing that a batch may be
pub struct Outline {
    /// Its bytes in the output, if it is not the first and nothing was counted before it.
    pub length: u64,
    /// So many bytes more if it begins the output.
    pub lead: i64,
    /// What its beginning has in common with all others; `None`: it has none.
    pub head: Option<u64>,
    /// The same of its end.
    pub foot: Option<u64>,
    /// What it adds to the counts of the whole output.
    pub counts: Vec<u64>,
    /// Whether the numbers up to the first count stand in it, each once, and run on from those before.
    pub numbered: bool,
    /// For how many records before it the length holds.
    pub starts: Starts,
    /// It has not a single byte.
    pub silent: bool,
    /// It has a beginning or an end, and nothing between them.
    pub framed_nothing: bool,
    /// It has something between them.
    pub has_body: bool,
    /// Its last line has no line end, so that nothing can follow.
    pub unended: bool,
}

/// A checksum of a part that all blocks have in common.
pub(super) fn digest(part: &[u8]) -> u64 {
    (part.len() as u64) << 32 | u64::from(crc32c::crc32c(part))
}

const VERSION: u8 = 1;

/// Most bytes of an outline: those of a name in a journal. One that takes more is measured when it is needed.
const MOST_BYTES: usize = 1 << 15;

impl Outline {
    fn flags(&self) -> u8 {
        [
            self.head.is_some(),
            self.foot.is_some(),
            self.numbered,
            self.silent,
            self.framed_nothing,
            self.has_body,
            self.unended,
        ]
        .iter()
        .enumerate()
        .fold(0, |flags, (bit, is_set)| flags | u8::from(*is_set) << bit)
    }

    /// As bytes; empty if they would be too many.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.flags()];
        bytes.extend(self.lead.to_le_bytes());
        let numbers =
            [self.length, self.head.unwrap_or(0), self.foot.unwrap_or(0), self.starts.first, self.starts.last];
        numbers.iter().chain(&self.counts).for_each(|number| bytes.extend(number.to_le_bytes()));
        if bytes.len() > MOST_BYTES { vec![] } else { bytes }
    }

    /// Reads what `encode` made; `None` if it is something else, or of another version.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let ([VERSION, flags], rest) = bytes.split_first_chunk::<2>().map(|(head, rest)| (*head, rest))? else {
            return None;
        };
        let words: Option<Vec<u64>> =
            rest.chunks(8).map(|word| Some(u64::from_le_bytes(word.try_into().ok()?))).collect();
        let [lead, length, head, foot, first, last, ref counts @ ..] = *words? else { return None };
        let is_set = |bit: u8| flags & 1 << bit != 0;
        Some(Self {
            length,
            lead: i64::from_le_bytes(lead.to_le_bytes()),
            head: is_set(0).then_some(head),
            foot: is_set(1).then_some(foot),
            counts: counts.to_vec(),
            numbered: is_set(2),
            starts: Starts { first, last },
            silent: is_set(3),
            framed_nothing: is_set(4),
            has_body: is_set(5),
            unended: is_set(6),
        })
    }

    /// Its bytes in the output behind `before`.
    fn length_behind(&self, before: &Before) -> Option<u64> {
        let lead = if before.headed { 0 } else { self.lead };
        let length = self.length.checked_add_signed(lead)?;
        let Some(count) = self.counts.first().filter(|_| self.numbered) else { return Some(length) };
        let reached = before.counts.first().copied().unwrap_or(0);
        (length + digits_up_to(reached + count)).checked_sub(digits_up_to(reached))?.checked_sub(digits_up_to(*count))
    }
}

/// The digits of all numbers from 1 to `last`.
fn digits_up_to(last: u64) -> u64 {
    let powers = std::iter::successors(Some(1_u64), |power| power.checked_mul(10));
    powers.take_while(|power| *power <= last).map(|power| last - power + 1).sum()
}

/// Adds up the outlines of the blocks of one output, in order.
#[derive(Debug, Default)]
pub struct Layout {
    before: Before,
    head: Option<u64>,
    foot: Option<u64>,
    silent: bool,
    framed_nothing: bool,
    unended: bool,
}

impl Layout {
    /// What the joiner of the next block must know.
    #[must_use]
    pub const fn before(&self) -> &Before {
        &self.before
    }

    /// Whether the length in `outline` holds for the next block.
    #[must_use]
    pub const fn holds(&self, outline: &Outline) -> bool {
        outline.starts.contains(self.before.records)
    }

    /// Adds the next block, of `n_records`; returns its bytes in the output. `None`: it does not fit those before it, and nothing
    /// was added; a joiner that sees them all says why.
    pub fn add(&mut self, n_records: u64, outline: &Outline) -> Option<u64> {
        let differs = |ours: Option<u64>, its: Option<u64>| ours.is_some() && its.is_some() && ours != its;
        let fits = !differs(self.head, outline.head)
            && !differs(self.foot, outline.foot)
            && !((self.silent || outline.silent) && (self.framed_nothing || outline.framed_nothing))
            && !(self.unended && outline.has_body);
        let counts = self.added(&outline.counts).filter(|_| fits)?;
        let length = outline.length_behind(&self.before)?;
        self.before.records += n_records;
        self.before.counts = counts;
        self.before.headed |= outline.head.is_some();
        self.head = self.head.or(outline.head);
        self.foot = self.foot.or(outline.foot);
        self.silent |= outline.silent;
        self.framed_nothing |= outline.framed_nothing;
        self.unended |= outline.unended;
        Some(length)
    }

    /// The counts with those of the next block.
    fn added(&self, counts: &[u64]) -> Option<Vec<u64>> {
        let ours = &self.before.counts;
        if ours.is_empty() || counts.is_empty() {
            return Some(if counts.is_empty() { ours.clone() } else { counts.to_vec() });
        }
        let sums = ours.iter().zip(counts).map(|(sum, count)| sum.checked_add(*count));
        sums.collect::<Option<Vec<_>>>().filter(|_| ours.len() == counts.len())
    }
}

/// Counts bytes.
#[derive(Default)]
struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a block of `n_records`, with `first` before it, and tells what others must know of it. `None`: it can only be joined by
/// who has joined all before it; or it is copied unchanged, and was not read.
///
/// # Errors
/// [`JoinError::Shape`] if the block has not the shape that its format promises, as far as it can be told from the block alone,
/// and [`JoinError::Unknown`] if there is no such joiner.
pub fn measure(spec: &str, first: u64, n_records: u64, block: &mut dyn BufRead) -> Result<Option<Outline>, JoinError> {
    let mut joiner = joiner(spec)?;
    if joiner.is_plain_copy() {
        return Ok(None);
    }
    joiner.resume(&Before { records: first, counts: vec![], headed: true });
    let mut count = Count::default();
    joiner.block(n_records, block, &mut count)?;
    joiner.finish(&mut io::sink())?;
    Ok(joiner.outline().map(|outline| Outline { length: count.0, ..outline }))
}

/// Whether each block can be joined by itself, once it is known what is before it.
///
/// # Errors
/// [`JoinError::Unknown`] if there is no such joiner.
pub fn is_separable(spec: &str) -> Result<bool, JoinError> {
    let joiner = joiner(spec)?;
    Ok(joiner.is_plain_copy() || joiner.outline().is_some())
}

/// Joins one block of `n_records` behind `before`.
///
/// # Errors
/// As [`super::Joiner::block`].
pub fn join_behind(
    spec: &str,
    before: &Before,
    n_records: u64,
    block: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<(), JoinError> {
    let mut joiner = joiner(spec)?;
    joiner.resume(before);
    joiner.block(n_records, block, out)
}

/// What follows the last block, which is this one, behind `before`.
///
/// # Errors
/// As [`super::Joiner::block`].
pub fn end_behind(spec: &str, before: &Before, n_records: u64, block: &mut dyn BufRead) -> Result<Vec<u8>, JoinError> {
    let mut joiner = joiner(spec)?;
    let mut end = Vec::new();
    joiner.resume(before);
    joiner.block(n_records, block, &mut io::sink())?;
    joiner.finish(&mut end)?;
    Ok(end)
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
