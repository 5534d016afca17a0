//! Event logs as columns of numbers, and back: text with separators, events of OTF2, records of CLOG-2.
//!
//! What a column means is the caller's business, who also compares: a log may be written in a form that is not restored.

mod clog2;
mod otf2;
mod text;
mod words;

use std::fmt;

pub use clog2::{Clog2Form, format_clog2, parse_clog2};
pub use otf2::{format_otf2, parse_otf2};
pub use text::{format_text, parse_text};

/// One column: a number for each row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Column {
    /// The numbers; of words, their places among these.
    pub values: Vec<i64>,
    /// Decimals of each number in text.
    pub decimals: u32,
    /// The words, in the order in which they come first; None: a column of numbers.
    pub words: Option<Vec<Vec<u8>>>,
}

/// Why a log is none, or columns are none of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceError(pub &'static str);

impl fmt::Display for TraceError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.0)
    }
}

impl std::error::Error for TraceError {}

/// Columns that no log has.
const NO_LOG: TraceError = TraceError("these are not the columns of a log");

/// More than a caller wants.
const TOO_LONG: TraceError = TraceError("more than any piece has");

/// The word of a row.
fn word_of<T: AsRef<[u8]>>(words: &[T], value: i64) -> Result<&[u8], TraceError> {
    usize::try_from(value).ok().and_then(|at| words.get(at)).map(AsRef::as_ref).ok_or(NO_LOG)
}
