//! Text of any program whose batches begin or end alike: what frames them is written once.
//!
//! The header is that of the first batch, the footer that of all; each batch must have the same. A batch without a
//! single byte adds nothing, as from a program that writes its header with its first line. But a program that writes
//! a header alone for records without results writes it always: then a batch without it is a result that is missing.

use std::collections::VecDeque;
use std::io::{BufRead, Write};

use memchr::memchr_iter;
use regex::bytes::Regex;

use super::layout::{Before, Outline, digest};
use super::lines::{Common, Lines, MOST_KEPT, Presence, buffered, keep, shape, text};
use super::totals::Totals;
use super::{JoinError, Joiner};

/// The most lines that a number may name; a footer of so many is kept in memory.
const MOST_LINES: usize = 10_000;

/// Which lines at the beginning or end of a block frame it.
enum Edge {
    /// So many lines; 0: none.
    Lines(usize),
    /// All up to the first one, from that edge inwards, that does not match.
    Matching(Regex),
    /// At the beginning: the first row of CSV, in which a quoted field may have line ends.
    Row,
}

impl Edge {
    /// From a number of lines or a regular expression; nothing is one line.
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::Lines(1));
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().filter(|n| (1..=MOST_LINES).contains(n)).map(Self::Lines);
        }
        Regex::new(text).ok().map(Self::Matching)
    }

    const fn is_none(&self) -> bool {
        matches!(self, Self::Lines(0))
    }
}

/// Reads the header of a block; with it the first line behind it, empty at the end of the block.
fn header(edge: &Edge, lines: &mut Lines<'_>, format: &'static str) -> Result<(Vec<u8>, Vec<u8>), JoinError> {
    let mut header = Vec::new();
    let mut n_lines = 0;
    let mut n_quotes = 0;
    loop {
        let whole = match edge {
            Edge::Lines(n) => n_lines == *n,
            Edge::Row => n_lines > 0 && n_quotes % 2 == 0,
            Edge::Matching(_) => false,
        };
        let Some(line) = lines.next()? else {
            if whole || matches!(edge, Edge::Matching(_)) {
                return Ok((header, Vec::new()));
            }
            return Err(shape(format, format!("a batch ends within its header, after {n_lines} lines")));
        };
        if whole || matches!(edge, Edge::Matching(regex) if !regex.is_match(text(line))) {
            return Ok((header, line.to_vec()));
        }
        keep(&mut header, line, format)?;
        n_lines += 1;
        n_quotes += memchr_iter(b'"', line).count();
    }
}

/// Gives lines of headers and footers what the user's own command writes there, where Millrace has called the tool
/// otherwise (with a number of threads).
struct Restore {
    /// Its group 1 is what is to be replaced.
    regex: Regex,
    text: Vec<u8>,
}

impl Restore {
    /// From a regular expression, a tab, and the text that group 1 becomes.
    fn parse(text: &str) -> Option<Self> {
        let (regex, text) = text.rsplit_once('\t')?;
        let regex = Regex::new(regex).ok().filter(|regex| regex.captures_len() == 2)?;
        Some(Self { regex, text: text.as_bytes().to_vec() })
    }

    /// Changes each line of `part` that matches; whether one does.
    fn apply(&self, part: &mut Vec<u8>) -> bool {
        let mut found = false;
        let mut restored = Vec::with_capacity(part.len());
        for line in part.split_inclusive(|byte| *byte == b'\n') {
            let group = self.regex.captures(text(line)).and_then(|captures| captures.get(1));
            if let Some(group) = group {
                found = true;
                restored.extend_from_slice(&line[..group.start()]);
                restored.extend_from_slice(&self.text);
                restored.extend_from_slice(&line[group.end()..]);
            } else {
                restored.extend_from_slice(line);
            }
        }
        *part = restored;
        found
    }
}

/// Lines that may turn out to be the footer.
struct Held<'a> {
    edge: &'a Edge,
    lines: VecDeque<Vec<u8>>,
    n_bytes: usize,
}

impl<'a> Held<'a> {
    const fn new(edge: &'a Edge) -> Self {
        Self { edge, lines: VecDeque::new(), n_bytes: 0 }
    }

    /// Takes the next line; gives what is no part of the footer now to `body`.
    fn push(&mut self, line: &[u8], body: &mut Body<'_>) -> Result<(), JoinError> {
        match self.edge {
            Edge::Matching(regex) if regex.is_match(text(line)) => {
                self.n_bytes += line.len();
                if self.n_bytes > MOST_KEPT {
                    return Err(shape(body.format, "a header or footer has no end"));
                }
                self.lines.push_back(line.to_vec());
                Ok(())
            }
            Edge::Lines(n) if *n > 0 => {
                self.lines.push_back(line.to_vec());
                if self.lines.len() > *n {
                    let first = self.lines.pop_front().unwrap_or_default();
                    return body.write(&first);
                }
                Ok(())
            }
            _ => {
                self.n_bytes = 0;
                for each in self.lines.drain(..) {
                    body.write(&each)?;
                }
                body.write(line)
            }
        }
    }

