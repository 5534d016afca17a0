//! FASTA: a record begins at a '>' at the start of a line.

use memchr::memchr;

use super::scan::{Content, Fault, Scanner, Step, count_residues};

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
    /// What is counted besides the cost.
    content: Option<Content>,
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
        let (mut sequence, mut cost, mut content) = (0, 0, 0);
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
            content += self.content.as_ref().map_or(0, |counted| counted.count(letters));
            if let Some(&last) = letters.last() {
                self.mid_line = last != b'\n';
            }
            let Some(header) = header else { break };
            // Whether it is ">?" shows the next byte.
            if header + 1 == data.len() && !eof {
                return Ok(Step::more(header, cost).with_content(content));
            }
            if self.has_header {
                self.next_record();
                return Ok(Step::end(header, cost).with_content(content));
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
            self.next_record();
            return Ok(Step::end(data.len(), cost).with_content(content));
        }
        Ok(Step::more(data.len(), cost).with_content(content))
    }

    fn count_content(&mut self, content: Content) {
        self.content = Some(content);
    }
}

impl Fasta {
    fn next_record(&mut self) {
        *self = Self { content: self.content.take(), ..Self::default() };
    }

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
