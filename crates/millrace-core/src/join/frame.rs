//! Text of any program whose batches begin or end alike: what frames them is written once.
//!
//! The header is that of the first batch, the footer that of all; each batch must have the same. A batch without a
//! single byte adds nothing, as from a program that writes its header with its first line. But a program that writes
//! a header alone for records without results writes it always: then a batch without it is a result that is missing.

use std::collections::VecDeque;
use std::io::{self, BufRead, Write};

use memchr::memchr_iter;
use regex::bytes::Regex;

use super::lines::{Common, Lines, MOST_KEPT, buffered, keep, shape};
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

/// What tells one line of output from another: its text without the line end.
fn text(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
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
        self.has_lines = true;
        *self.ended = line.ends_with(b"\n");
        self.out.write_all(line)?;
        Ok(())
    }
}

/// Whether a line looks like a JSON object; what is in it is the program's business (some write `NaN`).
fn is_object(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.starts_with(b"{") && line.ends_with(b"}")
}

/// What all batches say of results that are not there: nothing at all, or what frames them.
#[derive(Default)]
pub(super) struct Presence {
    silent: bool,
    framed_nothing: bool,
}

impl Presence {
    /// Notes a batch without a byte.
    pub(super) fn silent(&mut self, format: &'static str) -> Result<(), JoinError> {
        self.silent = true;
        self.check(format)
    }

    /// Notes a batch with header or footer and nothing between them.
    pub(super) fn framed_nothing(&mut self, format: &'static str) -> Result<(), JoinError> {
        self.framed_nothing = true;
        self.check(format)
    }

    fn check(&self, format: &'static str) -> Result<(), JoinError> {
        if self.silent && self.framed_nothing {
            return Err(shape(
                format,
                "a batch has no output at all, where another without results has header or footer",
            ));
        }
        Ok(())
    }
}

/// Header once, footer once, lines between them.
pub(super) struct Frame {
    format: &'static str,
    header: Edge,
    footer: Edge,
    /// Whether later batches may have another header, which is as wide as the names in their rows.
    header_varies: bool,
    restore: Vec<Restore>,
    /// Whether each line between them is a JSON object.
    objects: bool,
    first_header: Common,
    first_footer: Common,
    presence: Presence,
    ended: bool,
}

