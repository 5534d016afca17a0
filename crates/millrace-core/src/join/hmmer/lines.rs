//! What both joiners need to read lines and to compare parts.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use crate::join::JoinError;

/// Bytes gathered before they are written.
pub(super) const CHUNK: usize = 1 << 16;

/// Reads the next line with its line end into `line`; false at the end of the block.
pub(super) fn next(block: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    Ok(block.read_until(b'\n', line)? > 0)
}

pub(super) fn shape(format: &'static str, problem: impl Into<String>) -> JoinError {
    JoinError::Shape { format, problem: problem.into() }
}

/// A part that all blocks of one form of the command have in common: the first one is remembered, every later one must
/// equal it.
#[derive(Default)]
pub(super) struct Common {
    firsts: BTreeMap<u32, Vec<Vec<u8>>>,
    /// The form of the blocks that follow; see [`crate::join::Joiner::set_form`].
    pub(super) form: u32,
}

impl Common {
    /// Whether this was the first part of the present form.
    ///
    /// # Errors
    /// [`JoinError::Shape`] with the first line that differs.
    pub(super) fn check(&mut self, part: Vec<Vec<u8>>, format: &'static str, what: &str) -> Result<bool, JoinError> {
        let Some(first) = self.firsts.get(&self.form) else {
            self.firsts.insert(self.form, part);
            return Ok(self.form == 0);
        };
        if *first == part {
            return Ok(false);
        }
        let at = first.iter().zip(&part).take_while(|(a, b)| a == b).count();
        let show = |part: &[Vec<u8>]| {
            part.get(at).map_or("nothing".into(), |line| String::from_utf8_lossy(line).trim_end().to_owned())
        };
        let (line, was, is) = (at + 1, show(first), show(&part));
        let problem = format!("the {what} differs between batches at its line {line}: '{was}' and '{is}'");
        Err(shape(format, problem))
    }
}
