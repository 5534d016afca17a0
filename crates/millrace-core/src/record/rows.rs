//! Rows of a table whose fields may stand in quotes, and then hold line breaks (RFC 4180).

use memchr::memchr2;

use super::scan::{Fault, Scanner, Step};

/// What Excel begins a table in UTF-8 with; its first field begins after it.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Ends a row at a line break outside quotes.
///
/// Each quote opens or closes a field: it stands beside a line break or what separates the fields, which is the first
/// punctuation that stands so. Readers take a quote in the middle of a bare field for a letter, and then the next field in
/// quotes would seem to be outside of them: such a quote is a fault.
#[derive(Default)]
pub(crate) struct Rows {
    separator: Option<u8>,
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
        if std::mem::take(&mut self.closed) && !self.is_beside_field(bytes[0]) {
            return Err(self.fault());
        }
        self.before = Some(last);
        Ok(())
    }

    fn quote(&mut self) -> Result<(), Fault> {
        if !self.inside && !self.closed && self.before.is_some_and(|byte| !self.is_beside_field(byte)) {
            return Err(self.fault());
        }
        self.closed = self.inside;
        self.inside = !self.inside;
        self.before = Some(b'"');
        Ok(())
    }

    /// Whether a byte may stand before or after a field in quotes.
    fn is_beside_field(&mut self, byte: u8) -> bool {
        matches!(byte, b'\n' | b'\r')
            || (byte.is_ascii_punctuation() || matches!(byte, b' ' | b'\t'))
                && *self.separator.get_or_insert(byte) == byte
    }

    fn fault(&self) -> Fault {
        Fault { line: Some(self.lines + 1), problem: "a quote in the middle of a field".to_owned() }
    }
}

impl Scanner for Rows {
    fn scan(&mut self, data: &[u8], eof: bool) -> Result<Step, Fault> {
        let mut at = 0;
        if self.before.is_none() && !data.is_empty() {
            if data.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(data) && !eof {
                return Ok(Step::more(0, 0));
            }
            at = if data.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        }
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
        Ok(Step { ended: eof, ..Step::more(data.len(), data.len() as u64) })
    }
}