    fn footer(self, format: &'static str) -> Result<Vec<u8>, JoinError> {
        if let Edge::Lines(n) = self.edge
            && self.lines.len() < *n
        {
            return Err(shape(format, format!("a batch ends within its footer, after {} lines", self.lines.len())));
        }
        Ok(self.lines.into_iter().flatten().collect())
    }
}

/// What is between header and footer.
struct Body<'a> {
    format: &'static str,
    out: &'a mut dyn Write,
    objects: bool,
    /// Fields in quotes may have line ends.
    quoted: bool,
    unbroken: bool,
    n_quotes: usize,
    /// Whether there is a blank line in the field that is open.
    has_quoted_blank: bool,
    has_lines: bool,
    /// Whether the last line of the output has its line end.
    ended: &'a mut bool,
}

impl Body<'_> {
    fn write(&mut self, line: &[u8]) -> Result<(), JoinError> {
        if !*self.ended {
            return Err(shape(self.format, "the last line of a batch has no line end, and another batch follows"));
        }
        if self.objects && !is_object(line) {
            let found = String::from_utf8_lossy(&text(line)[..text(line).len().min(60)]).into_owned();
            return Err(shape(self.format, format!("a line is no JSON object: '{found}'")));
        }
        if self.unbroken {
            self.n_quotes += if self.quoted { memchr_iter(b'"', line).count() } else { 0 };
            let is_open = self.n_quotes % 2 == 1;
            if !is_open && text(line).is_empty() {
                return Err(self.broken());
            }
            self.has_quoted_blank = is_open && (self.has_quoted_blank || text(line).is_empty());
        }
        self.has_lines = true;
        *self.ended = line.ends_with(b"\n");
        self.out.write_all(line)?;
        Ok(())
    }

    /// Checks the last field: one that does not end may begin with a mere quote, and a blank line in it is one of the file.
    fn end(&self) -> Result<(), JoinError> {
        if self.has_quoted_blank { Err(self.broken()) } else { Ok(()) }
    }

    fn broken(&self) -> JoinError {
        let problem = "there is a blank line: columns change there, and between two batches that would not be seen";
        shape(self.format, problem)
    }
}

/// Whether a line looks like a JSON object; what is in it is the program's business (some write `NaN`).
fn is_object(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.starts_with(b"{") && line.ends_with(b"}")
}

/// Header once, footer once, lines between them.
pub(super) struct Frame {
    format: &'static str,
    header: Edge,
    footer: Edge,
    /// Whether later batches may have another header, which is as wide as the names in their rows.
    header_varies: bool,
    restore: Vec<Restore>,
    /// Numbers of the footer that are added up.
    totals: Option<Totals>,
    /// Whether each line between them is a JSON object.
    objects: bool,
    /// Whether a blank line between them ends the run.
    unbroken: bool,
    first_header: Common,
    first_footer: Common,
    presence: Presence,
    ended: bool,
    /// Another joiner has written the header.
    headed: bool,
    outline: Outline,
}

impl Frame {
    /// From parts on a line each: `header` or `header-first`, and `footer` (with a number of lines or a regular expression
    /// behind a colon), `totals` (a footer by its regular expression, whose groups are numbers to add up), `csv`, `sam` or
    /// `jsonl`, `unbroken` (a blank line, behind which columns change, ends the run), and `restore:REGEX<tab>TEXT`, as often
    /// as there is something to restore.
    pub(super) fn new(spec: &str) -> Option<Self> {
        let mut frame = Self {
            format: "text",
            header: Edge::Lines(0),
            footer: Edge::Lines(0),
            header_varies: false,
            restore: Vec::new(),
            totals: None,
            objects: false,
            unbroken: false,
            first_header: Common::default(),
            first_footer: Common::default(),
            presence: Presence::default(),
            ended: true,
            headed: false,
            outline: Outline::default(),
        };
        for part in spec.split('\n') {
            let (name, parameter) = part.split_once(':').unwrap_or((part, ""));
            match name {
                "header" => frame.header = Edge::parse(parameter)?,
                "header-first" => (frame.header, frame.header_varies) = (Edge::parse(parameter)?, true),
                "footer" => frame.footer = Edge::parse(parameter)?,
                "totals" => {
                    let regex = Regex::new(parameter).ok()?;
                    (frame.footer, frame.totals) = (Edge::Matching(regex.clone()), Some(Totals::new(regex)?));
                }
                "restore" => frame.restore.push(Restore::parse(parameter)?),
                "csv" if part == "csv" => (frame.format, frame.header) = ("CSV", Edge::Row),
                "sam" if part == "sam" => (frame.format, frame.header) = ("SAM", Edge::parse("^@[A-Z][A-Z]\t")?),
                "unbroken" if part == "unbroken" => frame.unbroken = true,
                "jsonl" if part == "jsonl" => (frame.format, frame.objects) = ("JSON lines", true),
                _ => return None,
            }
        }
        Some(frame)
    }