impl Frame {
    /// From parts on a line each: `header` or `header-first`, and `footer` (with a number of lines or a regular expression
    /// behind a colon), `csv`, `sam` or `jsonl`, and `restore:REGEX<tab>TEXT`, as often as there is something to restore.
    pub(super) fn new(spec: &str) -> Option<Self> {
        let mut frame = Self {
            format: "text",
            header: Edge::Lines(0),
            footer: Edge::Lines(0),
            header_varies: false,
            restore: Vec::new(),
            objects: false,
            first_header: Common::default(),
            first_footer: Common::default(),
            presence: Presence::default(),
            ended: true,
        };
        for part in spec.split('\n') {
            let (name, parameter) = part.split_once(':').unwrap_or((part, ""));
            match name {
                "header" => frame.header = Edge::parse(parameter)?,
                "header-first" => (frame.header, frame.header_varies) = (Edge::parse(parameter)?, true),
                "footer" => frame.footer = Edge::parse(parameter)?,
                "restore" => frame.restore.push(Restore::parse(parameter)?),
                "csv" if part == "csv" => (frame.format, frame.header) = ("CSV", Edge::Row),
                "sam" if part == "sam" => (frame.format, frame.header) = ("SAM", Edge::parse("^@[A-Z][A-Z]\t")?),
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

    /// Takes the header of a block, which goes to `out` if it is the first.
    fn take_header(&mut self, header: Vec<u8>, out: &mut dyn Write) -> Result<(), JoinError> {
        let is_first = self.first_header.get().is_none();
        if is_first || !self.header_varies {
            self.first_header.check(header, self.format, "header")?;
        }
        if is_first {
            out.write_all(self.first_header.get().unwrap_or_default())?;
        }
        Ok(())
    }
}

impl Joiner for Frame {
    fn block(&mut self, _n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        if block.fill_buf()?.is_empty() {
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
        let framed_nothing = !body.has_lines;
        let mut footer = held.footer(self.format)?;
        self.restore(&mut footer, &mut restored);
        if let Some(at) = restored.iter().position(|found| !found) {
            let problem = format!("no line of its header or footer matches '{}'", self.restore[at].regex);
            return Err(shape(self.format, problem));
        }
        self.first_footer.check(footer, self.format, "footer")?;
        if framed_nothing && !(self.header.is_none() && self.footer.is_none()) {
            self.presence.framed_nothing(self.format)?;
        }
        out.flush()?;
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), JoinError> {
        if let Some(footer) = self.first_footer.get() {
            out.write_all(footer)?;
        }
        Ok(())
    }
}

/// XML of any program: what stands up to the opening of one element, and from its closing on, once.
pub(super) struct Xml {
    tag: Vec<u8>,
    opening: Common,
    closing: Common,
    /// The whole of a batch whose element has nothing in it, which may be written in another way.
    empty: Common,
    presence: Presence,
}

/// A tag at the end of a piece of XML that was read up to its `>`.
enum Tag {
    Open,
    Close,
    Empty,
    Other,
}

impl Xml {
    pub(super) fn new(tag: &str) -> Option<Self> {
        let is_name = |c: char| c.is_alphanumeric() || "_:.-".contains(c);
        if tag.is_empty() || !tag.chars().all(is_name) {
            return None;
        }
        Some(Self {
            tag: tag.as_bytes().to_vec(),
            opening: Common::default(),
            closing: Common::default(),
            empty: Common::default(),
            presence: Presence::default(),
        })
    }

    /// The tag that ends `piece`, and where it begins.
    fn tag(&self, piece: &[u8]) -> (Tag, usize) {
        let Some(at) = memchr::memrchr(b'<', piece) else {
            return (Tag::Other, piece.len());
        };
        let inner = piece[at + 1..].strip_suffix(b">").unwrap_or_default();
        let (is_close, name) = inner.strip_prefix(b"/").map_or((false, inner), |name| (true, name));
        let Some(after) = name.strip_prefix(self.tag.as_slice()) else {
            return (Tag::Other, at);
        };
        if after.first().is_some_and(|byte| !byte.is_ascii_whitespace() && *byte != b'/') {
            return (Tag::Other, at);
        }
        let kind = match (is_close, after.ends_with(b"/")) {
            (true, _) => Tag::Close,
            (false, true) => Tag::Empty,
            (false, false) => Tag::Open,
        };
        (kind, at)
    }

    fn wrong<T>(&self, problem: &str) -> Result<T, JoinError> {
        let tag = String::from_utf8_lossy(&self.tag);
        Err(shape("XML", problem.replace("TAG", &tag)))
    }

    /// Reads up to the element; true if it is there and has an end of its own.
    fn prologue(&self, block: &mut dyn BufRead, kept: &mut Vec<u8>) -> Result<bool, JoinError> {
        let mut piece = Vec::new();
        while next_piece(block, &mut piece)? {
            keep(kept, &piece, "XML")?;
            match self.tag(&piece).0 {
                Tag::Open => return Ok(true),
                Tag::Empty => return Ok(false),
                Tag::Close => return self.wrong("</TAG> without <TAG>"),
                Tag::Other => {}
            }
        }
        self.wrong("a batch without <TAG>")
    }

    /// Reads what follows the element.
    fn epilogue(&self, block: &mut dyn BufRead, kept: &mut Vec<u8>) -> Result<(), JoinError> {
        let mut piece = Vec::new();
        while next_piece(block, &mut piece)? {
            if matches!(self.tag(&piece).0, Tag::Open | Tag::Empty) {
                return self.wrong("a batch has several <TAG>: name the element that holds them");
            }
            keep(kept, &piece, "XML")?;
        }
        Ok(())
    }

    /// Notes a batch whose element is empty, which adds nothing to others.
    fn nothing(&mut self, whole: Vec<u8>) -> Result<(), JoinError> {
        self.empty.check(whole, "XML", "batch without results")?;
        self.presence.framed_nothing("XML")
    }
}

/// Reads text and the `>` that ends it; false at the end of the block.
fn next_piece(block: &mut dyn BufRead, piece: &mut Vec<u8>) -> io::Result<bool> {
    piece.clear();
    Ok(block.read_until(b'>', piece)? > 0)
}

impl Joiner for Xml {
    fn block(&mut self, _n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        if block.fill_buf()?.is_empty() {
            return self.presence.silent("XML");
        }
        let mut opening = Vec::new();
        if !self.prologue(block, &mut opening)? {
            self.epilogue(block, &mut opening)?;
            return self.nothing(opening);
        }
        let mut out = buffered(out);
        let mut piece = Vec::new();
        let mut depth = 1;
        let mut is_first = true;
        loop {
            if !next_piece(block, &mut piece)? {
                return self.wrong("a batch without </TAG>");
            }
            let (tag, at) = self.tag(&piece);
            match tag {
                Tag::Open => depth += 1,
                Tag::Close => depth -= 1,
                _ => {}
            }
            if depth == 0 && is_first && piece[..at].trim_ascii().is_empty() {
                opening.extend_from_slice(&piece);
                self.epilogue(block, &mut opening)?;
                return self.nothing(opening);
            }
            let mut content = 0;
            if is_first {
                // The line end behind the opening tag belongs to it.
                content = piece.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(0);
                content = memchr::memchr(b'\n', &piece[..content]).map_or(0, |end| end + 1);
                opening.extend_from_slice(&piece[..content]);
                let begins = self.opening.get().is_none();
                self.opening.check(std::mem::take(&mut opening), "XML", "beginning")?;
                if begins {
                    out.write_all(self.opening.get().unwrap_or_default())?;
                }
                is_first = false;
            }
            if depth > 0 {
                out.write_all(&piece[content..])?;
                continue;
            }
            // The indentation of the closing tag belongs to it.
            let indent = piece[content..at].iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            let end = if piece[..at - indent].ends_with(b"\n") { at - indent } else { at };
            out.write_all(&piece[content..end])?;
            let mut closing = piece[end..].to_vec();
            self.epilogue(block, &mut closing)?;
            self.closing.check(closing, "XML", "end")?;
            out.flush()?;
            return Ok(());
        }
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), JoinError> {
        if let Some(closing) = self.closing.get().or(self.empty.get()) {
            out.write_all(closing)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
