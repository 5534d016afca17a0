//! FASTQ, with sequence and quality on one line each or on many.

use memchr::memchr;

use super::scan::{Fault, Scanner, Step, count_letters};

/// Bytes of a read's name that a message shows.
const NAME: usize = 60;

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Part {
    /// Before the '@'.
    #[default]
    Lead,
    Header,
    Sequence,
    Plus,
    Quality,
    /// All letters have their quality; blank lines may follow.
    Gap,
}

/// Scans FASTQ; the cost is the letters of the sequence.
///
/// A quality string may start with '@' or '+', so only counting tells where a record ends: the quality has as many
/// letters as the sequence.
#[derive(Default)]
pub(crate) struct Fastq {
    part: Part,
    mid_line: bool,
    /// Lines of the source before the one at hand.
    lines: u64,
    name: Vec<u8>,
    sequence: u64,
    quality: u64,
    /// Lines of sequence in the record at hand, and what the second one starts with: where a '+' was missing.
    sequence_lines: u64,
    second: (u64, u8),
    /// A record of this source had a sequence of several lines.
    wrapped: bool,
}

impl Scanner for Fastq {
    fn scan(&mut self, data: &[u8], eof: bool) -> Result<Step, Fault> {
        let (mut at, mut cost) = (0, 0);
        while at < data.len() {
            if !self.mid_line && !self.begin_line(data[at])? {
                self.next_record();
                return Ok(Step::end(at, cost));
            }
            let newline = memchr(b'\n', &data[at..]);
            let line = &data[at..newline.map_or(data.len(), |newline| at + newline)];
            cost += self.take(line);
            self.mid_line = newline.is_none();
            at += line.len();
            if newline.is_some() {
                at += 1;
                self.end_line()?;
                self.lines += 1;
            }
        }
        if !eof {
            return Ok(Step::more(at, cost));
        }
        if self.mid_line {
            self.end_line()?;
        }
        match self.part {
            Part::Lead | Part::Gap => {
                self.next_record();
                Ok(Step::end(at, cost))
            }
            _ => Err(self.fault(format!("the file ends within {}", self.shown_name()))),
        }
    }
}

impl Fastq {
    fn next_record(&mut self) {
        self.wrapped |= self.sequence_lines > 1;
        self.part = Part::Lead;
        self.name.clear();
        (self.sequence, self.quality, self.sequence_lines) = (0, 0, 0);
    }

    /// Decides by its first byte what a line is; false if it is the next record's.
    fn begin_line(&mut self, first: u8) -> Result<bool, Fault> {
        let blank = first.is_ascii_whitespace();
        match self.part {
            Part::Lead if blank => {}
            Part::Lead if first == b'@' => self.part = Part::Header,
            Part::Lead => {
                return Err(self.fault(format!("expected '@' at the start of a record, found {}", shown(first))));
            }
            Part::Sequence if first == b'+' => self.part = Part::Plus,
            Part::Sequence if is_residue(first) || blank => {
                self.sequence_lines += 1;
                if self.sequence_lines == 2 {
                    self.second = (self.lines, first);
                }
            }
            Part::Sequence => return Err(self.no_plus(first)),
            Part::Gap if !blank => return Ok(false),
            _ => {}
        }
        Ok(true)
    }

    /// Counts a piece of a line; returns its cost.
    fn take(&mut self, piece: &[u8]) -> u64 {
        match self.part {
            Part::Header => {
                let room = NAME.saturating_sub(self.name.len());
                self.name.extend_from_slice(&piece[..piece.len().min(room)]);
                0
            }
            Part::Sequence => {
                let letters = count_letters(piece);
                self.sequence += letters;
                letters
            }
            Part::Quality => {
                self.quality += count_letters(piece);
                0
            }
            _ => 0,
        }
    }

    fn end_line(&mut self) -> Result<(), Fault> {
        match self.part {
            Part::Header => self.part = Part::Sequence,
            Part::Plus => self.part = if self.sequence == 0 { Part::Gap } else { Part::Quality },
            Part::Quality if self.quality == self.sequence => self.part = Part::Gap,
            Part::Quality if self.quality > self.sequence => {
                let (name, quality, sequence) = (self.shown_name(), self.quality, self.sequence);
                let problem = format!("the quality of {name} has {quality} letters, its sequence {sequence}");
                return Err(self.fault(problem));
            }
            _ => {}
        }
        Ok(())
    }

    /// The fault of a sequence that is followed by `first`.
    ///
    /// In a file of one-line sequences the line after the first one is to blame, even if it could pass as sequence.
    fn no_plus(&self, first: u8) -> Fault {
        let (lines, found) = if self.sequence_lines > 1 && !self.wrapped { self.second } else { (self.lines, first) };
        let problem = format!("expected '+' after the sequence of {}, found {}", self.shown_name(), shown(found));
        Fault { line: Some(lines + 1), problem }
    }

    fn fault(&self, problem: String) -> Fault {
        Fault { line: Some(self.lines + 1), problem }
    }

    fn shown_name(&self) -> String {
        let word = self.name.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        match word.strip_prefix(b"@").unwrap_or(word) {
            b"" => "a read without a name".to_owned(),
            name => String::from_utf8_lossy(name).into_owned(),
        }
    }
}

/// What may start a line of sequence: letters, gaps, stops; never a quality's digit or sign.
fn is_residue(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'*' | b'-' | b'.' | b'~')
}

fn shown(byte: u8) -> String {
    if byte.is_ascii_graphic() { format!("'{}'", char::from(byte)) } else { format!("byte {byte:#04x}") }
}
