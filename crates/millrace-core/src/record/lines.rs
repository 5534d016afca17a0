//! Records that begin or end at lines of a certain look: MOL2, SDF, HMM, CM, Stockholm, GenBank, PDBQT, SMILES, MGF, regex.

use memchr::memchr;
use regex::bytes::Regex;

use super::scan::{Fault, LOOK_AHEAD, Scanner, Step, is_blank};

/// Longest line that a regular expression is matched against: it must be in memory as a whole.
pub(crate) const MAX_REGEX_LINE: usize = 1 << 20;

/// Bytes of a line that tell any prefix.
const PREFIX: usize = 32;

/// Which lines are meant.
#[derive(Clone)]
pub(crate) enum Which {
    /// None.
    Never,
    /// Those that start with these bytes, at most `PREFIX` of them.
    Prefix(&'static [u8]),
    /// Those that hold something: neither blank nor, where that is a comment, starting with '#'.
    Filled,
    /// Those that match, without newline and carriage return.
    Regex(Regex),
}

/// What a blank line after the end of a record means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blank {
    /// It belongs to the record that follows, or to the last one (an SDF title may be blank).
    Leads,
    /// It belongs to the record before.
    Trails,
    /// The tool stops reading there, so nothing is cut after it (Open Babel's SMILES).
    Stops,
}

/// The rules of one format.
#[derive(Clone)]
pub(crate) struct Rules {
    /// Lines at which a record begins.
    pub(crate) start: Which,
    /// Lines after which it ends.
    pub(crate) end: Which,
    /// Blank lines after an end.
    pub(crate) blank: Blank,
    /// Lines starting with '#' are comments: before a start they belong to it, after an end to the record before.
    pub(crate) comments: bool,
    /// Behind the molecule stand data items, each up to a blank line (SDF).
    pub(crate) items: bool,
    /// Lines before the first start are no part of its record.
    pub(crate) preamble: bool,
}

/// Scans line by line; the cost is the bytes.
pub(crate) struct Lines {
    rules: Rules,
    /// A start line was seen in the record at hand.
    has_start: bool,
    /// A line was seen in it.
    begun: bool,
    /// A line that is not blank was seen in it.
    filled: bool,
    /// The end line was seen; the record goes on only with blank lines.
    ended: bool,
    /// The next byte is within a line that was judged already.
    mid_line: bool,
    /// That line ends the record.
    ending: bool,
    /// Nothing is cut any more.
    stopped: bool,
    /// Where the line at hand stands, of a format with data items.
    place: Place,
}

/// Which part of a molecule with data items a line belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    Molecule,
    /// Behind it, and in no item.
    Between,
    Item,
}

