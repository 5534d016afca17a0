//! Rows of a table whose fields may stand in quotes, and then hold line breaks (RFC 4180).

use memchr::memchr2;

use super::scan::{Fault, Scanner, Step};

/// Ends a row at a line break outside quotes.
///
/// Which byte separates the fields need not be known: each quote opens or closes a field. Readers take a quote in the
/// middle of a bare field for a letter, and then the next field in quotes would seem to be outside of them: such a quote
/// is a fault.
#[derive(Default)]
pub(crate) struct Rows {
    inside: bool,
    /// The byte before closed a field, unless a quote follows: two stand for one.
    closed: bool,
    /// The byte before; none at the start of the source.
    before: Option<u8>,
    /// Lines that ended before it.
    lines: u64,
}

impl Rows {
    /// Passes over bytes that are neither quote nor line break.
    fn letters(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let Some(&last) = bytes.last() else { return Ok(()) };
        if std::mem::take(&mut self.closed) && !is_beside_field(bytes[0]) {
            return Err(self.fault());
        }
        self.before = Some(last);
        Ok(())
    }

    fn quote(&mut self) -> Result<(), Fault> {
        if !self.inside && !self.closed && !self.before.is_none_or(is_beside_field) {
            return Err(self.fault());
        }
        self.closed = self.inside;
        self.inside = !self.inside;
        self.before = Some(b'"');
        Ok(())
    }

    fn fault(&self) -> Fault {
        Fault { line: Some(self.lines + 1), problem: "a quote in the middle of a field".to_owned() }
    }
}

/// Whether a byte may stand before or after a field in quotes.
fn is_beside_field(byte: u8) -> bool {
    !byte.is_ascii_alphanumeric() && byte.is_ascii()
}

impl Scanner for Rows {
    fn scan(&mut self, data: &[u8], eof: bool) -> Result<Step, Fault> {
        let mut at = 0;
        while let Some(found) = memchr2(b'"', b'\n', &data[at..]) {
            self.letters(&data[at..at + found])?;
            at += found + 1;
            if data[at - 1] == b'"' {
                self.quote()?;
                continue;
            }
            (self.closed, self.before, self.lines) = (false, Some(b'\n'), self.lines + 1);
            if !self.inside {
                return Ok(Step::end(at, at as u64));
            }
        }
        self.letters(&data[at..])?;
        Ok(Step { len: data.len(), cost: data.len() as u64, ended: eof })
    }
}