    /// Undoes in the header or footer of a block what Millrace has added to the command; `seen`: where that was found.
    fn restore(&self, part: &mut Vec<u8>, seen: &mut [bool]) {
        for (each, seen) in self.restore.iter().zip(seen) {
            *seen |= each.apply(part);
        }
    }

    /// Whether all that Millrace has added to the command was found in a block.
    fn all_restored(&self, seen: &[bool]) -> Result<(), JoinError> {
        let Some(at) = seen.iter().position(|found| !found) else { return Ok(()) };
        let problem = format!("no line of its header or footer matches '{}'", self.restore[at].regex);
        Err(shape(self.format, problem))
    }

    /// Takes the header of a block, which goes to `out` if it is the first.
    fn take_header(&mut self, header: Vec<u8>, out: &mut dyn Write) -> Result<(), JoinError> {
        let common = if self.header_varies { 0 } else { digest(&header) };
        (self.outline.head, self.outline.lead) = (Some(common), header.len() as i64);
        let is_first = self.first_header.get().is_none();
        if is_first && self.first_header.form != 0 {
            return Err(shape(self.format, "the first batch with a header was computed under other paths"));
        }
        if is_first || !self.header_varies {
            self.first_header.check(header, self.format, "header")?;
        }
        if is_first && !self.headed {
            out.write_all(self.first_header.get().unwrap_or_default())?;
        }
        Ok(())
    }
}

impl Joiner for Frame {
    fn block(&mut self, _n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        self.outline = Outline::default();
        if block.fill_buf()?.is_empty() {
            self.outline.silent = true;
            return self.presence.silent(self.format);
        }
        let mut out = buffered(out);
        let mut lines = Lines::new(block);
        let (mut header, first) = header(&self.header, &mut lines, self.format)?;
        let mut restored = vec![false; self.restore.len()];
        self.restore(&mut header, &mut restored);
        self.take_header(header, &mut out)?;
        let mut body = Body {
            format: self.format,
            out: &mut out,
            objects: self.objects,
            quoted: matches!(self.header, Edge::Row),
            unbroken: self.unbroken,
            n_quotes: 0,
            has_quoted_blank: false,
            has_lines: false,
            ended: &mut self.ended,
        };
        let mut held = Held::new(&self.footer);
        if !first.is_empty() {
            held.push(&first, &mut body)?;
            while let Some(line) = lines.next()? {
                held.push(line, &mut body)?;
            }
        }
        body.end()?;
        let has_body = body.has_lines;
        let mut footer = held.footer(self.format)?;
        self.restore(&mut footer, &mut restored);
        self.all_restored(&restored)?;
        if let Some(totals) = &mut self.totals {
            footer = totals.take(&footer, self.format)?;
            self.outline.counts = totals.counts();
        }
        self.outline.foot = Some(digest(&self.totals.as_ref().map_or(footer.clone(), |totals| totals.common(&footer))));
        (self.outline.has_body, self.outline.unended) = (has_body, !self.ended);
        self.first_footer.check(footer, self.format, "footer")?;
        let is_framed = !self.header.is_none() || !self.footer.is_none();
        if is_framed && !has_body {
            self.outline.framed_nothing = true;
            self.presence.framed_nothing(self.format)?;
        }
        out.flush()?;
        Ok(())
    }

    fn no_record(&mut self, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        if block.fill_buf()?.is_empty() {
            return Ok(());
        }
        let mut out = buffered(out);
        let mut lines = Lines::new(block);
        let mut restored = vec![false; self.restore.len()];
        while let Some(line) = lines.next()? {
            let mut line = line.to_vec();
            self.restore(&mut line, &mut restored);
            out.write_all(&line)?;
        }
        self.all_restored(&restored)?;
        out.flush()?;
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), JoinError> {
        if let Some(footer) = self.first_footer.get() {
            match &self.totals {
                Some(totals) => out.write_all(&totals.put(footer))?,
                None => out.write_all(footer)?,
            }
        }
        Ok(())
    }

    fn set_form(&mut self, form: u32) {
        self.first_header.form = form;
        self.first_footer.form = form;
    }

    fn resume(&mut self, before: &Before) {
        self.headed = before.headed;
        if let Some(totals) = &mut self.totals {
            totals.resume(&before.counts);
        }
    }

    fn outline(&self) -> Option<Outline> {
        Some(self.outline.clone())
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