impl Lines {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            has_start: false,
            begun: false,
            filled: false,
            ended: false,
            mid_line: false,
            ending: false,
            stopped: false,
            place: Place::default(),
        }
    }

    fn next_record(&mut self) {
        self.place = Place::default();
        (self.has_start, self.begun, self.filled) = (false, false, false);
        (self.ended, self.mid_line, self.ending) = (false, false, false);
    }

    fn matches(&self, which: &Which, line: &[u8]) -> bool {
        match which {
            Which::Never => false,
            Which::Prefix(prefix) => line.starts_with(prefix),
            Which::Filled => !is_blank_head(line) && !self.is_comment(line),
            Which::Regex(regex) => regex.is_match(line.strip_suffix(b"\r").unwrap_or(line)),
        }
    }

    /// Follows the data items behind a molecule.
    ///
    /// An item ends with a blank line. Where none stands before the end line, Open Babel takes that for a line of the item, and
    /// goes on into the next molecule; other tools end the molecule there. The record goes on, so that it is whole for both.
    fn follow_items(&mut self, line: &[u8]) {
        if self.rules.items {
            self.place = match self.place {
                Place::Molecule if line.starts_with(b"M  END") => Place::Between,
                Place::Between if memchr(b'<', get_head(line)).is_some() => Place::Item,
                Place::Item if is_blank_head(line) => Place::Between,
                place => place,
            };
        }
    }

    fn is_comment(&self, line: &[u8]) -> bool {
        self.rules.comments && line.starts_with(b"#")
    }

    /// Whether the beginning of a line says all that the rules ask of it.
    fn is_enough(&self, line: &[u8]) -> Result<bool, Fault> {
        if matches!(self.rules.start, Which::Regex(_)) || matches!(self.rules.end, Which::Regex(_)) {
            if line.len() > MAX_REGEX_LINE {
                let problem =
                    format!("a line is longer than {MAX_REGEX_LINE} bytes, too long for record_start and record_end");
                return Err(Fault { line: None, problem });
            }
            return Ok(false);
        }
        // The name of a data item may stand anywhere in its line.
        let is_told = line.len() >= PREFIX && !is_blank_head(line) && self.place != Place::Between;
        Ok(line.len() >= LOOK_AHEAD || is_told)
    }

    /// Judges a line: does the record at hand end before it, or may it belong to what follows?
    fn judge(&mut self, line: &[u8]) -> Verdict {
        if self.matches(&self.rules.start, line) {
            if self.has_start || self.ended || (self.rules.preamble && self.begun) {
                return Verdict::Boundary;
            }
            self.has_start = true;
            return Verdict::Belongs;
        }
        let (blank, comment) = (is_blank_head(line), self.is_comment(line));
        if blank && self.rules.blank == Blank::Stops {
            self.stopped = true;
            return Verdict::Belongs;
        }
        if !self.ended {
            let leads = matches!(self.rules.start, Which::Prefix(_)) && self.rules.comments && (blank || comment);
            return if leads { Verdict::Waits } else { Verdict::Belongs };
        }
        match (blank, self.rules.blank) {
            (true, Blank::Leads) => Verdict::Waits,
            (true, _) => Verdict::Belongs,
            (false, _) if comment => Verdict::Belongs,
            (false, _) => Verdict::Boundary,
        }
    }
}

/// Whether data starts with nothing but white space, as far as one looks ahead.
pub(crate) fn is_blank_head(data: &[u8]) -> bool {
    is_blank(get_head(data))
}

/// Data as far as one looks ahead.
fn get_head(data: &[u8]) -> &[u8] {
    &data[..data.len().min(LOOK_AHEAD)]
}

enum Verdict {
    Belongs,
    Waits,
    Boundary,
}

impl Scanner for Lines {
    fn scan(&mut self, data: &[u8], eof: bool) -> Result<Step, Fault> {
        let end = |len: usize| Ok(Step::end(len, len as u64));
        let mut at = 0;
        // Start of the lines that wait for what follows them.
        let mut waiting: Option<usize> = None;
        while !self.stopped {
            if self.mid_line {
                let Some(newline) = memchr(b'\n', &data[at..]) else {
                    at = data.len();
                    break;
                };
                at += newline + 1;
                self.mid_line = false;
                self.ended |= self.ending;
            }
            let rest = &data[at..];
            if rest.is_empty() {
                break;
            }
            let newline = memchr(b'\n', rest);
            let line = &rest[..newline.unwrap_or(rest.len())];
            if newline.is_none() && !eof && !self.is_enough(line)? {
                break;
            }
            match self.judge(line) {
                Verdict::Boundary => {
                    self.next_record();
                    return end(waiting.unwrap_or(at));
                }
                Verdict::Belongs => waiting = None,
                Verdict::Waits => {
                    let from = *waiting.get_or_insert(at);
                    if at + line.len() - from >= LOOK_AHEAD {
                        waiting = None;
                    } else if newline.is_none() && !eof {
                        break;
                    }
                }
            }
            self.follow_items(line);
            // Where a blank line ends a record, a second one does not make a record of nothing.
            self.begun = true;
            self.filled |= !is_blank_head(line);
            self.ending = self.filled && self.place != Place::Item && self.matches(&self.rules.end, line);
            self.mid_line = newline.is_none();
            self.ended |= self.ending && !self.mid_line;
            at += newline.map_or(line.len(), |newline| newline + 1);
        }
        if eof {
            self.next_record();
            return end(data.len());
        }
        let len = if self.stopped { data.len() } else { waiting.unwrap_or(at) };
        Ok(Step::more(len, len as u64))
    }
}
