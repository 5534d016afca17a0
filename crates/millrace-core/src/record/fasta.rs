//! FASTA: a record begins at a '>' at the start of a line.

use memchr::memchr;

use super::scan::{Fault, LOOK_AHEAD, Scanner, Step, count_residues};

/// Scans FASTA; the cost is the residues: letters and `*` outside of header lines.
///
/// A line that starts with ">?" is no header but a gap within a sequence: BLAST+ reads `>?unk100` so, and for a tool
/// that does not, a record too few at a cut changes nothing.
#[derive(Default)]
pub(crate) struct Fasta {
    /// The record at hand has its header line, or is in it.
    has_header: bool,
    in_header: bool,
    /// The byte before the next one was no newline.
    mid_line: bool,
    /// The header at hand has a carriage return in it: alone, so far, as a newline may follow.
    returns: Returns,
}

/// Whether a line that has not ended has carriage returns in it.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Returns {
    #[default]
    None,
    /// One, as the last byte.
    Last,
    Inside,
}

impl Returns {
    /// With more bytes of the line.
    fn with(self, data: &[u8]) -> Self {
        match memchr(b'\r', data) {
            _ if data.is_empty() || self == Self::Inside => self,
            _ if self == Self::Last => Self::Inside,
            None => Self::None,
            Some(at) if at + 1 == data.len() => Self::Last,
            Some(_) => Self::Inside,
        }
    }
}

impl Scanner for Fasta {
    fn scan(&mut self, data: &[u8], eof: bool) -> Result<Step, Fault> {
        let (mut sequence, mut cost) = (0, 0);
        loop {
            if self.in_header {
                let Some(newline) = memchr(b'\n', &data[sequence..]) else {
                    self.returns = self.returns.with(&data[sequence..]);
                    break;
                };
                self.returns = Returns::None;
                sequence += newline + 1;
                self.in_header = false;
                self.mid_line = false;
            }
            let header = self.find_header(data, sequence);
            let letters = &data[sequence..header.unwrap_or(data.len())];
            cost += count_residues(letters);
            if let Some(&last) = letters.last() {
                self.mid_line = last != b'\n';
            }
            let Some(header) = header else { break };
            // Whether it is ">?" shows the next byte.
            if header + 1 == data.len() && !eof {
                return Ok(Step::more(header, cost));
            }
            if self.has_header {
                *self = Self::default();
                return Ok(Step::end(header, cost));
            }
            (self.has_header, self.in_header) = (true, true);
            sequence = header;
        }
        if eof {
            if self.returns == Returns::Inside {
                // Whether a tool takes it for one header or for records, no two tools agree.
                let problem = "lines end with a carriage return alone, as on old Macs; to convert it: \
                               tr '\\r' '\\n' < OLD > NEW";
                return Err(Fault { line: None, problem: problem.to_owned() });
            }
            *self = Self::default();
            return Ok(Step::end(data.len(), cost));
        }
        Ok(Step::more(data.len(), cost))
    }

    fn next_is_empty(&self, data: &[u8], eof: bool) -> Option<bool> {
        let undecided = if eof { Some(!data.is_empty()) } else { None };
        // A header so long that it does not fit is not worth the memory: its record is cut like any other.
        let undecided = if data.len() > LOOK_AHEAD { Some(false) } else { undecided };
        let Some(newline) = memchr(b'\n', data) else { return undecided };
        let mut line_starts = true;
        for &byte in &data[newline + 1..] {
            if byte > b' ' {
                return Some(byte == b'>' && line_starts);
            }
            line_starts = byte == b'\n';
        }
        undecided
    }
}

impl Fasta {
    /// Finds the next '>' at the start of a line at or after `from`.
    fn find_header(&self, data: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        loop {
            at += memchr(b'>', &data[at..])?;
            let line_starts = if at == 0 { !self.mid_line } else { data[at - 1] == b'\n' };
            let is_gap = self.has_header && data.get(at + 1) == Some(&b'?');
            if line_starts && !is_gap {
                return Some(at);
            }
            at += 1;
        }
    }
}
