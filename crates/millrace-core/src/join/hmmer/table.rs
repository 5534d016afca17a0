//! Tables: rows of all queries, one header (of the first query) and one trailer.
//!
//! The columns of a table are as wide as the names of one query need, query by query, so rows never depend on the
//! batch. The header is as wide as the first query's; a first query that HMMER passes over leaves the whole table
//! without one. So the first batch alone decides on the header, even if it has none.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufWriter, Write};

use super::added::Added;
use super::lines::{CHUNK, Common, next, shape};
use crate::join::layout::{Before, Outline, digest};
use crate::join::{JoinError, Joiner};

const FORMAT: &str = "HMMER table";

/// More lines than any trailer has.
const HELD: usize = 16;

/// Program, options and directory are the same in all trailers; the date is not, and the last one counts.
pub(super) struct Table {
    added: Added,
    headed: bool,
    first: bool,
    trailer: Common,
    last_trailer: Vec<u8>,
    outline: Outline,
}

impl Table {
    /// `headed`: there is one header, written with the first query, rather than one for every query.
    pub(super) fn new(added: Added, headed: bool) -> Self {
        let (trailer, last_trailer, outline) = Default::default();
        Self { added, headed, first: true, trailer, last_trailer, outline }
    }

    /// Checks and remembers the trailer: `lines`, which is empty if the table has none.
    fn trailer(&mut self, mut lines: Vec<Vec<u8>>) -> Result<(), JoinError> {
        if lines.is_empty() && self.headed {
            return Err(shape(FORMAT, "a batch does not end with HMMER's trailer"));
        }
        for line in &mut lines {
            self.added.clean_settings(line, FORMAT)?;
        }
        if self.trailer.form == 0 {
            self.last_trailer = lines.concat();
        }
        lines.retain(|line| !line.starts_with(b"# Date: "));
        self.outline.foot = Some(digest(&lines.concat()));
        self.trailer.check(lines, FORMAT, "trailer")?;
        Ok(())
    }
}

impl Joiner for Table {
    fn block(&mut self, _n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        let mut out = BufWriter::with_capacity(CHUNK, out);
        let mut header = Header::new(self.headed && !self.first);
        // The first block has the header that counts, be it none.
        self.outline = Outline { head: Some(0), ..Outline::default() };
        let mut held = Held::default();
        let mut line = Vec::new();
        while next(block, &mut line)? {
            if header.drops(&line)? {
                self.outline.lead += line.len() as i64;
            } else {
                held.push(&mut line, &mut out)?;
            }
        }
        if held.is_cut() {
            return Err(shape(FORMAT, "a batch ends within a line"));
        }
        let trailer = held.finish(&mut out)?;
        self.trailer(trailer)?;
        self.first = false;
        out.flush()?;
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), JoinError> {
        out.write_all(&self.last_trailer)?;
        Ok(())
    }

    fn set_form(&mut self, form: u32) {
        self.trailer.form = form;
    }

    fn resume(&mut self, before: &Before) {
        self.first = !before.headed;
    }

    fn outline(&self) -> Option<Outline> {
        Some(self.outline.clone())
    }
}

/// Finds the header of a block that is not the first.
///
/// A header is an optional line of column groups, the column names, and a line that underlines them. A name may begin
/// with `#`, so a row is never judged by that.
enum Header {
    /// Nothing read yet.
    Start,
    /// The line of column groups was read.
    Groups,
    /// The column names were read.
    Names,
    /// Whatever comes is no header.
    Over,
}

impl Header {
    fn new(may_come: bool) -> Self {
        if may_come { Self::Start } else { Self::Over }
    }

    /// Whether `line` belongs to the header and is left out.
    fn drops(&mut self, line: &[u8]) -> Result<bool, JoinError> {
        let names = line.starts_with(b"# target name ");
        let groups = line.starts_with(b"#   ") && memchr::memmem::find(line, b"--- full sequence ---").is_some();
        let underline = is_underline(line);
        let (state, drops) = match self {
            Self::Start if groups => (Self::Groups, true),
            Self::Start | Self::Groups if names => (Self::Names, true),
            Self::Names if underline => (Self::Over, true),
            Self::Start | Self::Over => (Self::Over, false),
            Self::Groups | Self::Names => {
                return Err(shape(FORMAT, "a batch has an unknown header"));
            }
        };
        *self = state;
        Ok(drops)
    }
}

/// Whether `line` is `#` and nothing but dashes: where the names are long, spaces come before the first dash.
fn is_underline(line: &[u8]) -> bool {
    let dashes = line.trim_ascii_end().strip_prefix(b"#").unwrap_or(b"?");
    dashes.contains(&b'-') && dashes.iter().all(|byte| matches!(byte, b'-' | b' '))
}

/// Holds the last lines back, which may be the trailer.
#[derive(Default)]
struct Held(VecDeque<Vec<u8>>);

impl Held {
    /// Takes `line`, leaving a buffer to be used again, and writes the line that is too old to be of the trailer.
    fn push(&mut self, line: &mut Vec<u8>, out: &mut impl Write) -> io::Result<()> {
        if self.0.len() < HELD {
            self.0.push_back(std::mem::take(line));
            return Ok(());
        }
        if let Some(mut oldest) = self.0.pop_front() {
            out.write_all(&oldest)?;
            std::mem::swap(&mut oldest, line);
            self.0.push_back(oldest);
        }
        Ok(())
    }

    /// Whether the last line is not whole.
    fn is_cut(&self) -> bool {
        self.0.back().is_some_and(|line| !line.ends_with(b"\n"))
    }

    /// Writes what is before the trailer and returns the trailer, which is empty if there is none.
    ///
    /// # Errors
    /// [`JoinError::Shape`] for a part of a trailer: with the lines of other batches it could be taken for a whole one.
    fn finish(mut self, out: &mut impl Write) -> Result<Vec<Vec<u8>>, JoinError> {
        let lines = self.0.make_contiguous();
        let is_complete = lines.last().is_some_and(|line| line == b"# [ok]\n");
        let begins = |pair: &[Vec<u8>]| pair[0] == b"#\n" && pair[1].starts_with(b"# Program: ");
        let at = lines.windows(2).rposition(begins);
        if at.is_some() != is_complete {
            return Err(shape(FORMAT, "a batch does not end with HMMER's trailer, but with a part of it"));
        }
        let at = at.unwrap_or(lines.len());
        out.write_all(&lines[..at].concat())?;
        Ok(lines[at..].to_vec())
    }
}
