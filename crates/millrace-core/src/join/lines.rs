//! Lines in, lines out, without a system call for each.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufWriter, Write};

use crate::join::JoinError;

/// Bytes gathered before they are written.
const CHUNK: usize = 1 << 16;

/// The most that a header, footer or other part that is kept may take; more is not the shape that was promised.
pub(in crate::join) const MOST_KEPT: usize = 1 << 22;

/// Reads lines, each with its line end, into one buffer that is used again.
pub(in crate::join) struct Lines<'a> {
    block: &'a mut dyn BufRead,
    line: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(in crate::join) fn new(block: &'a mut dyn BufRead) -> Self {
        Self { block, line: Vec::with_capacity(256) }
    }

    /// The next line, or `None` at the end of the block.
    pub(in crate::join) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let length = self.block.read_until(b'\n', &mut self.line)?;
        Ok((length > 0).then_some(&self.line))
    }
}

pub(in crate::join) fn buffered(out: &mut dyn Write) -> BufWriter<&mut dyn Write> {
    BufWriter::with_capacity(CHUNK, out)
}

/// Adds `line` to a part that is kept, such as a footer.
pub(in crate::join) fn keep(kept: &mut Vec<u8>, line: &[u8], format: &'static str) -> Result<(), JoinError> {
    if kept.len() + line.len() > MOST_KEPT {
        return Err(shape(format, "a header or footer has no end"));
    }
    kept.extend_from_slice(line);
    Ok(())
}

/// What tells one line of output from another: its text without the line end.
pub(super) fn text(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A count as tools write it: no sign, no leading zero; of 18 digits at most, so that counts can be added up.
pub(in crate::join) fn parse_count(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 18 || digits[0] == b'0' || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

pub(in crate::join) fn shape(format: &'static str, problem: impl Into<String>) -> JoinError {
    JoinError::Shape { format, problem: problem.into() }
}

/// A part that all blocks of one form of the command have in common: the first one is remembered, every later one must
/// equal it.
#[derive(Default)]
pub(in crate::join) struct Common {
    firsts: BTreeMap<u32, Vec<u8>>,
    /// The form of the blocks that follow; see [`crate::join::Joiner::set_form`].
    pub(in crate::join) form: u32,
}

impl Common {
    /// The part in the present form of the command.
    pub(in crate::join) fn get(&self) -> Option<&[u8]> {
        self.firsts.get(&0).map(Vec::as_slice)
    }

    pub(in crate::join) fn check(&mut self, part: Vec<u8>, format: &'static str, what: &str) -> Result<(), JoinError> {
        match self.firsts.get(&self.form) {
            None => drop(self.firsts.insert(self.form, part)),
            Some(first) if *first == part => {}
            Some(first) => return Err(shape(format, difference(what, first, &part))),
        }
        Ok(())
    }
}

fn difference(what: &str, first: &[u8], other: &[u8]) -> String {
    let lines = |part: &[u8]| part.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (first, other) = (lines(first), lines(other));
    let at = first.iter().zip(&other).position(|(a, b)| a != b).unwrap_or(first.len().min(other.len()));
    let show =
        |part: &[Vec<u8>]| part.get(at).map_or("nothing".into(), |line| String::from_utf8_lossy(line).into_owned());
    format!("the {what} differs between batches at its line {}: '{}' and '{}'", at + 1, show(&first), show(&other))
}

/// What all batches say of results that are not there: nothing at all, or what frames them.
#[derive(Default)]
pub(super) struct Presence {
    silent: bool,
    framed_nothing: bool,
}

impl Presence {
    /// Notes a batch without a byte.
    pub(super) fn silent(&mut self, format: &'static str) -> Result<(), JoinError> {
        self.silent = true;
        self.check(format)
    }

    /// Notes a batch with header or footer and nothing between them.
    pub(super) fn framed_nothing(&mut self, format: &'static str) -> Result<(), JoinError> {
        self.framed_nothing = true;
        self.check(format)
    }

    fn check(&self, format: &'static str) -> Result<(), JoinError> {
        if self.silent && self.framed_nothing {
            return Err(shape(
                format,
                "a batch has no output at all, where another without results has header or footer",
            ));
        }
        Ok(())
    }
}
